"""The contract: whatever the case, the corrected checkpoint equals direct execution and leaves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from harness.pytest_properties import SHARDS
from strategies.domains import DOMAINS

if TYPE_CHECKING:
    from collections.abc import Callable

    from strategies.domains import Domain


@pytest.mark.parametrize("shard", range(SHARDS))
def test_contract_holds(check_property: Callable[[Domain, int], None], shard: int) -> None:
    check_property(DOMAINS["contract"], shard)
