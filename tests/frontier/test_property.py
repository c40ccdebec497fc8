"""The frontier: whatever the case, what objects is a known fault of Transformer Engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.pytest_properties import SHARDS
from strategies.domains import DOMAINS

if TYPE_CHECKING:
    from collections.abc import Callable

    from strategies.domains import Domain


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_violation_is_a_known_issue(check_property: Callable[[Domain, int], None], shard: int) -> None:
    check_property(DOMAINS["frontier"], shard)
