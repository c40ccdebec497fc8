"""Scripts: how each kind of violation is seen with torch and Transformer Engine alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from harness import case as c
from harness.script_modules import variables
from harness.script_results import CPU_STATE, Kept, may_lack_gradients
from harness.script_schedule import first_of_the_last_backwards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.corpus import Seen
    from harness.trace import Quantity
    from harness.violations import OracleName, Violation

_QUEUES: Final = "FP8GlobalStateManager.quantization_state.fp8_tensors_recompute_buffer"
_FLAGS: Final = "activation_recompute_forward._is_first_fp8_module"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What a script looks at.

    ``kept`` is what its run keeps of each iteration; ``returned`` the line that returns something else at the
    end; ``report`` the lines that print what is expected and what is observed, and end with 1 where they
    differ. ``compares`` says that the direct run is needed, ``errors`` that a run may raise. Steps after
    ``iteration`` are left out, if given.
    """

    report: tuple[str, ...]
    kept: Kept = Kept()
    returned: str = ""
    compares: bool = True
    errors: bool = False
    iteration: int | None = None


def choose(case: c.Case, seen: Seen) -> list[Check]:
    """Return the checks for what was seen, the most telling first; none where no script can see any of it.

    A case in which nothing was seen is checked for wrong gradients and outputs.
    """
    if not seen.violations:
        return [_both_raise() if seen.direct_error else _tensors(case, seen, [])]
    checks = []
    for oracles, make in _CHECKS:
        found = [violation for violation in seen.violations if violation.oracle in oracles]
        check = make(case, seen, found) if found else None
        checks += [] if check is None else [check]
    return checks


_RAISES: Final = (
    "run({direct})",
    'print("expected: no error")',
    "try:",
    "    run({checkpointed})",
    "except Exception as error:",
    '    print(f"observed: {{type(error).__name__}}: {{error}}")',
    "    sys.exit(1)",
    'print("observed: no error")',
)
_RAISES_OTHERWISE: Final = (
    "def error_of(*checkpoint):",
    "    FP8GlobalStateManager.reset()  # what the other run left half done",
    "    try:",
    "        run(*checkpoint)",
    "    except Exception as error:",
    '        return f"{{type(error).__name__}} in line {{error.__traceback__.tb_next.tb_lineno}}"',
    '    return "no error"',
    "",
    "",
    "expected, observed = error_of({direct}), error_of({checkpointed})",
    'print(f"expected: {{expected}}")',
    'print(f"observed: {{observed}}")',
    "sys.exit(expected != observed)",
)


def _errors(_case: c.Case, seen: Seen, found: Sequence[Violation]) -> Check | None:
    if any(violation.message.startswith("regions raised") for violation in found):
        # They were to raise, and the run goes on.
        return None
    return Check(report=_RAISES, errors=True) if seen.direct_error is None else _both_raise()


def _both_raise() -> Check:
    return Check(report=_RAISES_OTHERWISE, errors=True)


_DIFFERS: Final = (
    "expected, observed = run({direct}), run({checkpointed})",
    "for (name, a), (_, b) in zip(expected, observed):",
    "    off = (b - a).abs().max() / a.abs().max()",
    '    print(f"{{name}}: expected as in the direct run, observed off by {{off:.2%}} of the largest")',
    "sys.exit(not all(torch.equal(a, b) for (_, a), (_, b) in zip(expected, observed)))",
)
_QUANTITIES: Final[dict[str, Quantity]] = {
    "outputs": "output",
    "input gradients": "input gradient",
    "parameter gradients": "parameter gradient",
}


def _tensors(case: c.Case, _seen: Seen, found: Sequence[Violation]) -> Check:
    # Worse than a wrong gradient is none.
    if any(violation.module and violation.message.startswith("expected ") for violation in found):
        return Check(report=_LACKS, kept=Kept(quantities=frozenset(["parameter gradient"]), lacking="out"))
    quantities = frozenset(_QUANTITIES[violation.oracle] for violation in found)
    if not found:
        quantities = frozenset(_QUANTITIES.values())
        if may_lack_gradients(case):
            quantities -= {"input gradient"}
    since = min((violation.iteration for violation in found), default=0)
    kept = Kept(quantities=quantities, since=since, lacking="zero" if may_lack_gradients(case) else "none")
    return Check(report=_DIFFERS if found else _DIFFERS_OR_NOT, kept=kept)


_DIFFERS_OR_NOT: Final = (
    *_DIFFERS[:-1],
    "same = (torch.allclose(a, b, 0, 0, equal_nan=True) for (_, a), (_, b) in zip(expected, observed))",
    "sys.exit(not all(same))",
)
"""Where nothing was seen, both may be no numbers at all."""

_LACKS: Final = (
    "expected, observed = ([name for name, _ in run(way)] for way in ({direct}, {checkpointed}))",
    'print("expected:", *expected)',
    'print("observed:", *observed)',
    "sys.exit(expected != observed)",
)


def _queues(_case: c.Case, _seen: Seen, found: Sequence[Violation]) -> Check:
    violation = found[0]
    flags_alone = set(violation.queues) == {"first-module flags"}
    counted = (
        [f"left = len({_FLAGS})"]
        if flags_alone
        else [f"queues = {_QUEUES}", "left = sum(len(queue) for queue in queues)"]
    )
    left = (
        "flags left in the list of first modules" if flags_alone else "snapshots left in the recompute queues"
    )
    report = (
        *counted,
        f'print("expected: 0 {left}")',
        f'print(f"observed: {{{{left}}}} {left}")',
        "sys.exit(left > 0)",
    )
    return Check(report=report, compares=False, iteration=violation.iteration)


_SHOWN: Final = (
    "expected, observed = run({direct}), run({checkpointed})",
    'print(f"expected {what}: {{expected{listed}}}")',
    'print(f"observed {what}: {{observed{listed}}}")',
    "sys.exit({differs})",
)


def _shown(what: str, *, tensor: bool) -> tuple[str, ...]:
    listed, differs = (
        (".tolist()", "not torch.equal(expected, observed)") if tensor else ("", "expected != observed")
    )
    return tuple(
        line.replace("{what}", what).replace("{listed}", listed).replace("{differs}", differs)
        for line in _SHOWN
    )


def _state(case: c.Case, _seen: Seen, found: Sequence[Violation]) -> Check | None:
    """Compare one scale, or an amax history where no scale differs."""
    named = [violation for violation in found if violation.module and not violation.noise]
    named.sort(key=lambda violation: not str(violation.module).endswith(".scale"))
    for violation in named:
        returned = _of_state(case, str(violation.module))
        if returned is not None:
            what, expression = returned
            return Check(
                report=_shown(what, tensor=True),
                returned=f"return {expression}",
                iteration=violation.iteration,
            )
    return None


def _of_state(case: c.Case, path: str) -> tuple[str, str] | None:
    """Return what an FP8 state is, in words and as an expression."""
    found = re.fullmatch(r"(.*?)\.?(scaling_fwd|scaling_bwd)\.(scale|amax_history)", path)
    # The path comes from a file that a stranger may have written, and goes into a program.
    if found is None or not re.fullmatch(r"(?!.*__)\w+(\.\w+)*", path, re.ASCII):
        return None
    owner, direction, which = found.groups()
    where = "forward" if direction == "scaling_fwd" else "backward"
    for name, place in zip(variables(case), _paths(case), strict=True):
        if owner == place or owner.startswith(f"{place}.") or not place:
            state = f'{_holder(name, owner.removeprefix(place))}["{direction}"].{which}'
            return f"{where} {which.replace('_', ' ')}", f"{state}.clone()"
    return None


def _holder(name: str, path: str) -> str:
    """Return what holds the FP8 states of a module below the one of this name, or of an operation there."""
    for part in filter(None, path.split(".")):
        if part in ("forward", "backward"):
            return f'{name}._fp8_metas["{part}"]'
        name += f"[{part}]" if part.isdigit() else f".{part}"
    return f"{name}.fp8_meta"


def _paths(case: c.Case) -> list[str]:
    """Return where each module, and then each twin, lies in a run's model (``harness.build``)."""
    shared = any(isinstance(node, c.Reuse | c.Twin) for node in c.walk(case.graph))
    paths: list[str] = []
    twins: list[str] = []

    def walk(node: c.Node, path: tuple[str, ...]) -> None:
        if isinstance(node, c.Module):
            paths.append(".".join((*path, "grouped") if isinstance(node, c.GroupedLinear) else path))
        elif isinstance(node, c.Twin):
            grouped = isinstance(c.modules(case)[node.module], c.GroupedLinear)
            twins.append(".".join((*path, "module", "grouped") if grouped else (*path, "module")))
        for number, child in enumerate(c.children(node)):
            walk(child, (*path, *_step(node, number)))

    def _step(node: c.Node, number: int) -> list[str]:
        if isinstance(node, c.Chain):
            return [str(number)]
        if isinstance(node, c.Sum):
            return ["branches", str(number)]
        if not isinstance(node, c.Region):
            return ["body"]
        wrapped = (node.gain is not None) + (node.given != "once") + (node.results == "tuple")
        alone = isinstance(node.body, c.Module) and shared
        return ["body"] * (1 + wrapped) + ["0"] * alone

    walk(case.graph, ())
    return paths + twins


_STATES: Final[dict[str, tuple[str, str, bool]]] = {
    "modes of the modules (t: train, e: eval)": (
        "modes", "[module.training for module in {model}.modules()]", False,
    ),
    "FP8 enabled": ("FP8 enabled", "FP8GlobalStateManager.is_fp8_enabled()", False),
    "autocast depth": (
        "depth of autocasts", "FP8GlobalStateManager.quantization_state.autocast_depth", False,
    ),
    "grad enabled": ("gradients enabled", "torch.is_grad_enabled()", False),
    "torch autocast": ("torch autocast", 'torch.is_autocast_enabled("cuda")', False),
}  # fmt: skip


def _global(case: c.Case, _seen: Seen, found: Sequence[Violation]) -> Check | None:
    """Compare a switch, or the state of a random number generator."""
    for violation in found:
        generator = re.search(r"random number generator (\d+)", violation.message)
        if generator is not None:
            if generator[1] not in _GENERATORS and not case.rng_tracker:
                continue
            return _random(case, _GENERATORS.get(generator[1], _TRACKED))
        name, _, _ = violation.message.partition(" is ")
        if name in _STATES:
            what, expression, tensor = _STATES[name]
            return Check(
                report=_shown(what, tensor=tensor),
                returned=f"return {expression}",
                iteration=violation.iteration,
            )
    return None


_GENERATORS: Final = {"0": CPU_STATE, "1": "torch.cuda.get_rng_state()"}
_TRACKED: Final = 'tracker.get_states()["model-parallel-rng"].get_state()'


def _random(case: c.Case, state: str) -> Check:
    # A direct backward draws no random numbers: where only backwards are left, no direct run need tell more.
    if first_of_the_last_backwards(case.schedule) is None:
        return Check(report=_RANDOM, returned=f"return {state}")
    several = sum(isinstance(step, c.Backward) for step in case.schedule) > 1
    report = (
        f"same = torch.equal({state}, before)",
        f'print("expected: the random state from before the backward{"s" * several}")',
        *_RANDOM[2:],
    )
    return Check(report=report, kept=Kept(random=state), compares=False)


_RANDOM: Final = (
    "same = torch.equal(run({direct}), run({checkpointed}))",
    'print("expected: the random state that the direct run ends with")',
    """print("observed:", "that state" if same else "another")""",
    "sys.exit(not same)",
)

_CHECKS: Final[tuple[tuple[tuple[OracleName, ...], Callable[..., Check | None]], ...]] = (
    (("same errors",), _errors),
    (("outputs", "input gradients", "parameter gradients"), _tensors),
    (("FIFO drained",), _queues),
    (("FP8 state",), _state),
    (("global state",), _global),
)
"""Which oracle leads to which check, the most telling first. What the others see, such as the order of
snapshots, shows in nothing that torch and Transformer Engine alone could print."""
