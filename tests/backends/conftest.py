"""Fixtures of the tests of both backends; the pytest plugin has activated one of them."""

from __future__ import annotations

import pytest

from harness.backends import active
from harness.backends.base import Backend


@pytest.fixture
def backend() -> Backend:
    """The backend of this process."""
    return active()


@pytest.fixture
def emulation(backend: Backend) -> Backend:
    """The CPU backend; skips where the real extension is loaded."""
    if backend.name != "cpu":
        pytest.skip("tests the CPU emulation, and the active backend is cuda")
    return backend
