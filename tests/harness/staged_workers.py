"""Workers of a sensitivity campaign that try nothing and do what their mutant's name says."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection

from harness.messages import Broken
from harness.trial import Sole, Trial
from harness.trial_messages import At, Done, Exhaust, Ready, Survey, Surveyed, Try

ALL_LINES = "pytorch/distributed.py"


def work(connection: Connection) -> None:
    """Kill every mutant at once; fail as a mutant makes a process fail where its function is named so."""
    connection.send(Ready({"transformer_engine": "staged"}))
    tried = 0
    while (task := connection.recv()) is not None:
        match task:
            case Survey():
                lines = dict.fromkeys(range(5000), frozenset(task.numbers))
                connection.send(Surveyed({ALL_LINES: lines}, {}))
            case Try():
                connection.send(At(task.numbers[0]))
                _misbehave(task.mutant, connection, tried)
                trial = Trial(mutant=task.mutant, outcome="killed", by=("outputs",), case=1)
                tried += 1
                connection.send(Done(trial, tainted="__exit__" in task.mutant))
            case Exhaust():
                connection.send(Done(Sole(task.mutant, {"outputs": 3}), tainted=False))


class Deaf:
    """An employer who takes no note of anything."""

    def hear(self, worker: Connection, message: object) -> None:
        """Take no note."""

    def bury(self, worker: Connection, exit_code: int | None) -> None:
        """Take no note."""


def _misbehave(mutant: str, connection: Connection, tried: int) -> None:
    if "__enter__" in mutant:
        os._exit(17)
    if "get_activation" in mutant:
        os.kill(os.getpid(), signal.SIGKILL)
    if "use_reentrant" in mutant:
        time.sleep(60)
    if "__exit__" in mutant and tried:
        # Seen in a process that has tried another mutant before: what a fresh one sees is another thing.
        connection.send(Done(Trial(mutant=mutant, outcome="survived"), tainted=True))
        connection.recv()
    if "has_te_modules" in mutant:
        connection.send(Broken("planted", 3))
        connection.recv()
