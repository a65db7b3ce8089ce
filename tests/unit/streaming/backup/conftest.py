"""A store that has grown, with a restore point at each step; nothing waits for the disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.backups import STEPS, GrowingStore
from support.sink_runner import no_fsync


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingStore:
    """The store, and its backup."""
    made = GrowingStore(tmp_path_factory.mktemp("growing"), seed=3)
    with no_fsync():
        made.grow(STEPS)
    return made


@pytest.fixture(autouse=True)
def fast() -> Iterator[None]:
    """No file is synced."""
    with no_fsync():
        yield
