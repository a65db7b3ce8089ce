"""Python's collector looks seldom only while a command loads, and what is free goes back to the system."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pytest

from reput.source import system


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int, int]]:
    """Python's own thresholds, before and after."""
    monkeypatch.setattr(system, "_given_back_at", -1e9)
    monkeypatch.setattr(system, "_is_kept_small", False)
    before = gc.get_threshold()
    yield before
    system.look_as_usual()
    gc.set_threshold(*before)
    gc.unfreeze()


def make_garbage() -> weakref.ref[Cycle]:
    """Make some garbage, and then enough objects that stay for Python to look for it."""
    gone = weakref.ref(Cycle())
    kept = [[number] for number in range(2000)]
    assert len(kept) == 2000
    return gone


def test_garbage_stays_only_while_a_command_loads() -> None:
    system.look_seldom()
    loaded = make_garbage()
    assert loaded() is not None
    system.look_as_usual()
    assert gc.get_freeze_count() > 0
    assert make_garbage()() is None
    assert loaded() is not None  # it is not looked at again


def test_a_caller_from_python_keeps_what_is_set(usual: tuple[int, int, int]) -> None:
    allocator = pa.default_memory_pool().backend_name
    system.keep_small()
    assert gc.get_threshold() == usual
    gc.set_threshold(5000)
    system.keep_small()
    assert gc.get_threshold()[0] == 5000
    assert pa.default_memory_pool().backend_name == allocator != pa.system_memory_pool().backend_name


def in_a_new_process(check: Callable[[], None]) -> None:
    """Where other tests ran, the allocator has free memory that it hands out before it asks the system for more."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    code = "import pickle, sys; pickle.load(sys.stdin.buffer)()"
    done = subprocess.run(
        [sys.executable, "-c", code], input=cloudpickle.dumps(check), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.fixture
def pool() -> Iterator[None]:
    """Arrow's own allocator afterwards."""
    before = pa.default_memory_pool()
    yield
    pa.set_memory_pool(before)


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize("is_command", [False, True])
def test_what_only_a_cycle_keeps_goes_too(is_command: bool) -> None:
    """But a program in Python that runs a tail has its own collector."""
    if is_command:
        system.look_seldom()
    for _ in "ab":  # each of two brokers' tails
        system.keep_small()
    gc.disable()
    try:
        gone = weakref.ref(Cycle())
        system.give_back()
        assert (gone() is None) == is_command
    finally:
        gc.enable()


def test_a_large_buffer_is_given_back_as_it_is_freed() -> None:
    """Though larger ones were freed before, and though it lies below one that stays."""

    def check() -> None:
        system.look_seldom()
        system.keep_small()
        pa.allocate_buffer(16 << 20)
        pieces = [pa.allocate_buffer(8 << 20) for _ in range(8)]
        for piece in pieces:
            memoryview(piece).cast("B")[:] = bytes(piece.size)
        full = resident_bytes()
        del piece, pieces[:-1]
        given = full - resident_bytes()
        assert given > 48 << 20, given

    in_a_new_process(check)


def test_what_arrow_has_freed_goes_back_now_and_then() -> None:
    """The last piece keeps the allocator from giving back the others by itself."""

    def check() -> None:
        system.look_seldom()
        system.keep_small()
        kept = []
        for is_due, after_s in ((True, 60.0), (False, 60.0), (True, 0.0)):
            pieces = [pa.allocate_buffer(64 << 10) for _ in range(1000)]
            for piece in pieces:
                memoryview(piece).cast("B")[:] = bytes(piece.size)
            kept.append(pieces.pop())
            del piece, pieces
            full = resident_bytes()
            system.give_back(after_s=after_s)
            given = full - resident_bytes()
            assert (given > 32 << 20) == is_due, given

    in_a_new_process(check)
