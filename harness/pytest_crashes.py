"""What a case does to a process of pytest, or to a worker of pytest-xdist: it is named, saved, and left out.

Where a worker ends, pytest-xdist replaces it; the controller reads in its logbook which case it was, and has
the same test run again without it, so that no other case of the test is lost.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness import logbook
from harness.errors import DeviceLost
from harness.logbook import Logbook
from harness.pytest_events import RECORDER
from harness.pytest_options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Generator

    from harness.corpus import SavedCase
    from harness.pytest_options import Options

_MAIN = "main"
_TICK_SECONDS = 0.5
_LOST = 3
"""Exit code of a worker that has lost its device; its logbook tells why it ended."""

LOGBOOK = pytest.StashKey[Logbook]()


def pytest_configure(config: pytest.Config) -> None:
    """Open this process's logbook; where it is nobody's worker, watch over those that are."""
    worker: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[LOGBOOK] = Logbook(Path(worker["te_harness_folder"]), worker["workerid"])
        return
    warden = Warden(config)
    config.stash[LOGBOOK] = Logbook(warden.folder, _MAIN)
    config.pluginmanager.register(warden, "te-harness-warden")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """End this process where a fixture's case has broken the device."""
    return (yield from _ending_with_the_device(item.config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """End this process where a case has broken the device: nothing that ran after it would count."""
    return (yield from _ending_with_the_device(item.config))


def _ending_with_the_device(config: pytest.Config) -> Generator[None, object, object]:
    try:
        return (yield)
    except DeviceLost as lost:
        warden: Warden | None = config.pluginmanager.get_plugin("te-harness-warden")
        if warden is None:
            config.stash[LOGBOOK].end(lost.how)
            os._exit(_LOST)
        told = warden.keep(_MAIN, lost.how)
        pytest.exit(f"{lost} With -n, a worker is replaced and the run goes on.\n{told}", returncode=1)


class Warden:
    """Watches over the processes of a run, from the one that starts and outlives them."""

    def __init__(self, config: pytest.Config) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="te-harness-"))
        self._config = config
        self._crashed: dict[str, SavedCase] = {}
        self._told: list[str] = []
        self._over = threading.Event()

    @property
    def _options(self) -> Options:
        return self._config.stash[OPTIONS]

    # --- Workers ---

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where its logbook goes."""
        node.workerinput["te_harness_folder"] = str(self.folder)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """Say which case a worker ended with, and have what it was drawn for go on without it."""
        name = report.node.gateway.id
        saved = logbook.last_case(self.folder, name, _ending(report.node))
        if saved is None:
            return
        logbook.close(self.folder, name)
        self._crashed[saved.case.fingerprint] = saved
        report.longrepr = f"{report.longrepr}\n{self._saved(saved)}"
        new = logbook.leave_out(self.folder, saved.case.fingerprint)
        if new and saved.found is not None:
            sched.mark_test_pending(crashitem)

    def keep(self, name: str, how: str) -> str:
        """Save the case with which a process has ended, and return all that a person needs of it."""
        saved = logbook.last_case(self.folder, name, how)
        if saved is None:
            return "no case was being judged."
        self._crashed[saved.case.fingerprint] = saved
        return self._saved(saved)

    def _saved(self, saved: SavedCase) -> str:
        from harness import corpus
        from harness.report import failure_text

        path = corpus.save(corpus.place(self._options.corpus, saved), saved)
        domain = "" if saved.found is None else saved.found.domain
        self._config.stash[RECORDER].failed(domain, saved.why, saved, path)
        return f"{saved.why}\n{failure_text(saved, path, self._options.target.replay_command(path))}"

    # --- Hanging ---

    def pytest_sessionstart(self) -> None:
        """Begin to look for what hangs."""
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        from harness.outside import overdue
        from harness.watchdog import Watchdog

        watchdog = Watchdog[str](self._options.case_timeout)
        how = overdue(self._options.case_timeout)
        while not self._over.wait(_TICK_SECONDS):
            for name, flight in watchdog.look(logbook.flights(self.folder)):
                if name == _MAIN:
                    self._give_up(how)
                logbook.kill(self.folder, name, flight, how)

    def _give_up(self, how: str) -> None:
        """End this very process, whose only thread for tests hangs; others could go on."""
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture(in_=True)
        sys.stderr.write(f"\n{self.keep(_MAIN, how)}\nWith -n, a worker is replaced and the run goes on.\n")
        sys.stderr.flush()
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(1)

    # --- The end ---

    def pytest_sessionfinish(self) -> None:
        """Make the smallest crash of each kind smaller."""
        from harness.crashes import smallest_of_each_kind

        self._over.set()
        options = self._options
        crashed = list(self._crashed.values())
        for smallest in smallest_of_each_kind(crashed, options.target, options.case_timeout):
            if smallest.case.fingerprint not in self._crashed:
                self._told.append(self._saved(smallest))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show what the crashes came to."""
        for told in self._told:
            terminalreporter.section("a crash made smaller")
            terminalreporter.write_line(told)

    def pytest_unconfigure(self) -> None:
        """Remove the logbooks."""
        self._over.set()
        shutil.rmtree(self.folder, ignore_errors=True)


def _ending(node: Any) -> str:
    """Return how a worker's process has ended."""
    from harness.crew import ending

    # execnet keeps the process to itself; without it, that it ended is all that is known.
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    return "its process ended" if process is None else ending(process.wait())
