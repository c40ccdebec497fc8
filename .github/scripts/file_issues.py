#!/usr/bin/env python3
"""Files one issue for each new fingerprint, and none twice, with GitHub's command ``gh``.

Usage: file_issues.py FOLDER [--most N] [--run URL] [--dry-run]

FOLDER holds nights as they were uploaded: each file FINGERPRINT.md in a folder named issues, at any depth,
has the title of an issue in its first line and its body in the rest. A fingerprint that stands in the title
of an issue, open or closed, is left alone; so is what is more than N, until the next night.
With --dry-run it says what it would file. Needs Python alone and ``gh``, which takes its token from GH_TOKEN
and its repository from GH_REPO or the current folder. What it reads is data: it goes to ``gh`` as arguments
and files.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_LABEL = "te-harness"
_FINGERPRINT = re.compile(r"\b[0-9a-f]{16}\b")
_LONGEST_TITLE = 120
_LONGEST_BODY = 60_000
"""Characters; GitHub takes 65536."""
_ALL = "100000"
"""More issues than anybody has: gh lists 30 unless told."""


def main() -> int:
    """File what is new."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--run", default="", help="the address of the run that found them")
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args()

    found = _found(asked.folder)
    if not found:
        print("Nothing was found.")
        return 0
    try:
        filed = _filed()
        new = {name: path for name, path in found.items() if name not in filed}
        print(f"{len(found)} fingerprints, of which {len(found) - len(new)} have an issue.")
        if new and not asked.dry_run:
            _make_label()
        for name in list(new)[: asked.most]:
            _file(name, new[name], asked.run, dry=asked.dry_run)
    except subprocess.CalledProcessError as error:
        # None is filed where it is not known which there are: rather none than one twice.
        print(f"file_issues.py: {error.cmd[1]} {error.cmd[2]}: {error.stderr.strip()}", file=sys.stderr)
        return 1
    if len(new) > asked.most:
        print(f"{len(new) - asked.most} more are left for the next night: at most {asked.most} are filed.")
    return 0


def _found(folder: Path) -> dict[str, Path]:
    """Return what can be filed by fingerprint, each once, however many nights found it."""
    paths = sorted(folder.glob("**/issues/*.md"))
    return {
        path.stem: path
        for path in reversed(paths)
        if _FINGERPRINT.fullmatch(path.stem) and path.is_file() and not path.is_symlink()
    }


def _filed() -> set[str]:
    """Return the fingerprints that have an issue.

    All issues are listed: for those with a label alone, gh would ask an index, which lags behind and has no
    more than a thousand; and somebody may have taken the label off.
    """
    listed = _gh("issue", "list", "--state", "all", "--limit", _ALL, "--json", "title")
    return {name for issue in json.loads(listed) for name in _FINGERPRINT.findall(issue["title"])}


def _file(name: str, path: Path, run: str, *, dry: bool) -> None:
    title, _, body = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    told = "".join(character if character.isprintable() else " " for character in title)
    title = f"{name}: {told[:_LONGEST_TITLE]}"
    if dry:
        print(f"would file {title}")
        return
    found = f"\n\nFound by {run}\n" if run else "\n"
    with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8") as file:
        file.write(body[:_LONGEST_BODY] + found)
        file.flush()
        address = _gh("issue", "create", "--title", title, "--label", _LABEL, "--body-file", file.name)
    print(f"filed {title}: {address.strip()}")


def _make_label() -> None:
    """Make our label where there is none; one that there is may have a colour that somebody chose."""
    labels = json.loads(_gh("label", "list", "--limit", _ALL, "--json", "name"))
    if _LABEL not in {label["name"].lower() for label in labels}:
        _gh("label", "create", _LABEL, "--description", "Found by the nightly job")


def _gh(*arguments: str) -> str:
    done = subprocess.run(["gh", *arguments], capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
