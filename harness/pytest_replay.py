"""``pytest --replay PATH``: instead of any test, saved cases are judged again, each as a test of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from harness.errors import CannotRunHere, HarnessError
from harness.pytest_crashes import LOGBOOK
from harness.pytest_options import OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from harness.corpus import SavedCase
    from harness.pytest_options import Options
    from harness.replay import Replayer

_BECAME = "te-harness-became"
"""The property of a test's report that tells what has become of its case."""

_REPLAYER = pytest.StashKey["Replayer"]()


class ReplayedCase(pytest.Item):
    """A saved case as a test: it passes where it held or is fixed, and is skipped where it cannot run."""

    def __init__(self, *, file: Path, saved: SavedCase, **options: Any) -> None:
        super().__init__(**options)
        self._file = file
        self._saved = saved

    def runtest(self) -> None:
        """Judge the case."""
        from harness.replay import FAILS, became
        from harness.report import replay_lines

        try:
            answer = _replayer(self.config).judge(self._saved)
        except CannotRunHere as error:
            pytest.skip(f"cannot run here: {error}")
        word = became(self._saved, answer)
        lines = replay_lines(self._saved, answer, word)
        self.user_properties.append((_BECAME, lines[0]))
        if word in FAILS:
            command = self.config.stash[OPTIONS].target.replay_command(self._file)
            pytest.fail("\n".join([*lines, f"  replay with: {command}"]), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the test comes from: the file of the case."""
        return self._file, None, f"replay of {self._file.name}"


def _replayer(config: pytest.Config) -> Replayer:
    """Return this process's replayer, which the first case makes."""
    from harness.replay import Replayer

    if _REPLAYER not in config.stash:
        options = config.stash[OPTIONS]
        replayer = Replayer(options.target, options.case_timeout)
        config.stash[LOGBOOK].open(replayer.session, options.target)
        config.stash[_REPLAYER] = replayer
    return config.stash[_REPLAYER]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    """Collect the saved cases that ``--replay`` names, and nothing else."""
    config = session.config
    options = config.stash[OPTIONS]
    # The controller of pytest-xdist leaves collecting to its workers.
    if not options.replay or config.pluginmanager.has_plugin("dsession"):
        return None
    try:
        session.items = list(_items(session, options))
    except HarnessError as error:
        pytest.exit(str(error), returncode=error.exit_code)
    session.testscollected = len(session.items)
    config.hook.pytest_collection_modifyitems(session=session, config=config, items=session.items)
    config.hook.pytest_collection_finish(session=session)
    return True


def _items(session: pytest.Session, options: Options) -> list[ReplayedCase]:
    from harness import corpus
    from harness.replay import find

    files = [file for name in options.replay for file in corpus.load_files(find(name, options.corpus))]
    return [
        ReplayedCase.from_parent(
            session, name=saved.case.fingerprint, nodeid=str(file), file=file, saved=saved
        )
        for file, saved in dict(files).items()
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what has become of those that pass: of the others, the failures tell."""
    passed = terminalreporter.stats.get("passed", [])
    lines = [text for report in passed for name, text in report.user_properties if name == _BECAME]
    if lines:
        terminalreporter.section("replayed")
        terminalreporter.write_line("\n".join(lines))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process in which cases were judged that may end it."""
    if _REPLAYER in config.stash:
        config.stash[_REPLAYER].__exit__(None, None, None)
