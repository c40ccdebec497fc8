"""Which cases make sense, and the only way in which bytes from a stranger become a case."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from harness import case as c
from harness.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NODES: Final = 64
MAX_DEPTH: Final = 32
MAX_STEPS: Final = 64
MAX_HISTORY: Final = 1024
MAX_MARGIN: Final = 8
MAX_SEED: Final = 2**32 - 1
SMALLEST_MAGNITUDE: Final = 1e-30
LARGEST_MAGNITUDE: Final = 1e30
ROWS_OF_TWO_GROUPS: Final[Literal[32]] = 32
"""FP8 matrix products want 16 rows, and so does each group."""

_LONGEST_MESSAGE: Final = 300

_Parsed = TypeVar("_Parsed")


class _Header(msgspec.Struct):
    """The one field that every past and future layout of a case has; the others are skipped."""

    schema: int


def decode(data: bytes) -> c.Case:
    """Return the case that these bytes hold, or raise ``InvalidInput`` with one line that says what is wrong.

    Nothing about the bytes is trusted: their size is bounded before they are parsed, and msgspec builds
    the structs of ``harness.case`` and nothing else.
    """
    if len(data) > c.MAX_BYTES:
        raise _invalid(f"a case has at most {c.MAX_BYTES} bytes, got {len(data)}")
    # The number comes first, so that a case of another release is named as such and not as a misspelling.
    schema = _parse(data, _Header).schema
    if schema != c.SCHEMA:
        raise _invalid(f"$.schema: this release knows case schema {c.SCHEMA}, got {schema}")
    case = _parse(data, c.Case)
    check(case)
    return case


def check(case: c.Case) -> None:
    """Raise ``InvalidInput``, in one line, for a case that makes no sense.

    Whether Transformer Engine ought to get a case right is another question: see ``strategies.contract``.
    """
    # The size first: every later step may then walk the graph recursively.
    _check_size(case)
    for place, node in enumerate(c.walk(case.graph)):
        _check_node(node, f"node {place} of the graph ({type(node).__name__})", case.rows)
    _check_numbers(case)
    _check_reuse(case.graph)
    _check_recipe(case)
    _check_schedule(case)
    _check_autocasts(case.schedule)


def _parse(data: bytes, layout: type[_Parsed]) -> _Parsed:
    """Decode JSON, and turn each way in which that fails into the one error that callers know."""
    try:
        return msgspec.json.decode(data, type=layout)
    except RecursionError:
        reason = f"nested too deeply (a graph has at most {MAX_DEPTH} levels)"
    except msgspec.ValidationError as error:
        reason = str(error)
    except (msgspec.DecodeError, UnicodeError) as error:
        reason = f"not JSON: {error}"
    raise _invalid(reason)


def _invalid(reason: str) -> InvalidInput:
    """Return the error, of one printable line: a reason may quote names that a stranger chose."""
    line = "".join(letter if letter.isprintable() else "?" for letter in reason)
    if len(line) > _LONGEST_MESSAGE:
        line = line[: _LONGEST_MESSAGE - 3] + "..."
    return InvalidInput(f"not a usable case: {line}")


def _check_size(case: c.Case) -> None:
    """Bound nodes, depth and steps, without recursion, since the depth is not known to be harmless yet."""
    nodes, waiting = 0, [(case.graph, 1)]
    while waiting:
        node, depth = waiting.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise _invalid(f"the graph has at most {MAX_DEPTH} levels")
        waiting.extend((child, depth + 1) for child in c.children(node))
        if nodes + len(waiting) > MAX_NODES:
            raise _invalid(f"the graph has at most {MAX_NODES} nodes")
    if len(case.schedule) > MAX_STEPS:
        raise _invalid(f"the schedule has at most {MAX_STEPS} steps, got {len(case.schedule)}")
    if not c.modules(case):
        raise _invalid("the graph has no module")


def _check_node(node: c.Node, where: str, rows: int) -> None:
    if isinstance(node, c.Sum) and not node.branches:
        raise _invalid(f"{where}: a sum needs at least one branch")
    if isinstance(node, c.Region):
        if node.gain is not None:
            _check_gain(node.gain, where)
        if node.checkpointer == "wrapper" and node.function != "module":
            raise _invalid(f"{where}: checkpoint_wrapper takes a module, not a {node.function}")
        if node.checkpointer == "torch" and node.contexts is not None and node.use_reentrant:
            raise _invalid(f"{where}: PyTorch's reentrant checkpoint takes no context_fn")
    if isinstance(node, c.GroupedLinear) and node.groups > 1 and rows != ROWS_OF_TWO_GROUPS:
        raise _invalid(f"{where}: {node.groups} groups need rows to be {ROWS_OF_TWO_GROUPS}, got {rows}")
    dropout = dropout_of(node)
    if not 0 <= dropout < 1:
        raise _invalid(f"{where}: a dropout probability is at least 0 and less than 1, got {dropout}")


def dropout_of(node: c.Node) -> float:
    """Return the dropout probability of a module: where it is not zero, the mode decides the output."""
    if isinstance(node, c.TorchDropout):
        return node.p
    if isinstance(node, c.MultiheadAttention | c.TransformerLayer):
        return node.dropout
    return 0.0


def pending_at_most(case: c.Case) -> int:
    """Return how many forwards wait for their backwards at once, at most."""
    return max(pending_after(case.schedule), default=0)


def pending_after(schedule: Sequence[c.Step]) -> list[int]:
    """Return how many forwards wait for their backwards after each step."""
    return list(itertools.accumulate(_change(step) for step in schedule))


def _change(step: c.Step) -> int:
    """Return how many forwards more are pending after a step."""
    if isinstance(step, c.Forward):
        return int(step.fails is None)
    if isinstance(step, c.Backward):
        return 0 if step.retain else -step.losses
    return -int(isinstance(step, c.Abandon))


def _check_reuse(graph: c.Node) -> None:
    """Check that what is used once more, or copied, comes earlier, and is copied once."""
    earlier = 0
    copied: set[int] = set()
    for place, node in enumerate(c.walk(graph)):
        where = f"node {place} of the graph ({type(node).__name__})"
        if isinstance(node, c.Module):
            earlier += 1
        elif isinstance(node, c.Reuse | c.Twin) and not 0 <= node.module < earlier:
            raise _invalid(f"{where}: there is no module {node.module} before it, but {earlier} of them")
        elif isinstance(node, c.Twin):
            if node.module in copied:
                raise _invalid(f"{where}: module {node.module} has a twin before it")
            copied.add(node.module)


def _check_gain(gain: c.Gain, where: str) -> None:
    if not math.isfinite(gain.value) or gain.value == 0:
        raise _invalid(f"{where}: a gain is finite and not zero, got {gain.value}")


def _check_numbers(case: c.Case) -> None:
    if case.schema != c.SCHEMA:
        raise _invalid(f"$.schema: this release knows case schema {c.SCHEMA}, got {case.schema}")
    if not 0 <= case.seed <= MAX_SEED:
        raise _invalid(f"$.seed: a seed is between 0 and {MAX_SEED}, got {case.seed}")


def _check_recipe(case: c.Case) -> None:
    recipe = case.recipe
    if case.quantized_parameters and isinstance(recipe, c.HighPrecision):
        raise _invalid(
            "$.quantized_parameters: parameters are quantized by an FP8 recipe, not by HighPrecision"
        )
    _check_scaling(recipe, "$.recipe")
    for place, node in enumerate(c.walk(case.graph)):
        if isinstance(node, c.Autocast) and node.recipe is not None:
            _check_scaling(node.recipe, f"node {place} of the graph (Autocast): recipe")


def _check_scaling(recipe: c.Recipe, where: str) -> None:
    if not isinstance(recipe, c.DelayedScaling):
        return
    if not 1 <= recipe.history <= MAX_HISTORY:
        raise _invalid(f"{where}.history: between 1 and {MAX_HISTORY}, got {recipe.history}")
    if abs(recipe.margin) > MAX_MARGIN:
        raise _invalid(f"{where}.margin: between {-MAX_MARGIN} and {MAX_MARGIN}, got {recipe.margin}")


def _check_schedule(case: c.Case) -> None:
    """Check each step, and that each forward has its backward or is abandoned."""
    pending: list[int] = []
    for place, step in enumerate(case.schedule):
        where = f"$.schedule[{place}]"
        _check_step(case, step, where)
        if isinstance(step, c.Forward) and step.fails is None:
            pending.append(place)
        elif isinstance(step, c.Backward | c.Abandon):
            _take(pending, step, where)
        elif pending and _replaces_parameters(step):
            raise _invalid(f"{where}: a forward is pending, whose parameters must stay as they are")
    if pending:
        raise _invalid(f"$.schedule[{pending[0]}]: no backward follows this forward")
    if not any(isinstance(step, c.Forward | c.Evaluate) for step in case.schedule):
        raise _invalid("$.schedule: neither a forward nor an evaluation, so nothing would run")


def _replaces_parameters(step: c.Step) -> bool:
    return isinstance(step, c.DeepCopy) or (isinstance(step, c.LoadState) and not step.extra)


def _check_autocasts(schedule: tuple[c.Step, ...]) -> None:
    opened: list[int] = []
    for place, step in enumerate(schedule):
        if isinstance(step, c.OpenAutocast):
            opened.append(place)
        elif isinstance(step, c.CloseAutocast):
            if not opened:
                raise _invalid(f"$.schedule[{place}]: no autocast is open")
            opened.pop()
    if opened:
        raise _invalid(f"$.schedule[{opened[0]}]: this autocast is not closed")


def _take(pending: list[int], step: c.Backward | c.Abandon, where: str) -> None:
    """Take from the pending forwards those that a step is for."""
    if not pending:
        what = "a backward" if isinstance(step, c.Backward) else "an abandonment"
        raise _invalid(f"{where}: {what} without a forward before it")
    losses = step.losses if isinstance(step, c.Backward) else 1
    if losses < 1:
        raise _invalid(f"{where}: a backward has at least one loss, got {losses}")
    if not 0 <= step.which <= len(pending) - losses:
        last = step.which + losses - 1
        raise _invalid(f"{where}: there is no pending forward {last}, but {len(pending)} of them")
    if isinstance(step, c.Abandon) or not step.retain:
        del pending[step.which : step.which + losses]


def _check_step(case: c.Case, step: c.Step, where: str) -> None:
    count = len(c.modules(case))
    if isinstance(step, c.SetMode) and not 0 <= step.module < count:
        raise _invalid(f"{where}: there is no module {step.module}, the graph has {count}")
    if isinstance(step, c.SetRecipe):
        _check_scaling(step.recipe, f"{where}.recipe")
    if isinstance(step, c.Forward | c.Backward) and step.fails is not None:
        count = len(c.regions(case))
        if not 0 <= step.fails < count:
            raise _invalid(f"{where}: there is no region {step.fails}, the graph has {count}")
    if isinstance(step, c.Forward | c.Backward | c.Evaluate):
        size = step.magnitude
        # A not-a-number fails both comparisons, and infinities the second.
        if not (size == 0 or SMALLEST_MAGNITUDE <= size <= LARGEST_MAGNITUDE):
            raise _invalid(
                f"{where}: a magnitude is 0, or between {SMALLEST_MAGNITUDE} and {LARGEST_MAGNITUDE},"
                f" got {size}"
            )
