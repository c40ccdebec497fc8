"""Small faults in a function, planted systematically by rewriting its syntax tree.

Each operator visits a whole function and yields one edit per place where it applies. An edit is made on a
copy of the tree and leaves the original as it is. Where it cannot be known without running the code
whether an edit makes sense, it is made: a mutant that only raises is a mutant too, and an easy one.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

Operator: TypeAlias = Literal["delete", "negate", "andor", "flip", "pop", "append", "clone", "with", "swap"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)
"""
* ``delete``: a statement deleted. That is also how a saved value is not restored.
* ``negate``: a condition negated: of ``if``, ``while``, ``assert``, a conditional expression or a
  comprehension, and each operand of ``and`` and ``or``.
* ``andor``: ``and`` made ``or``, ``or`` made ``and``.
* ``flip``: a boolean constant flipped, also where it is a positional parameter's default.
* ``pop``: ``popleft()`` made ``pop()``, ``pop(0)`` made ``pop()``.
* ``append``: ``append(x)`` made ``insert(0, x)``, which a list has where a deque also has ``appendleft``.
* ``clone``: ``x.clone()`` made ``x``.
* ``with``: one context manager dropped from a ``with``.
* ``swap``: two arguments of a call exchanged: every pair of up to four, neighbours where there are more.
"""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Copies: TypeAlias = dict[int, Any]
"""What ``copy.deepcopy`` notes: the copy of each object, by the object's identity."""

_MOST_PAIRED = 4
_TYPED = frozenset({"isinstance", "issubclass", "hasattr", "getattr", "setattr", "super", "range"})
"""Builtins of which no two arguments have one type."""

_LONGEST_TEXT = 60

BLOCKS = ast.stmt, ast.ExceptHandler, ast.match_case
"""Nodes that are statements, or hold some: what is below them belongs to those."""


class Edit(NamedTuple):
    """One small fault: what was done, in words, in which lines, and how to do it to a copy of the tree."""

    operator: Operator
    description: str
    lines: tuple[int, int]
    change: Callable[[_Copies], None]

    def applied_to(self, function: Function) -> Function:
        """Return the function with this fault; ``function`` is the tree that the edit was made for."""
        copies: _Copies = {}
        mutated = copy.deepcopy(function, copies)
        self.change(copies)
        return ast.fix_missing_locations(mutated)


class _Place(NamedTuple):
    """An expression, and where it hangs in the tree."""

    node: ast.expr
    parent: ast.AST
    field: str
    position: int | None

    def put(self, copies: _Copies, new: ast.expr) -> None:
        """Put another expression in the copy of this place."""
        parent = copies[id(self.parent)]
        if self.position is None:
            setattr(parent, self.field, new)
        else:
            getattr(parent, self.field)[self.position] = new


Extent: TypeAlias = Literal["none", "own", "all"]
"""Of a statement: nothing, what is its own, or also the blocks below it."""

_Wanted: TypeAlias = Callable[[ast.stmt], Extent]


def everything(_statement: ast.stmt) -> Extent:
    """Restrict nothing."""
    return "all"


def edits(function: Function, wanted: _Wanted = everything) -> Iterator[Edit]:
    """Yield every fault that the operators find, in the order of the source.

    ``wanted`` restricts them: it says of a statement whether it, and whether all below it, is meant. The
    parameters' defaults belong to the whole function, whose lines they go with.
    """
    span = function.lineno, function.end_lineno or function.lineno
    if wanted(function) == "all":
        for place in _places(function.args, "defaults", function.args.defaults):
            yield from _in_expression(place, span)
    yield from _in_body(function.body, wanted, span)


def _in_body(body: list[ast.stmt], wanted: _Wanted, span: tuple[int, int]) -> Iterator[Edit]:
    for position, statement in enumerate(body):
        extent = wanted(statement)
        # A declaration runs nowhere, and matters wherever its function does.
        lines = span if isinstance(statement, ast.Global | ast.Nonlocal) else header(statement)
        if extent != "none":
            yield from _in_statement(body, position, lines)
        for below in _bodies(statement):
            yield from _in_body(below, everything if extent == "all" else wanted, span)


def _in_statement(body: list[ast.stmt], position: int, lines: tuple[int, int]) -> Iterator[Edit]:
    statement = body[position]
    if not _says_nothing(statement):
        description = f"delete `{_text(statement)}`"
        yield Edit("delete", description, lines, lambda copies: _delete(copies, body, position))
    if isinstance(statement, ast.With | ast.AsyncWith):
        for number, item in enumerate(statement.items):
            description = f"drop the context `{_text(item.context_expr)}`"
            yield Edit("with", description, lines, _dropping(body, position, number))
    for place in _own_expressions(statement):
        yield from _in_expression(place, lines)


def _in_expression(place: _Place, lines: tuple[int, int]) -> Iterator[Edit]:
    """Yield the faults of one node; the nodes below it are places of their own."""
    node = place.node
    if _is_condition(place):
        yield Edit("negate", f"negate `{_text(node)}`", lines, lambda copies: _negate(copies, place))
    if isinstance(node, ast.BoolOp):
        other = "or" if isinstance(node.op, ast.And) else "and"
        description = f"`{other}` in `{_text(node)}`"
        yield Edit("andor", description, lines, lambda copies: _swap_operator(copies[id(node)]))
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        where = f" in `{_text(place.parent)}`" if isinstance(place.parent, ast.keyword | ast.expr) else ""
        flipped = ast.Constant(value=not node.value)
        yield Edit("flip", f"{not node.value}{where}", lines, lambda copies: place.put(copies, flipped))
    if isinstance(node, ast.Call):
        yield from _in_call(place, node, lines)


def _in_call(place: _Place, call: ast.Call, lines: tuple[int, int]) -> Iterator[Edit]:
    match call:
        case ast.Call(func=ast.Attribute(attr="popleft"), args=[], keywords=[]):
            yield Edit("pop", f"`pop` for `{_text(call)}`", lines, lambda copies: _pop(copies[id(call)]))
        case ast.Call(func=ast.Attribute(attr="pop"), args=[ast.Constant(value=0)], keywords=[]):
            yield Edit("pop", f"the last for `{_text(call)}`", lines, lambda copies: _pop(copies[id(call)]))
        case ast.Call(func=ast.Attribute(attr="append"), args=[_], keywords=[]):
            yield Edit(
                "append", f"at the head: `{_text(call)}`", lines, lambda copies: _insert(copies[id(call)])
            )
        case ast.Call(func=ast.Attribute(attr="clone", value=value), args=[], keywords=[]):
            yield Edit(
                "clone",
                f"no copy in `{_text(call)}`",
                lines,
                lambda copies: place.put(copies, copies[id(value)]),
            )
    for a, b in _pairs(call):
        description = f"swap `{_text(a.node)}` and `{_text(b.node)}` in `{_text(call.func)}(...)`"
        yield Edit("swap", description, lines, _swapping(a, b))


# --- The changes -------------------------------------------------------------------------------------


def _delete(copies: _Copies, body: list[ast.stmt], position: int) -> None:
    copies[id(body)][position] = ast.copy_location(ast.Pass(), body[position])


def _dropping(body: list[ast.stmt], position: int, number: int) -> Callable[[_Copies], None]:
    def change(copies: _Copies) -> None:
        statement = copies[id(body[position])]
        del statement.items[number]
        if not statement.items:
            always = ast.If(test=ast.Constant(value=True), body=statement.body, orelse=[])
            copies[id(body)][position] = ast.copy_location(always, statement)

    return change


def _negate(copies: _Copies, place: _Place) -> None:
    node = copies[id(place.node)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        place.put(copies, node.operand)
    else:
        place.put(copies, ast.UnaryOp(ast.Not(), node))


def _swap_operator(node: ast.BoolOp) -> None:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()


def _pop(call: Any) -> None:
    call.func.attr = "pop"
    call.args = []


def _insert(call: Any) -> None:
    call.func.attr = "insert"
    call.args.insert(0, ast.Constant(0))


def _swapping(a: _Place, b: _Place) -> Callable[[_Copies], None]:
    def change(copies: _Copies) -> None:
        first, second = copies[id(a.node)], copies[id(b.node)]
        a.put(copies, second)
        b.put(copies, first)

    return change


# --- Finding the places ------------------------------------------------------------------------------


def header(statement: ast.stmt) -> tuple[int, int]:
    """Return the first and last line of a statement without the blocks below it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        # What runs where such a statement stands is its first line, or its decorators.
        first = min([statement.lineno, *(d.lineno for d in statement.decorator_list)])
        return first, statement.body[0].lineno - 1
    last = statement.end_lineno or statement.lineno
    below = [block[0].lineno for block in _bodies(statement) if block]
    return statement.lineno, max(statement.lineno, min([last, *(line - 1 for line in below)]))


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a compound statement."""
    parents = [statement, *getattr(statement, "handlers", []), *getattr(statement, "cases", [])]
    found = (getattr(parent, field, None) for parent in parents for field in ("body", "orelse", "finalbody"))
    return [block for block in found if block]


def _own_expressions(statement: ast.stmt) -> Iterator[_Place]:
    """Yield the expressions of a statement itself, not of the blocks below it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _below(statement.args)
        return
    yield from _below(statement)


def _below(parent: ast.AST) -> Iterator[_Place]:
    for field, value in ast.iter_fields(parent):
        if field not in {"annotation", "returns", "decorator_list"}:
            yield from _places(parent, field, value)


def _places(parent: ast.AST, field: str, value: Any) -> Iterator[_Place]:
    many = isinstance(value, list)
    for index, node in enumerate(value if many else [value]):
        if isinstance(node, ast.expr):
            yield _Place(node, parent, field, index if many else None)
            yield from _below(node)
        elif isinstance(node, ast.AST) and not isinstance(node, BLOCKS):
            yield from _below(node)


def _is_condition(place: _Place) -> bool:
    parent, field = place.parent, place.field
    if isinstance(parent, ast.BoolOp):
        return True
    if isinstance(parent, ast.comprehension):
        return field == "ifs"
    return field == "test" and isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert)


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass)


def _pairs(call: ast.Call) -> Iterator[tuple[_Place, _Place]]:
    """Yield the pairs of arguments whose types may agree, by what can be seen without running the code."""
    if isinstance(call.func, ast.Name) and call.func.id in _TYPED:
        return
    arguments = [_Place(node, call, "args", number) for number, node in enumerate(call.args)]
    arguments += [_Place(k.value, k, "value", None) for k in call.keywords if k.arg is not None]
    pairs = (
        itertools.combinations(arguments, 2)
        if len(arguments) <= _MOST_PAIRED
        else (itertools.pairwise(arguments))
    )
    for a, b in pairs:
        if _kind(a.node) == _kind(b.node) != "starred" and ast.dump(a.node) != ast.dump(b.node):
            yield a, b


def _kind(node: ast.expr) -> str:
    """Return what is known of an expression's type."""
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    if isinstance(node, ast.Starred):
        return "starred"
    if isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    ):
        return "bool"
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.IfExp):
        return "unknown"
    return type(node).__name__


def _text(node: ast.AST) -> str:
    """Return a node as code on one line, shortened."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."
