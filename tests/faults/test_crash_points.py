"""G6: stop at every call that changes the disk, as a kill and as a power failure, and come back to equal bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random

import pytest
from faults.crash_shapes import SETTINGS, SHAPES, Shape, Tree, make_shape
from faults.fault_files import Disk, Stopped, no_fault, stop_at, system
from sink_runner import SinkRun, files_below

Fault = Callable[[int, str], None]
SEEDS_SHORT, SEEDS_FULL = 1, 25


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shape:
    return make_shape(request.param, tmp_path_factory.mktemp("shape"))


class Crashes:
    """One output through a series of processes on one disk; knows what was promised to last."""

    def __init__(self, shape: Shape) -> None:
        shape.restore()
        self.shape = shape
        self.disk = Disk(shape.root)
        self.promised: dict[str, int] = {}

    def process(self, number: int | None, *, other_cuts: bool = False) -> bool:
        """Recover and dispatch up to the batch's end, and die at call `number`; whether it lived on to the end."""
        cuts = [place for place in self.shape.cuts(other=other_cuts) if place <= self.shape.end]
        with system(self.disk, no_fault if number is None else stop_at(number)):
            run = SinkRun(self.shape.root, SETTINGS)
            try:
                run.recover()
                for start, end in itertools.pairwise(cuts):
                    run.write(self.shape.batch(start, end))
            except Stopped:
                return False
            finally:
                self.promised.update(run.returned)
            return True

    def check(self, *, other_cuts: bool) -> None:
        """What was promised is there, nothing half done is; going on ends with the bytes of a run without a crash."""
        with system(self.disk), SinkRun(self.shape.root, SETTINGS) as run:
            for sink, folder in ((run.queues, "consumequeue"), (run.index, "index")):
                assert sink.end_offset >= self.promised.get(sink.name, 0), f"{sink.name}: lost what was promised"
                expected = below(self.shape.states[sink.end_offset], folder)
                assert below(files_below(self.shape.root), folder) == expected, f"{folder} at {sink.end_offset}"
            for start, end in itertools.pairwise(self.shape.cuts(other=other_cuts)):
                run.write(self.shape.batch(start, end))
        assert files_below(self.shape.root) == self.shape.states[self.shape.last]


def below(tree: Tree, folder: str) -> Tree:
    """Files with something in them: a full queue may have its next file, or not, until the batch is done."""
    return {path: data for path, data in tree.items() if path.startswith(folder) and data.strip(b"\0")}


def test_stop_at_every_call(shape: Shape, record_property: Callable[[str, object], None]) -> None:
    """A process killed before any call: the next one goes on as if nothing had been."""
    for number in itertools.count(1):
        crashes = Crashes(shape)
        lived = crashes.process(number)
        crashes.check(other_cuts=number % 2 == 0)
        if lived:
            break
    record_property("crash_points", number - 1)
    assert number > 25


def lose_power_everywhere(shape: Shape, seed: int) -> None:
    for number in itertools.count(1):
        crashes = Crashes(shape)
        lived = crashes.process(number)
        crashes.disk.lose_power(Random(1000 * seed + number))
        crashes.check(other_cuts=(number + seed) % 2 == 0)
        if lived:
            return


@pytest.mark.parametrize("seed", range(SEEDS_SHORT))
def test_power_failure_at_every_call(shape: Shape, seed: int) -> None:
    """What was not synced is lost, torn or there in any order; what a sink returned from is there."""
    lose_power_everywhere(shape, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS_SHORT, SEEDS_FULL))
def test_power_failure_at_every_call_in_full(shape: Shape, seed: int) -> None:
    """As above, with other losses."""
    lose_power_everywhere(shape, seed)


def crash_while_recovering(shape: Shape, first: int, seed: int, step: int) -> bool:
    """Die at call `first`; the next process dies at each `step`-th call; power fails after both, or the second."""
    for second in itertools.count(1 + seed % step, step):
        crashes = Crashes(shape)
        lived = crashes.process(first)
        rng = Random(f"{seed} {first} {second}")
        if rng.random() < 0.5:
            crashes.disk.lose_power(rng)
        lived_again = crashes.process(second, other_cuts=second % 2 == 0)
        if rng.random() < 0.8:
            crashes.disk.lose_power(rng)
        crashes.check(other_cuts=rng.random() < 0.5)
        if lived_again:
            return lived
    raise AssertionError


def test_crash_while_recovering(shape: Shape) -> None:
    """The process that mends dies as well: the third one still finds all."""
    for first in range(3, 1000, 13):
        if crash_while_recovering(shape, first, seed=first, step=5):
            break


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_crash_while_recovering_in_full(shape: Shape, seed: int) -> None:
    """Every pair of calls, with other losses."""
    for first in itertools.count(1):
        if crash_while_recovering(shape, first, seed, step=1):
            break
