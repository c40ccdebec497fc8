"""What a night has newly found: each with a timeline, a script, and a text that an issue is filed with."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from children import Children, harness

from harness import corpus
from harness.errors import HarnessError
from harness.report import violation_lines
from harness.sentence import describe

_NAME = re.compile(r"[0-9a-f]{16}")
_MOST = 20
"""New findings that get a timeline and a script; each takes some twenty seconds."""
_LIMIT = 180.0
"""Seconds for a timeline or a script: the case may hang, as it may have done when it was found."""
_LONGEST = 20_000
"""Characters of a script or a case that an issue shows; GitHub takes 65536 for the whole."""


@dataclass(frozen=True)
class Target:
    """The options that say what was tested, and where: those of the harness's commands."""

    te_mode: str = "corrected"
    backend: str = "auto"
    checkpointer: str | None = None
    release: str | None = None

    @property
    def place(self) -> list[str]:
        """The options that say where."""
        if self.release is not None:
            return ["--release", self.release]
        return ["--backend", self.backend]

    @property
    def options(self) -> list[str]:
        """All the options."""
        tested = [] if self.checkpointer is None else ["--checkpointer", self.checkpointer]
        return ["--te", self.te_mode, *self.place, *tested]


@dataclass(frozen=True)
class Made:
    """A file that was made for a finding, or why it could not be."""

    name: str
    path: Path
    why_not: str | None

    def line(self, out: Path) -> str:
        """Return what the summary says of it."""
        if self.why_not is None:
            return f"- {self.name}: `{self.path.relative_to(out).as_posix()}` in the artifact"
        return f"- no {self.name}: {self.why_not}"


@dataclass(frozen=True)
class Finding:
    """A case that was saved this night, with the files that were made for it, if they could be."""

    path: Path
    title: str
    text: str
    """The case as a sentence, and what objected to it."""
    timeline: Made
    script: Made
    target: Target

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the case."""
        return self.path.stem

    def lines(self, out: Path) -> list[str]:
        """Return what the summary shows."""
        lines = [f"### `{self.fingerprint}`: {self.title}", "", *_fenced(self.text), ""]
        lines += ["Replay:", "", *_fenced(self._replay(self.path.relative_to(out).as_posix())), ""]
        lines += [self.timeline.line(out), self.script.line(out), ""]
        return [*lines, *folded("The script", self.script.path)]

    def issue(self) -> str:
        """Return the text of an issue: its title, an empty line, its body."""
        lines = [self.title, "", *_fenced(self.text), ""]
        lines += [f"Save the case below as `{self.path.name}`, and replay it:", ""]
        lines += [*_fenced(self._replay(self.path.name)), ""]
        lines += [*folded("A script that needs torch and Transformer Engine alone", self.script.path)]
        return "\n".join([*lines, *folded("The case", self.path)]) + "\n"

    def _replay(self, name: str) -> str:
        return shlex.join(["te-harness", "replay", name, *self.target.options])


def saved_in(folder: Path) -> set[Path]:
    """Return the saved cases of a corpus, of which the crashes and faults lie in folders of their own.

    A file that is not named by a fingerprint is none that the harness has saved.
    """
    return {path for path in folder.rglob("*.json") if _NAME.fullmatch(path.stem) and path.is_file()}


def has_verdict(path: Path) -> bool:
    """Return whether a saved case is whole, and not one on which the harness itself failed."""
    if path.parent.name == "faults":
        return False
    try:
        corpus.load(path)
    except HarnessError:
        return False
    return True


def examine(new: list[Path], target: Target, out: Path, children: Children) -> list[Finding]:
    """Make timelines, scripts and texts of issues for what is new, the smallest cases first."""
    findings = []
    ordered = sorted(new, key=lambda path: (path.stat().st_size, path.name))
    for number, path in enumerate(ordered):
        finding = _examine(path, target, out, children, pictured=number < _MOST)
        (out / "issues").mkdir(exist_ok=True)
        (out / "issues" / f"{finding.fingerprint}.md").write_text(finding.issue(), encoding="utf-8")
        findings.append(finding)
    return findings


def _examine(path: Path, target: Target, out: Path, children: Children, *, pictured: bool) -> Finding:
    title, text = _told(path)
    page, script = out / "timelines" / f"{path.stem}.html", out / "scripts" / f"{path.stem}.py"
    if not pictured:
        why = f"made for {_MOST} findings only"
        return Finding(path, title, text, Made("timeline", page, why), Made("script", script, why), target)
    explain = harness("explain", path, "--html", page, *target.options)
    reproduce = harness("reproduce", path, "--output", script, *target.place)
    timeline = _make("timeline", page, explain, out, children)
    return Finding(path, title, text, timeline, _make("script", script, reproduce, out, children), target)


def _make(name: str, path: Path, command: list[str], out: Path, children: Children) -> Made:
    """Have a command write a file, and note what it said where it did not."""
    path.parent.mkdir(exist_ok=True)
    log = out / "findings.log"
    begin = log.stat().st_size if log.exists() else 0
    status = children.run(command, log, _LIMIT)
    if path.is_file():
        return Made(name, path, None)
    if status is None:
        return Made(name, path, "the night was stopped")
    said = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    complaints = [line.removeprefix("te-harness: ") for line in said if line.startswith("te-harness: ")]
    return Made(name, path, complaints[-1] if complaints else f"{command[3]} ended with {status}")


def _told(path: Path) -> tuple[str, str]:
    try:
        saved = corpus.load(path)
    except HarnessError as error:
        # Half a file, of a process that was killed as it wrote: still something that a person should see.
        return "a saved case that cannot be read", str(error)
    where = ", ".join(f"{name} {value}" for name, value in saved.where.items())
    lines = [describe(saved.case), *violation_lines(saved.seen.violations)]
    if saved.seen.ending:
        lines.append(f"  ended its process: {saved.seen.ending}")
    if where:
        lines.append(f"  seen with {where}")
    return saved.why.removeprefix("fails: ") or "violated", "\n".join(lines)


def _fenced(text: str, language: str = "text") -> list[str]:
    """Return a block of code, whatever is in it."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", text.rstrip("\n"), fence]


def folded(title: str, path: Path) -> list[str]:
    """Return a file as a block that is folded in, or nothing where there is none."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    if len(text) > _LONGEST:
        return [f"{title} is too long to be shown here; it is in the artifact.", ""]
    language = {".py": "python", ".json": "json"}.get(path.suffix, "text")
    return [f"<details><summary>{title}</summary>", "", *_fenced(text, language), "", "</details>", ""]
