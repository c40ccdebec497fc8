"""Operators plant every small fault that they promise, on a copy, and say in which lines."""

from __future__ import annotations

import ast
import textwrap

import pytest

from harness.operators import Edit, Extent, Function, edits

_NEVER_AT_LAST = "try: a() finally: pass"


def function(code: str) -> Function:
    found = ast.parse(textwrap.dedent(code)).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


def body(tree: Function) -> str:
    return "; ".join(" ".join(ast.unparse(statement).split()) for statement in tree.body)


def changes(operator: str, statement: str) -> list[str]:
    """What an operator makes of a function with this body."""
    tree = function("def f():\n" + textwrap.indent(statement, "    "))
    return [body(edit.applied_to(tree)) for edit in edits(tree) if edit.operator == operator]


@pytest.mark.parametrize(
    ("operator", "statement", "expected"),
    [
        ("delete", "a = 1\nreturn a", ["pass; return a", "a = 1; pass"]),
        ("delete", "if a:\n    b()", ["pass", "if a: pass"]),
        ("delete", "try:\n    a()\nfinally:\n    b()", ["pass", "try: pass finally: b()", _NEVER_AT_LAST]),
        ("delete", '"""What it does."""\npass', []),
        ("negate", "assert a and b", ["assert not (a and b)", "assert not a and b", "assert a and (not b)"]),
        ("negate", "if a:\n    b()", ["if not a: b()"]),
        ("negate", "if not a:\n    b()", ["if a: b()"]),
        ("negate", "while a:\n    b()", ["while not a: b()"]),
        ("negate", "assert a", ["assert not a"]),
        ("negate", "return b if a else c", ["return b if not a else c"]),
        ("negate", "return [b for b in c if a]", ["return [b for b in c if not a]"]),
        ("andor", "return a and b", ["return a or b"]),
        ("andor", "return a or b", ["return a and b"]),
        ("flip", "f(x=True)\na = False", ["f(x=False); a = False", "f(x=True); a = True"]),
        ("flip", "a = 1", []),
        ("pop", "return q.popleft()", ["return q.pop()"]),
        ("pop", "return q.pop(0)", ["return q.pop()"]),
        ("pop", "return q.pop(1)", []),
        ("append", "q.append(a)", ["q.insert(0, a)"]),
        ("clone", "return a.b.clone()", ["return a.b"]),
        ("with", "with a, b as c:\n    d()", ["with b as c: d()", "with a: d()"]),
        ("with", "with a:\n    d()", ["if True: d()"]),
        ("swap", "f(a, b)", ["f(b, a)"]),
        ("swap", "f(a, b, c)", ["f(b, a, c)", "f(c, b, a)", "f(a, c, b)"]),
        ("swap", "f(a, b, c, 1, 2)", ["f(b, a, c, 1, 2)", "f(a, c, b, 1, 2)", "f(a, b, c, 2, 1)"]),
        ("swap", "f(x=a, y=b)", ["f(x=b, y=a)"]),
        ("swap", "f(a, x=b)", ["f(b, x=a)"]),
        ("swap", "f(a, 1)", []),
        ("swap", "f(a, a)", []),
        ("swap", "f(*a, **b)", []),
        ("swap", "f(1, 'x')", []),
        ("swap", "isinstance(a, b)", []),
    ],
)  # fmt: skip
def test_an_operator_makes_these_of_a_statement(operator: str, statement: str, expected: list[str]) -> None:
    assert changes(operator, statement) == expected


def test_nested_functions_and_lambdas_are_part_of_the_function() -> None:
    tree = function("def f():\n    def g():\n        q.append(a and b)\n    return lambda: c or d")
    assert [edit.operator for edit in edits(tree) if edit.operator in ("append", "andor")] == [
        "append", "andor", "andor",
    ]  # fmt: skip


def test_a_parameters_default_is_flipped_in_all_lines_of_its_function() -> None:
    tree = function("def f(forward=True):\n    a()\n    b()")
    flips = [edit for edit in edits(tree) if edit.operator == "flip"]
    assert [ast.unparse(edit.applied_to(tree).args) for edit in flips] == ["forward=False"]
    assert flips[0].lines == (1, 3)


def lines(code: str) -> dict[str, tuple[int, int]]:
    tree = function(code)
    return {edit.description: edit.lines for edit in edits(tree) if edit.operator == "delete"}


def test_an_edit_lies_in_the_lines_of_its_own_statement() -> None:
    code = """\
    def f():
        global x
        if (
            a
            and b
        ):
            c()
        else:
            d()
    """
    found = lines(code)
    assert found["delete `c()`"] == (7, 7)
    assert found["delete `d()`"] == (9, 9)
    assert found["delete `if a and b: c() else: d()`"] == (3, 6)
    assert found["delete `global x`"] == (1, 9), "a declaration runs nowhere and matters everywhere"


def test_the_original_stays_as_it_is() -> None:
    tree = function("def f(a=True):\n    with b, c:\n        q.append(x.clone())\n    return d and e(f, g)")
    before = ast.dump(tree)
    made = [ast.dump(edit.applied_to(tree)) for edit in edits(tree)]
    assert ast.dump(tree) == before
    assert before not in made
    assert len(set(made)) == len(made)


def test_statements_can_be_chosen_with_or_without_what_is_below() -> None:
    tree = function("def f():\n    if own:\n        a()\n    if all:\n        b()\n    c()")

    def wanted(statement: ast.stmt) -> Extent:
        name = ast.unparse(statement.test) if isinstance(statement, ast.If) else ""
        extents: dict[str, Extent] = {"own": "own", "all": "all"}
        return extents.get(name, "none")

    chosen: list[Edit] = [edit for edit in edits(tree, wanted) if edit.operator == "delete"]
    assert [edit.lines for edit in chosen] == [(2, 2), (4, 4), (5, 5)]
