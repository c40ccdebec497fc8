"""What the nights on a GPU and on CPUs have in common: the folder, what is kept in it, and the summary."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

import finding
from children import Children, harness
from finding import Finding, Target

KEPT = ("corpus", "database", "issues")
"""What is kept from one night to the next."""

_REPLAYED = (None, 0, 1, 125)
"""What a replay ends with where each case has its verdict or cannot run here; None where none was begun."""
_REPORT_LIMIT = 120.0
_REPLAY_LIMIT = 900.0
_LONGEST_SUMMARY = 900_000
"""Bytes; GitHub shows no summary of more than a mebibyte."""


def duration(text: str) -> float:
    """Return a number of seconds, for argparse."""
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(text)
    return seconds


class Night:
    """A night's folder. ``new`` tells what has been saved in its corpus since the night began."""

    def __init__(self, out: Path) -> None:
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        taken = sorted(path.name for path in out.iterdir() if path.name not in KEPT)
        if taken:
            kept = ", ".join(KEPT)
            told = f"holds {taken[0]!r}: give a new folder, or one that holds only {kept} of a night before"
            raise SystemExit(f"{Path(sys.argv[0]).name}: {out} {told}.")
        self.corpus = out / "corpus"
        self.events = out / "events"
        self.doctor = out / "doctor.txt"
        self.museum = out / "museum.log"
        for name in KEPT:
            (out / name).mkdir(exist_ok=True)
        self.children = Children()
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        """What a reader of the summary should know beside what was found."""
        self._known = {path.stem for path in finding.saved_in(self.corpus)}

    def database_options(self, name: str = "") -> list[str]:
        """Return the option that names the example database; a site's own comes from the environment."""
        if os.environ.get("TE_HARNESS_DATABASE"):
            return []
        return ["--database", str(self.out / "database" / name)]

    def replay_kept(self, folder: Path, target: Target) -> None:
        """Judge once more what the nights before have found and saved in a folder; forget what is mended."""
        kept = [path for path in sorted(finding.saved_in(folder)) if finding.has_verdict(path)]
        if not kept:
            return
        log = self.out / "replay.log"
        begin = log.stat().st_size if log.exists() else 0
        command = harness("replay", *kept, "--prune", *target.options)
        status = self.children.run(command, log, _REPLAY_LIMIT)
        lines = log.read_bytes()[begin:].decode(errors="replace").splitlines()
        words = ("reproduced", "changed", "fixed")
        counts = {word: sum(line.startswith(f"{word} ") for line in lines) for word in words}
        told = ", ".join(f"{count} {word}" for word, count in counts.items())
        self.notes.append(f"Of {len(kept)} cases kept from nights before: {told} (`replay.log`).")
        if status not in _REPLAYED:
            self.notes.append(f"**Judging them again ended with {status}**: some have no verdict.")
        self.notes += [f"Fixed: `{line.split()[1]}`" for line in lines if line.startswith("fixed ")]

    def examine(self, target: Target) -> None:
        """See to the files of what has been found since this was last asked, each fingerprint once."""
        saved = {path.stem: path for path in sorted(finding.saved_in(self.corpus), reverse=True)}
        new = [path for fingerprint, path in saved.items() if fingerprint not in self._known]
        self._known |= saved.keys()
        self.findings += finding.examine(new, target, self.out, self.children)

    def conclude(self, title: str, status: int) -> int:
        """Write the summary, show it, and return the status of the night.

        It is written before the report of the events is asked for, and again with it: so there is one even
        where whoever stops the job loses patience.
        """
        self._forget_mended()
        self._write(title, "")
        report, page = self.out / "report.md", self.out / "summary.html"
        command = harness("report", self.events, "--markdown", report, "--html", page)
        answer = self.children.run(command, None, _REPORT_LIMIT, needed=True)
        if not report.is_file():
            self.notes.append(f"There is no report of the events: it ended with {answer}.")
        self._write(title, report.read_text(encoding="utf-8") if report.is_file() else "")
        self._show()
        if self.children.stopped_by is not None:
            return 128 + self.children.stopped_by
        return status or int(answer != 0) or int(bool(self.findings))

    def _forget_mended(self) -> None:
        """Remove what was to be filed about a case that is not kept any more."""
        kept = {path.stem for path in finding.saved_in(self.corpus)}
        for path in (self.out / "issues").glob("*.md"):
            if path.stem not in kept:
                path.unlink()

    def _write(self, title: str, report: str) -> None:
        lines = [f"# {title}", ""]
        if self.children.stopped_by is not None:
            name = signal.Signals(self.children.stopped_by).name
            lines += [f"**Stopped by {name}**: what had been found until then.", ""]
        lines += [f"## New findings: {len(self.findings) or 'none'}", ""]
        for found in self.findings:
            lines += found.lines(self.out)
        lines += ["## This night", "", *(f"- {note}" for note in self.notes), ""]
        for name, log in {"What is installed": self.doctor, "The museum": self.museum}.items():
            lines += finding.folded(name, log)
        text = "\n".join([*lines, report])
        (self.out / "summary.md").write_text(text, encoding="utf-8")

    def _show(self) -> None:
        place = os.environ.get("GITHUB_STEP_SUMMARY")
        if place:
            text = (self.out / "summary.md").read_bytes()[:_LONGEST_SUMMARY]
            with Path(place).open("ab") as summary:
                summary.write(text + b"\n")
