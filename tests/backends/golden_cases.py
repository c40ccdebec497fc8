"""All golden cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.backends.golden_casts import cast_cases
from tests.backends.golden_functions import function_cases
from tests.backends.golden_products import product_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends.golden_case import Case


def all_cases() -> Iterator[Case]:
    """Every call whose result is recorded."""
    yield from cast_cases()
    yield from product_cases()
    yield from function_cases()
