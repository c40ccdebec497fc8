"""Each change of the verdict from one release to the next is named, and what the user said is checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness import bisect, releases, survey, validity
from harness import case as c
from harness.bisect import Change
from harness.cli import main
from harness.errors import CannotRunHere, HarnessFault, InvalidInput
from harness.survey import Row, Rows, Status
from tests.harness.fetched import cache_installed

CASE = c.Case(graph=c.Autocast(c.Region(c.Linear())), schedule=(c.Forward(), c.Backward()))


def rows(*verdicts: str) -> list[Row]:
    """Rows of releases 2.1.0, 2.2.0 and so on: h, v, and - for none."""
    statuses: dict[str, Status] = {"h": "held", "v": "violated", "-": "cannot run", "x": "failed"}
    return [
        Row(f"2.{number}.0", statuses[verdict], reason="because")
        for number, verdict in enumerate("".join(verdicts), 1)
    ]


# --- The range ---------------------------------------------------------------------------------------


def test_all_known_releases_are_judged_unless_both_ends_are_given() -> None:
    assert bisect.chosen(None, None) == list(releases.KNOWN)
    assert bisect.chosen("2.19.0", None) == list(releases.KNOWN)
    assert bisect.chosen("2.17.1", "2.20.2") == ["2.17.1", "2.18.0", "2.19.0", "2.20.2"]
    assert bisect.chosen("2.20.2", "2.17.1") == bisect.chosen("2.17.1", "2.20.2")


def test_an_end_need_not_be_known() -> None:
    assert bisect.chosen("2.98.0", "2.99.0") == ["2.98.0", "2.99.0"]
    assert bisect.chosen(None, "2.5.1")[4:7] == ["2.5.0", "2.5.1", "2.6.0"]


def test_the_ends_are_two() -> None:
    with pytest.raises(InvalidInput, match=r"both 2\.5\.0"):
        bisect.chosen("2.5.0", "2.5.0")


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("hhh", []),
        ("vvv", []),
        ("---", []),
        ("h-h", []),
        ("hhv", [Change("broken", "2.3.0", "2.2.0", ())]),
        ("vhh", [Change("fixed", "2.2.0", "2.1.0", ())]),
        ("-v-xh-", [Change("fixed", "2.5.0", "2.2.0", ("2.3.0", "2.4.0"))]),
        (
            "hv-vh-v",
            [
                Change("broken", "2.2.0", "2.1.0", ()),
                Change("fixed", "2.5.0", "2.4.0", ()),
                Change("broken", "2.7.0", "2.5.0", ("2.6.0",)),
            ],
        ),
    ],
)
def test_each_change_between_neighbouring_verdicts_is_found(verdicts: str, expected: list[Change]) -> None:
    assert bisect.changes(rows(verdicts)) == expected


def test_what_the_user_said_of_the_ends_is_checked() -> None:
    bisect.check_ends(rows("h-v"), "2.1.0", "2.3.0")
    bisect.check_ends(rows("v-h"), None, None)
    with pytest.raises(InvalidInput, match=r"--good 2\.1\.0: the case is violated there"):
        bisect.check_ends(rows("v-v"), "2.1.0", "2.3.0")
    with pytest.raises(InvalidInput, match=r"--bad 2\.3\.0: the case held there"):
        bisect.check_ends(rows("h-h"), "2.1.0", "2.3.0")
    with pytest.raises(CannotRunHere, match=r"--bad 2\.2\.0: no verdict there \(because\)"):
        bisect.check_ends(rows("h-h"), "2.1.0", "2.2.0")


def test_without_one_verdict_nothing_is_concluded() -> None:
    bisect.check_judged(rows("-h"))
    with pytest.raises(CannotRunHere, match=r"none of 2 releases was judged; 2\.2\.0: because"):
        bisect.check_judged(rows("-x"))
    with pytest.raises(HarnessFault):
        bisect.check_judged(rows("xx"))


# --- The command -------------------------------------------------------------------------------------


def invoke(
    found: list[Row], monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str
) -> tuple[Result, list[str]]:
    """Return what the command does when these rows come out, and how it reads."""

    def stub(cases: list[c.Case], _wanted: object, te_mode: str, on_rows: Any) -> list[Rows]:
        assert (cases, te_mode) == ([CASE], "installed")
        for row in found:
            on_rows((row,))
        return [(row,) for row in found]

    monkeypatch.setattr(survey, "judge", stub)
    (folder / "case.json").write_bytes(c.encode(CASE))
    result = CliRunner().invoke(main, ["bisect", str(folder / "case.json"), *options])
    return result, result.stdout.splitlines()


def test_a_change_ends_with_0_and_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [
        Row("2.1.0", "cannot run", reason="too old"),
        Row("2.2.0", "held"),
        Row("2.19.0", "violated", ("FIFO drained", "pairing")),
    ]
    out = tmp_path / "found.json"
    result, lines = invoke(found, monkeypatch, tmp_path, "--json", str(out))
    assert lines == [
        "2.1.0   cannot run: too old",
        "2.2.0   held",
        "2.19.0  violated: FIFO drained, pairing",
        "broken by 2.19.0 (held in 2.2.0)",
    ]
    assert result.exit_code == 0
    assert result.stderr.splitlines()[1] == "te-harness: 2.2.0 held"
    written = json.loads(out.read_text())
    assert validity.decode(json.dumps(written["case"]).encode()) == CASE
    assert [row["status"] for row in written["releases"]] == ["cannot run", "held", "violated"]
    assert written["changes"] == [{"what": "broken", "release": "2.19.0", "before": "2.2.0", "unjudged": []}]


@pytest.mark.parametrize(
    ("verdicts", "options", "code", "words"),
    [
        ("h-h", [], 1, "no change: held in 2 releases of 3"),
        ("vv", [], 1, "no change: violated in 2 releases of 2"),
        ("v-h", [], 0, "fixed by 2.3.0 (violated in 2.1.0), or by one without a verdict between them: 2.2.0"),
        ("hvh", [], 0, "fixed by 2.3.0 (violated in 2.2.0)"),
        ("hv", ["--good", "2.1", "--bad", "2.2"], 0, "broken by 2.2.0 (held in 2.1.0)"),
    ],
)
def test_the_conclusion_is_the_last_line_and_the_exit_code(
    verdicts: str, options: list[str], code: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, lines = invoke(rows(verdicts), monkeypatch, tmp_path, *options)
    assert (result.exit_code, lines[-1]) == (code, words)


@pytest.mark.parametrize(
    ("verdicts", "options", "code"),
    [("hh", ["--bad", "2.2"], 2), ("-h", ["--good", "2.1"], 125), ("-x", [], 125), ("xx", [], 3)],
)
def test_where_nothing_can_be_concluded_the_rows_are_shown_all_the_same(
    verdicts: str, options: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    result, lines = invoke(rows(verdicts), monkeypatch, tmp_path, *options)
    assert (result.exit_code, len(lines)) == (code, 2)
    assert result.stderr.splitlines()[-1].endswith(("another release.", "because"))


def test_a_case_is_judged_under_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for release in ("2.98.0", "2.99.0"):
        cache_installed(release)
    (tmp_path / "case.json").write_bytes(c.encode(CASE))
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "harness", "bisect", str(tmp_path / "case.json"), "--good=2.98", "--bad=2.99"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
        timeout=120,
    )
    assert result.stdout == "2.98.0  held\n2.99.0  held\n"
    assert result.stderr.splitlines()[-1].startswith("te-harness: --bad 2.99.0: the case held there")
    assert result.returncode == 2
