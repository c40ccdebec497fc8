"""``te-harness explain`` shows a timeline in the terminal, writes its page, and ends as ``replay`` does."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from harness import backends
from harness import case as c
from harness.cli import main
from harness.errors import ReleaseLacks
from harness.session import Session
from harness.timeline import make_timeline
from harness.timeline_terminal import print_timeline
from harness.trace import Closeup

if TYPE_CHECKING:
    from pathlib import Path

ONE = c.Autocast(c.Region(c.Linear()))
HOLDS = c.Case(graph=ONE, schedule=(c.Forward(), c.Backward()))
DROPPED = c.Case(graph=ONE, schedule=(c.Forward(), c.Abandon(), c.Forward(), c.Backward()))


def explain(folder: Path, case: c.Case, *arguments: object) -> Result:
    """Save a case and explain it, on the backend that is active in this process."""
    path = folder / "case.json"
    path.write_bytes(c.encode(case))
    words = ["explain", path, *arguments, "--backend", backends.active().name]
    return CliRunner().invoke(main, [str(word) for word in words])


def shown(session: Session, case: c.Case, width: int) -> str:
    verdict, trace = session.examine(case, Closeup())
    console = Console(file=io.StringIO(), width=width)
    print_timeline(make_timeline(case, trace, verdict), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_case_that_holds_ends_with_0(tmp_path: Path) -> None:
    result = explain(tmp_path, HOLDS)
    assert result.exit_code == 0
    first, *rest = result.stdout.splitlines()
    assert first.startswith(f"held {HOLDS.fingerprint} Linear in a reentrant region")
    assert ["Linear", "push", "0", "pop", "0", "empty"] in [line.split() for line in rest]
    assert rest[-1].startswith("Every recompute took the snapshot that its own forward pushed")
    assert "!" not in "".join(line for line in rest if not line.startswith("!:"))


def test_a_case_that_does_not_ends_with_1_and_says_why(tmp_path: Path) -> None:
    result = explain(tmp_path, DROPPED)
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["Linear", "push", "0", ":", "push", "1", "pop", "0", "!", "1", "!"] in rows
    assert ["own", "1"] in rows
    assert "Linear of region 0 took snapshot 0" in result.stdout
    assert "  pairing [iteration 1, region 0, region 0]: popped snapshot [0]" in result.stdout


def test_a_table_too_wide_goes_on_below(te_session: Session) -> None:
    case = c.Case(graph=ONE, schedule=(c.Forward(), c.Backward()) * 4)
    for width in (60, 200):
        text = shown(te_session, case, width)
        assert all(len(line) <= max(width, 100) for line in text.splitlines())
        assert (text.count("region 0") > 1) == (width == 60)
        assert all(f"push {number}" in text and f"pop {number}" in text for number in range(4))


def test_the_page_is_a_new_file(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert explain(tmp_path, DROPPED, "--html", page).exit_code == 1
    assert b"<svg" in page.read_bytes()
    page.write_text("mine")
    result = explain(tmp_path, DROPPED, "--html", page)
    assert result.exit_code == 2
    assert "exists already and is not overwritten" in result.stderr
    assert page.read_text() == "mine"


def test_a_faulty_checkpointer_is_explained_too(tmp_path: Path) -> None:
    result = explain(tmp_path, HOLDS, "--checkpointer", "tests.harness.planted:refuses")
    assert result.exit_code == 1
    assert "The run stopped in the forward of iteration 0: ValueError: planted." in result.stdout


def test_what_cannot_run_here_ends_with_125(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_session: Session, _case: c.Case, _closeup: Closeup) -> None:
        raise ReleaseLacks("2.1.0", "the module Linear")

    monkeypatch.setattr(Session, "examine", refuse)
    result = explain(tmp_path, HOLDS, "--html", tmp_path / "page.html")
    assert result.exit_code == 125
    assert result.stdout == ""
    assert not (tmp_path / "page.html").exists()


def test_a_folder_is_no_case(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["explain", str(tmp_path)])
    assert result.exit_code == 2
    assert "this is not a file" in result.stderr
