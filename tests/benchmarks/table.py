"""Writes the table of docs/benchmarks.md from what pytest-benchmark has recorded on several machines.

python -m tests.benchmarks.table docs/benchmarks/*.json > docs/benchmarks.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEAD = """# Benchmarks

Each is a ratio within one run, or a time, with what it must not exceed or fall short of; `tox -e bench`
measures them anew, and fails where one is missed. What pytest-benchmark recorded lies beside this page, one
file for each machine, from which `python -m tests.benchmarks.table` writes it.
"""


def main(files: list[str]) -> None:
    """Print the page."""
    columns = {Path(file).stem: _measured(Path(file)) for file in files}
    print(HEAD)
    print(f"| | goal | {' | '.join(columns)} |")
    print("| --- | --- |" + " --- |" * len(columns))
    for what in dict.fromkeys(what for column in columns.values() for what in column):
        goals = dict.fromkeys(column[what][0] for column in columns.values() if what in column)
        cells = [column[what][1] if what in column else "" for column in columns.values()]
        print(f"| {what} | {', '.join(goals)} | {' | '.join(cells)} |")


def _measured(file: Path) -> dict[str, tuple[str, str]]:
    """Return the goal and the figure of each benchmark that a file tells of."""
    told: list[dict[str, Any]] = [
        entry["extra_info"] for entry in json.loads(file.read_bytes())["benchmarks"]
    ]
    return {info["what"]: (_goal(info), _figure(info["ratio"])) for info in told if "what" in info}


def _goal(info: dict[str, Any]) -> str:
    return f"at most {info['at_most']}" if "at_most" in info else f"at least {info['at_least']}"


def _figure(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    main(sys.argv[1:])
