"""The doctor says what there is, and why nothing runs where nothing does."""

from __future__ import annotations

import pytest

from harness import backends
from harness.doctor import examine
from harness.errors import CannotRunHere
from harness.target import Target


def test_a_healthy_machine_is_described() -> None:
    diagnosis = examine(backends.active().name)
    rows = dict(diagnosis.rows)
    assert diagnosis.healthy
    assert rows["transformer-engine"] == backends.te_version()
    assert rows["backend"].startswith(backends.active().name)
    assert "TE layout" in rows
    assert "fix" in rows["correction"]
    assert diagnosis.verdict.startswith("runs here; ")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CannotRunHere("no GPU is visible to torch"), "cannot run here: no GPU is visible to torch"),
        (ImportError("undefined symbol\nx"), "does not start: ImportError: undefined symbol"),
    ],
)
def test_what_stands_in_the_way_is_the_verdict(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_target: Target) -> None:
        raise error

    monkeypatch.setattr(Target, "open", fail)
    diagnosis = examine("auto")
    assert not diagnosis.healthy
    assert words in diagnosis.verdict
    assert "\n" not in diagnosis.verdict
    assert "python" in dict(diagnosis.rows)
