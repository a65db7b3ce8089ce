"""Python's collector looks seldom only while a command loads."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from reput.streaming.process import garbage


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    """Python's own thresholds, before and after."""
    before = gc.get_threshold()
    yield before
    garbage.look_as_usual()
    gc.set_threshold(*before)
    gc.unfreeze()


def make_garbage() -> weakref.ref[Cycle]:
    """Some garbage, and behind it as much of what stays as has Python look for it."""
    gone = weakref.ref(Cycle())
    kept = [[number] for number in range(2000)]
    assert len(kept) == 2000
    return gone


def test_garbage_stays_only_while_a_command_loads() -> None:
    garbage.look_seldom()
    loaded = make_garbage()
    assert loaded() is not None
    garbage.look_as_usual()
    assert gc.get_freeze_count() > 0
    assert make_garbage()() is None
    assert loaded() is not None  # it is not looked at again


def test_a_caller_from_python_keeps_what_is_set(usual: tuple[int, int, int]) -> None:
    garbage.look_as_usual()
    assert gc.get_threshold() == usual
    gc.set_threshold(5000)
    garbage.look_as_usual()
    assert gc.get_threshold()[0] == 5000
