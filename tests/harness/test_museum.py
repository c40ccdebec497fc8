"""The museum tells of each known release, its page says what its data say, and a surprise is a difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harness import case as c
from harness import museum, museum_report, releases, survey
from harness.cli import main
from harness.errors import HarnessFault, InvalidInput
from harness.museum import Difference, Found
from harness.survey import Row, Rows

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "corpus" / "museum"
BUGS = museum.load()
*_, SECOND, NEWEST = releases.KNOWN

ENTRY = """
[[bug]]
id = "{id}"
title = "It fails."
mechanism = "It does not work."
reference = "None."
case = "{case}"
fails = [{{ releases = "{fails}", kinds = ["outputs"] }}]
passes = ["{passes}"]
"""


def load(tmp_path: Path, **fields: str) -> museum.Bug:
    file = tmp_path / "museum.toml"
    usual = {"id": "odd", "case": "0" * 16, "fails": f"2.1.0 to {SECOND}", "passes": NEWEST}
    file.write_text(ENTRY.format(**{**usual, **fields}))
    (bug,) = museum.load(file)
    return bug


def found_as_expected() -> Found:
    return {(bug.id, row.release): row for bug in BUGS for row in bug.expected()}


# --- The data ----------------------------------------------------------------------------------------


def test_the_case_of_each_bug_is_in_the_corpus_and_no_other_is() -> None:
    assert len(museum.load_cases(BUGS, FOLDER)) == len(BUGS)
    assert {path.stem for path in FOLDER.iterdir()} == {bug.case for bug in BUGS}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_bug_was_there_and_is_fixed(bug: museum.Bug) -> None:
    by_release = {row.release: row.status for row in bug.expected()}
    assert set(by_release) == set(releases.KNOWN)
    assert "violated" in by_release.values()
    assert by_release[NEWEST] == "held"
    assert all(failing.kinds == tuple(sorted(failing.kinds)) != () for failing in bug.fails)


def test_the_page_of_the_documents_says_what_the_data_say() -> None:
    page = (ROOT / "docs" / "museum.md").read_text()
    assert page == museum_report.markdown(BUGS, museum.load_cases(BUGS, FOLDER)), (
        "write it anew: te-harness museum --markdown"
    )


# --- Reading the data --------------------------------------------------------------------------------


def test_a_range_is_told_by_its_ends(tmp_path: Path) -> None:
    rows = load(tmp_path, fails="2.1.0", passes=f"2.2.0 to {NEWEST}").expected()
    assert rows[:2] == [Row("2.1.0", "violated", ("outputs",)), Row("2.2.0", "held")]
    assert [row.release for row in rows] == list(releases.KNOWN)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"fails": f"2.2.0 to {SECOND}"}, r"odd: not told once, or told twice: 2\.1\.0"),
        ({"passes": f"{SECOND} to {NEWEST}"}, f"odd: not told once, or told twice: {SECOND}"),
        ({"passes": "2.20.1"}, r"'2\.20\.1' is no known release"),
        ({"fails": f"{SECOND} to 2.1.0"}, "not told once"),
        ({"id": "same", "case": "same"}, "same is there twice"),
        ({"id": '"'}, "museum.toml"),
    ],
)
def test_what_is_wrong_with_the_data_is_said(fields: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(HarnessFault, match=words):
        load(tmp_path, **fields)


def test_a_case_that_is_missing_or_another_one_is_refused(tmp_path: Path) -> None:
    bug = load(tmp_path)
    with pytest.raises(InvalidInput, match="there is no such file"):
        museum.load_cases([bug], tmp_path)
    case = c.Case(graph=c.Linear(), schedule=(c.Evaluate(),))
    (tmp_path / f"{bug.case}.json").write_bytes(c.encode(case))
    with pytest.raises(InvalidInput, match=f"this is another case, {case.fingerprint}"):
        museum.load_cases([bug], tmp_path)


# --- What was found, and what was expected -----------------------------------------------------------


def test_what_is_found_as_expected_is_no_difference() -> None:
    assert museum.differences(BUGS, found_as_expected()) == []


@pytest.mark.parametrize(
    "surprise",
    [
        Row("2.1.0", "held"),
        Row("2.1.0", "violated", ("outputs",)),
        Row("2.1.0", "cannot run", reason="no index"),
        Row("2.1.0", "failed", reason="died of signal 9"),
    ],
    ids=lambda row: row.status,
)
def test_whatever_else_is_found_is_a_difference(surprise: Row) -> None:
    bug = BUGS[0]
    expected = found_as_expected()[bug.id, "2.1.0"]
    found = {**found_as_expected(), (bug.id, "2.1.0"): surprise}
    assert museum.differences(BUGS, found) == [Difference(bug.id, expected, surprise)]


def test_a_release_that_cannot_run_a_case_must_not_for_the_reason_that_is_known() -> None:
    (bug,) = [bug for bug in BUGS if bug.id == "attention-recipe"]
    surprise = Row("2.1.0", "cannot run", reason="pip reaches no package index")
    found = {**found_as_expected(), (bug.id, "2.1.0"): surprise}
    (line,) = museum_report.difference_lines(museum.differences(BUGS, found))
    assert line == (
        "attention-recipe under 2.1.0: expected cannot run: lacks the recipe Float8CurrentScaling;"
        " found cannot run: pip reaches no package index"
    )


# --- The command -------------------------------------------------------------------------------------


def invoke(
    found: Found, monkeypatch: pytest.MonkeyPatch, *options: str, folder: Path = FOLDER
) -> tuple[Result, list[str]]:
    """Return what the command does when these rows come out, and how it reads."""

    def stub(cases: list[c.Case], wanted: tuple[str, ...], te_mode: str, on_rows: Any) -> list[Rows]:
        assert te_mode == "installed"
        assert [case.fingerprint for case in cases] == [bug.case for bug in BUGS]
        surveyed = [tuple(found[bug.id, release] for bug in BUGS) for release in wanted]
        for rows in surveyed:
            on_rows(rows)
        return surveyed

    monkeypatch.setattr(survey, "judge", stub)
    result = CliRunner().invoke(main, ["museum", "--corpus", str(folder), *options])
    return result, result.stdout.splitlines()


def test_all_as_expected_ends_with_0_and_writes_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "museum.md"
    result, lines = invoke(found_as_expected(), monkeypatch, "--markdown", str(page))
    assert result.exit_code == 0
    names, signs = lines[0].split(), lines[1].split()
    assert names[:7] == ["2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.6.post1"]
    assert (len(names), names.index("2.14.1")) == (len(releases.KNOWN), releases.KNOWN.index("2.14.1"))
    assert signs[0] == "eval-mode-pop"
    assert [names[place] for place, sign in enumerate(signs[1:]) if sign == "✗"] == names[
        : names.index("2.20.2")
    ]
    assert len(lines) == 1 + len(BUGS) + 1
    assert page.read_text() == (ROOT / "docs" / "museum.md").read_text()
    assert f"te-harness: 2.20.2 0 of {len(BUGS)} cases violated" in result.stderr


def test_a_surprise_ends_with_1_and_writes_no_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surprise = Row(NEWEST, "violated", ("outputs",))
    found = {**found_as_expected(), ("eval-mode-pop", NEWEST): surprise}
    page, out = tmp_path / "museum.md", tmp_path / "found.json"
    result, lines = invoke(found, monkeypatch, "--markdown", str(page), "--json", str(out))
    assert result.exit_code == 1
    assert lines[-1] == f"eval-mode-pop under {NEWEST}: expected held; found violated: outputs"
    assert not page.exists()
    written = json.loads(out.read_text())
    assert [bug["id"] for bug in written["bugs"]] == [bug.id for bug in BUGS]
    assert written["bugs"][0]["releases"][-1]["kinds"] == ["outputs"]
    assert [difference["bug"] for difference in written["differences"]] == ["eval-mode-pop"]


def test_where_no_release_can_be_had_nothing_is_concluded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        key: Row(row.release, "cannot run", reason="no index") for key, row in found_as_expected().items()
    }
    result, lines = invoke(found, monkeypatch)
    assert (result.exit_code, lines) == (125, [])
    assert result.stderr.splitlines()[-1] == f"te-harness: no case was judged; {NEWEST}: no index"


def test_without_the_corpus_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result, _ = invoke(found_as_expected(), monkeypatch, folder=tmp_path)
    assert result.exit_code == 2
    assert "there is no such file" in result.stderr
