"""Unit tests do not wait for the last record of a log, because nothing writes to it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_waits(waits_are_skipped: None) -> None:
    """Modules where a log grows have a fixture of this name that does nothing."""
