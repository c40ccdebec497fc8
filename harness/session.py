"""One process's set-up: a backend, TE as wanted, the checkpointer under test; it judges cases."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING

import msgspec
import transformer_engine.pytorch as te

from harness import mutants, oracles, probe
from harness.caller import Checkpointer
from harness.case import Case
from harness.correction import Correction, missing_parts
from harness.errors import InvalidInput, ReleaseLacks
from harness.execute import run_checkpointed, run_direct
from harness.inputs import Inputs
from harness.mutation import Planted
from harness.support import Support
from harness.te_mode import CORRECTED, INSTALLED, mutant_of
from harness.trace import Closeup, Trace
from harness.verdict import Verdict
from harness.violations import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from harness.backends import Backend


class Session:
    """Judges cases. Make one per process, after the backend is active.

    Args:
        backend: the active backend.
        te_mode: ``corrected`` applies what the installed TE lacks of the fix; ``installed`` takes it as is;
            ``mutant:ID`` is ``corrected`` with that fault planted.
        checkpointer: the function under test, or ``module:function``, which is imported once TE is as wanted:
            a module may hold ``te.checkpoint`` under a name of its own. None for the installed one.
    """

    def __init__(
        self, backend: Backend, te_mode: str = CORRECTED, checkpointer: Checkpointer | str | None = None
    ) -> None:
        self.backend = backend
        self.te_mode = te_mode
        # Whoever must know which case ended this process has each noted while it is judged.
        self.noted: Callable[[Case], AbstractContextManager[None]] = _not_noted
        self.probe = probe.detect()
        self._support = Support(backend.device, self.probe)
        mutant = mutant_of(te_mode)
        self._planted = None if mutant is None else Planted(mutants.find(mutant))
        # Planted in TE, a mutant must not be taken for a part that TE lacks, and be mended.
        if self._planted is not None and self._planted.mutant.in_correction:
            self._planted.plant()
        self.lacking = missing_parts(self.probe, backend.device)
        self.correction = Correction(frozenset() if te_mode == INSTALLED else self.lacking)
        self.correction.apply()
        if self._planted is not None and not self._planted.mutant.in_correction:
            self._planted.plant()
        self._checkpointer = (
            load_checkpointer(checkpointer) if isinstance(checkpointer, str) else checkpointer
        )

    def close(self) -> None:
        """Give TE back as it was: without the correction, and without the mutant."""
        self.correction.remove()
        if self._planted is not None:
            self._planted.remove()

    def try_support(self, cases: Iterable[Case]) -> None:
        """Find out what the installed TE lacks of what these cases use, before any of them is judged."""
        for case in cases:
            with contextlib.suppress(ReleaseLacks):
                self._support.check(case)

    def judge(self, case: Case, direct: Trace | None = None) -> Verdict:
        """Run a case directly and checkpointed, and return what the oracles say.

        ``direct`` is the trace of a direct run, where there is one already that another would only repeat.

        Raises:
            ReleaseLacks: the installed TE lacks something that the case uses.
            DeviceLost: the case has broken the device for this process.
        """
        with self.noted(case), self._sound_device():
            self._support.check(case)
            inputs = Inputs(case, self.backend.device)
            if direct is None:
                direct = run_direct(case, inputs, self.backend, self.probe)
            return self._compared(case, inputs, direct, self._run_checkpointed(case, inputs))

    def examine(self, case: Case, closeup: Closeup) -> tuple[Verdict, Trace]:
        """Judge a case, and return the trace of the checkpointed run too, with the close-up.

        Raises:
            ReleaseLacks: the installed TE lacks something that the case uses.
        """
        with self._sound_device():
            self._support.check(case)
            inputs = Inputs(case, self.backend.device)
            direct = run_direct(case, inputs, self.backend, self.probe)
            checkpointed = self._run_checkpointed(case, inputs, closeup)
            return self._compared(case, inputs, direct, checkpointed), checkpointed

    @contextlib.contextmanager
    def _sound_device(self) -> Iterator[None]:
        """Raise DeviceLost, whatever else was raised or returned, where a case has broken the device.

        A GPU tells of it late, and in the wrong place: before anybody believes a verdict it is waited for.
        """
        try:
            yield
        finally:
            self.backend.check_device()

    def _compared(self, case: Case, inputs: Inputs, direct: Trace, checkpointed: Trace) -> Verdict:
        """Return what the oracles say of two traces, once what they object to has been seen twice."""
        violations = oracles.judge(case, direct, checkpointed)
        if violations:
            violations = self._doubted(case, inputs, direct, violations)
        return Verdict(
            fingerprint=case.fingerprint,
            violations=tuple(violations),
            evaluated=oracles.grounded(direct, checkpointed),
            direct_error=direct.error,
            checkpointed_error=checkpointed.error,
            queues=tuple(standstill.queues for standstill in checkpointed.standstills),
            events=tuple(checkpointed.events),
        )

    def run_directly(self, case: Case) -> Trace:
        """Return the trace of a direct run."""
        return run_direct(case, Inputs(case, self.backend.device), self.backend, self.probe)

    def run_both(self, case: Case, inputs: Inputs | None = None) -> tuple[Trace, Trace]:
        """Return the traces of the direct and of the checkpointed run."""
        inputs = inputs or Inputs(case, self.backend.device)
        return run_direct(case, inputs, self.backend, self.probe), self._run_checkpointed(case, inputs)

    def _run_checkpointed(self, case: Case, inputs: Inputs, closeup: Closeup | None = None) -> Trace:
        # te.checkpoint is looked up at each run: the correction, or a user, may have replaced it.
        checkpointer = te.checkpoint if self._checkpointer is None else self._checkpointer
        return run_checkpointed(case, inputs, self.backend, self.probe, checkpointer, closeup)

    def _doubted(
        self, case: Case, inputs: Inputs, direct: Trace, violations: list[Violation]
    ) -> list[Violation]:
        """Run again what a violation rests on before it is believed.

        Where the direct run differs from itself too, the violation says so. Memory is counted for the
        process, in which an earlier case may be freed late: a leak must show in a second pair of runs.
        """
        grows = any(violation.oracle == "steady memory" for violation in violations)
        if grows and not list(oracles.steady_memory(case, *self.run_both(case, inputs))):
            violations = [v for v in violations if v.oracle != "steady memory"]
        if not any(violation.difference for violation in violations):
            return violations
        again = run_direct(case, inputs, self.backend, self.probe)
        # Of two direct runs only the tensors can be compared: neither recomputes.
        floor = {
            (v.oracle, v.iteration, v.module) for v in oracles.judge(case, direct, again) if v.difference
        }
        return [
            msgspec.structs.replace(v, noise=True)
            if v.difference and (v.oracle, v.iteration, v.module) in floor
            else v
            for v in violations
        ]


def _not_noted(_case: Case) -> AbstractContextManager[None]:
    return contextlib.nullcontext()


def load_checkpointer(name: str) -> Checkpointer:
    """Import a checkpointer named ``module:function``.

    Raises:
        InvalidInput: the module cannot be imported, for whatever reason, or has no such function.
    """
    module, _, function = name.partition(":")
    try:
        found: Checkpointer = getattr(importlib.import_module(module), function)
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidInput(f"--checkpointer {name}: {told}; give an importable module:function.") from error
    if not callable(found):
        raise InvalidInput(f"--checkpointer {name}: this is not a function.")
    return found
