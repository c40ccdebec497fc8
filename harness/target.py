"""What is tested and where: backend, TE as wanted, checkpointer; as data, until it is opened."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.errors import InvalidInput
from harness.te_mode import CORRECTED, mutant_of

if TYPE_CHECKING:
    from harness.session import Session


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What the options ``--backend``, ``--te``, ``--checkpointer`` and ``--release`` say."""

    backend: str = "auto"
    te_mode: str = CORRECTED
    checkpointer: str | None = None
    release: str | None = None
    """The release asked for, which this process runs under then; None for the one that is installed."""

    def check(self) -> str:
        """Return the name of the backend that this comes to, or raise what stands in its way.

        Starts nothing, so that a process that only supervises others stays light.
        """
        from harness import backends, mutants

        mutant = mutant_of(self.te_mode)
        if mutant is not None:
            mutants.find(mutant)
        if self.checkpointer is not None:
            module, colon, function = self.checkpointer.partition(":")
            if not (module and colon and function):
                raise InvalidInput(f"--checkpointer takes module:function, not {self.checkpointer!r}.")
        return backends.choose(self.backend)[0]

    def open(self) -> Session:
        """Make the backend active in this process, and return a session on it."""
        from harness import backends

        backend = backends.activate(self.backend)
        from harness.session import Session

        # A checkpointer is often a file beside the user; a console script does not look there by itself.
        here = str(Path.cwd())
        if self.checkpointer is not None and here not in sys.path:
            sys.path.append(here)
        return Session(backend, self.te_mode, self.checkpointer)

    def where(self, session: Session) -> dict[str, str]:
        """Return what a saved case or a record says about where it was made."""
        return {
            **session.backend.describe(),
            "te_mode": self.te_mode,
            "checkpointer": self.checkpointer or "te.checkpoint",
        }

    def replay_command(self, path: Path) -> str:
        """Return the command that replays a saved case on this target."""
        words = [*_program(), "replay", str(path)]
        if self.te_mode != CORRECTED:
            words += ["--te", self.te_mode]
        if self.release is not None:
            words += ["--release", self.release]
        elif self.backend != "auto":
            words += ["--backend", self.backend]
        if self.checkpointer is not None:
            words += ["--checkpointer", self.checkpointer]
        return shlex.join(words)


def _program() -> list[str]:
    """Return how to start this program from where the user stands.

    tox puts its own ``bin`` on the path of what it runs, but not on the user's: so a bare name only
    does where the script lies outside the current folder.
    """
    script = Path(sys.argv[0]).absolute()
    if script.name == "te-harness":
        if script.is_relative_to(Path.cwd()):
            return [str(script.relative_to(Path.cwd()))]
        return ["te-harness"] if shutil.which("te-harness") == str(script) else [str(script)]
    return [sys.executable, "-m", "harness"]
