"""What can go wrong that is not a finding about Transformer Engine, and the exit code of each."""

from __future__ import annotations

from typing import ClassVar


class HarnessError(Exception):
    """Base of every error that the harness raises on its own account.

    The message is one line: what is wrong and what to do. ``exit_code`` is the status of a command
    that ends with it; 0 and 1 are kept for "held" and "violations".
    """

    exit_code: ClassVar[int] = 3


class HarnessFault(HarnessError):
    """The harness itself is wrong: never to be counted as a fault of Transformer Engine."""

    exit_code = 3


class InvalidInput(HarnessError):
    """A case file, an option or a name that a person gave is not usable."""

    exit_code = 2


class CannotRunHere(HarnessError):
    """The machine lacks what was asked for: no FP8 GPU, no Transformer Engine, a release too old."""

    exit_code = 125


class ReleaseLacks(CannotRunHere):
    """The installed Transformer Engine lacks something that a case uses: ``what``, in a few words."""

    def __init__(self, release: str, what: str) -> None:
        super().__init__(f"Transformer Engine {release} lacks {what}: use a newer release.")
        self.what = what


class DeviceLost(BaseException):
    """A case has broken the device's context: from here on this process gets no right answer from it.

    Not an Exception: nothing between a case and the end of its process may take it for an error to go on
    from. ``how``: what the device said, the same each time.
    """

    def __init__(self, how: str) -> None:
        super().__init__(f"{how}: this process's context is lost, and nothing that it computes counts.")
        self.how = how
