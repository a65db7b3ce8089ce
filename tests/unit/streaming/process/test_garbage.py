"""Cyclic garbage does not wait for Python's threshold."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from reput.streaming.process import garbage
from reput.streaming.process.garbage import GarbageCollector


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def without_a_threshold() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_garbage_goes_when_it_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before; and what was there at the beginning is kept."""
    kept = Cycle()
    collector, old = GarbageCollector(), weakref.ref(kept)
    del kept
    gone = weakref.ref(Cycle())
    collector.step()
    assert gone() is not None
    monkeypatch.setattr(garbage, "_COLLECTED_EVERY_S", 0.0)
    collector.step()
    assert gone() is None
    assert old() is not None
    gc.unfreeze()
