"""Domains: which cases a campaign draws, and what is promised of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strategies.contract import contract
from strategies.frontier import frontier

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis import strategies as st

    from harness import case as c


@dataclass(frozen=True)
class Domain:
    """A named set of cases, what it stands for, and how its cases are drawn."""

    name: str
    description: str
    strategy: Callable[[], st.SearchStrategy[c.Case]]
    promised: bool = True
    """Whether equality is promised of every case. Where it is not, known issues may explain a violation, and
    that both runs raise alike is all that is judged of a case that cannot be run directly."""


DOMAINS: Final[dict[str, Domain]] = {
    domain.name: domain
    for domain in [
        Domain(
            "contract",
            "cases for which the corrected checkpoint promises equality with the direct run",
            contract,
        ),
        Domain(
            "frontier",
            "the same with a few features beyond it, where TE has faults",
            frontier,
            promised=False,
        ),
    ]
}
