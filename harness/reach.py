"""Which cases run which lines of the files that mutants are in.

A fault in a line that a case does not run cannot show in that case, so it need not be tried there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import coverage

from harness.mutants import CORRECTION, PLACES, WHOLE_FUNCTIONS, source

if TYPE_CHECKING:
    from harness.mutants import Mutant

Reach: TypeAlias = dict[str, dict[int, frozenset[int]]]
"""Per file and line, the numbers of the cases that run it."""


def measure(numbers: Sequence[int], run: Callable[[int], None]) -> Reach:
    """Return the lines that each case runs; ``run`` is called with each number."""
    files = {str(source(file)): file for file in {*WHOLE_FUNCTIONS, *PLACES}}
    measured = coverage.Coverage(data_file=None, include=list(files), config_file=False, messages=False)
    # The tracer in C tells contexts apart, which the one on sys.monitoring does not.
    measured.set_option("run:core", "ctrace")
    measured.start()
    try:
        for number in numbers:
            measured.switch_context(str(number))
            run(number)
    finally:
        measured.stop()
    data = measured.get_data()
    return {
        name: {
            line: frozenset(int(context) for context in contexts if context)
            for line, contexts in data.contexts_by_lineno(path).items()
        }
        for path, name in files.items()
    }


def merge(reaches: Sequence[Reach]) -> Reach:
    """Return what several measurements of different cases come to."""
    merged: dict[str, dict[int, frozenset[int]]] = {}
    for file, line, numbers in _entries(reaches):
        lines = merged.setdefault(file, {})
        lines[line] = lines.get(line, frozenset()) | numbers
    return merged


def _entries(reaches: Sequence[Reach]) -> Iterator[tuple[str, int, frozenset[int]]]:
    for reach in reaches:
        for file, lines in reach.items():
            for line, numbers in lines.items():
                yield file, line, numbers


def reaching(reach: Reach, mutant: Mutant, numbers: Sequence[int]) -> list[int]:
    """Return those of some cases that run a mutant's lines, in their order.

    Our correction is at work before any case runs, and a function that remembers its result does not run
    again: for a fault in these that is every case.
    """
    if mutant.file == CORRECTION or mutant.remembered:
        return list(numbers)
    first, last = mutant.lines
    lines = reach.get(mutant.file, {})
    reached = frozenset[int]().union(*(lines.get(line, frozenset()) for line in range(first, last + 1)))
    return [number for number in numbers if number in reached]
