"""Writes docs/benchmarks.md from what pytest-benchmark has recorded on several machines.

python -m tests.benchmarks.table docs/benchmarks/*.json > docs/benchmarks.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = """# Benchmarks

Each is a ratio within one run, or a time, with what it must not exceed or fall short of; `tox -e bench`
measures them anew, and fails where one is missed. What pytest-benchmark recorded lies beside this page, one
file for each machine, from which `python -m tests.benchmarks.table` writes it.
"""

SHARES = """
## Where the time of a case goes

Of the benchmark's case: two twins of three modules, three iterations each. Timers stood around functions of
the harness; on a GPU they tell the time of the CPU, which launches kernels and seldom waits for them.
"""

DONE = """
Forwards and backwards are Transformer Engine's and torch's own work, which the loop by hand has too; hooks
that note each push and pop are a small part of it. Of what is the harness's own,

- **what a step leaves** was the largest share. The memory held is read from one statistic of CUDA's
  allocator, instead of a dictionary of all, and on emulated kernels from a walk over the tensors alive,
  which asks each object for its type only;
- **garbage collections** are part of it. They find what a case leaves, and pass over all that is older, which
  is frozen while a case runs;
- **oracles** waited for the GPU once for each tensor. Outputs, gradients and FP8 state are now compared in
  one go, and tensor by tensor only where that finds a difference;
- **FP8 state** is packed into one tensor an iteration; gradients are copied only where a later backward adds
  to them;
- **hooks of the modules** stand on the checkpointed twin only, whose pushes and pops they note.

What remains is small; nothing in it waits for a GPU more than a case has to.
"""


def main(files: list[str]) -> None:
    """Print the page."""
    records = {Path(file).stem: json.loads(Path(file).read_bytes()) for file in files}
    machines = {name: [entry["extra_info"] for entry in r["benchmarks"]] for name, r in records.items()}
    print(HEAD)
    for name, record in records.items():
        machine = (f"{key.replace('_', ' ')} {told}" for key, told in record["machine_info"].items())
        print(f"- `{name}`: {', '.join(machine)}")
    print()
    _print_table(machines, ("goal",), _measured)
    print(SHARES)
    _print_table(machines, (), _shares)
    print(DONE, end="")


def _measured(info: dict[str, Any]) -> dict[tuple[str, ...], str]:
    """Return the figure of a benchmark by its name and goal, where it has these."""
    if "what" not in info:
        return {}
    goal = f"at most {info['at_most']}" if "at_most" in info else f"at least {info['at_least']}"
    return {(info["what"], goal): f"{info['ratio']:.0f}" if info["ratio"] >= 100 else f"{info['ratio']:.3g}"}


def _shares(info: dict[str, Any]) -> dict[tuple[str, ...], str]:
    """Return the shares of a benchmark that has recorded some."""
    return {(part,): f"{share:.1%}" for part, share in info.get("shares", {}).items()}


def _print_table(
    machines: dict[str, list[dict[str, Any]]],
    heads: tuple[str, ...],
    rows_of: Callable[[dict[str, Any]], dict[tuple[str, ...], str]],
) -> None:
    """Print a table of one column for each machine; what only one of them has is empty in the others'."""
    columns = [
        {key: cell for info in infos for key, cell in rows_of(info).items()} for infos in machines.values()
    ]
    print(f"| {' | '.join(('', *heads, *machines))} |")
    print("|" + " --- |" * (1 + len(heads) + len(machines)))
    for key in dict.fromkeys(key for column in columns for key in column):
        print(f"| {' | '.join((*key, *(column.get(key, '') for column in columns)))} |")


if __name__ == "__main__":
    main(sys.argv[1:])
