"""G6: stop at every call that changes the disk, as a kill and as a power failure, and come back to equal bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from faults.crash_shapes import SHAPES, NothingKept, Processes, Shape, make_shape
from faults.fault_files import stop_at
from support.proof_counts import Proof
from support.sink_runner import MEMORY

SEEDS_SHORT, SEEDS_FULL = 2, 25
KILLS, POWER, TWICE = "G6 crash points, killed", "G6 crash points, power lost", "G6 crashes while recovering"
# In the middle of an index file, and at its end, where its slots are written at once.
IN_WAVES = ("middle", "index roll")


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Iterator[Shape]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield make_shape(request.param, Path(directory))


def test_stop_at_every_call(shape: Shape, proof: Proof) -> None:
    """A process killed before any call: the next one continues as if nothing had happened."""
    for number in itertools.count(1):
        crashes = Processes(shape)
        lived = not crashes.run(stop_at(number))
        crashes.check(other_cuts=number % 2 == 0)
        proof(KILLS)
        if lived:
            break
    assert number > 25


@pytest.mark.parametrize("shape", IN_WAVES, indirect=True)
@pytest.mark.parametrize("loses_power", [False, True])
def test_stop_between_waves(shape: Shape, loses_power: bool, proof: Proof) -> None:
    """A batch in two waves, of which the first leaves slots for later: the process stops, or the power fails."""
    for number in itertools.count(1):
        crashes = Processes(shape, in_waves=True)
        lived = not crashes.run(stop_at(number))
        if loses_power:
            crashes.disk.lose_power(Random(number))
        crashes.check(other_cuts=number % 2 == 0)
        proof(POWER if loses_power else KILLS)
        if lived:
            break
    assert number > 25


def lose_power_everywhere(
    shape: Shape, seed: int, proof: Proof, first: int = 1, step: int = 1, *, in_waves: bool = False
) -> None:
    for number in itertools.count(first, step):
        crashes = Processes(shape, in_waves=in_waves)
        lived = not crashes.run(stop_at(number))
        crashes.disk.lose_power(Random(1000 * seed + number) if seed else NothingKept())
        crashes.check(other_cuts=(number + seed) % 2 == 0)
        proof(POWER)
        if lived:
            return


@pytest.mark.parametrize("seed", range(SEEDS_SHORT))
def test_power_failure_at_every_call(shape: Shape, seed: int, proof: Proof) -> None:
    """Writes that were not synced are lost, torn or kept in any order; those that a sink returned from are kept."""
    lose_power_everywhere(shape, seed, proof, first=1 + seed, step=SEEDS_SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS_FULL))
def test_power_failure_at_every_call_in_full(shape: Shape, seed: int, proof: Proof) -> None:
    """As above, with other losses."""
    lose_power_everywhere(shape, seed, proof)


@pytest.mark.slow
@pytest.mark.parametrize("shape", IN_WAVES, indirect=True)
@pytest.mark.parametrize("seed", range(SEEDS_FULL))
def test_power_failure_between_waves_in_full(shape: Shape, seed: int, proof: Proof) -> None:
    """As `test_stop_between_waves`, with other losses."""
    lose_power_everywhere(shape, seed, proof, in_waves=True)


@pytest.mark.parametrize("sink", ["consumequeue", "index"])
def test_what_recovery_finds_is_durable(shape: Shape, sink: str, proof: Proof) -> None:
    """A process that dies leaves writes in memory only; the next one promises nothing that rests on them."""
    recovered_and_lost(shape, sink, proof, step=3)


@pytest.mark.slow
@pytest.mark.parametrize("sink", ["consumequeue", "index"])
def test_what_recovery_finds_is_durable_in_full(shape: Shape, sink: str, proof: Proof) -> None:
    """As above, after a first crash at every call."""
    recovered_and_lost(shape, sink, proof, step=1)


def recovered_and_lost(shape: Shape, sink: str, proof: Proof, step: int) -> None:
    for number in itertools.count(1, step):
        crashes = Processes(shape)
        lived = not crashes.run(stop_at(number))
        crashes.recover_one(sink)
        crashes.disk.lose_power(NothingKept())
        crashes.check(other_cuts=number % 2 == 0)
        proof(TWICE)
        if lived:
            return


def crash_while_recovering(shape: Shape, first: int, seed: int, step: int, proof: Proof) -> bool:
    """Die at call `first`; the next process dies at each `step`-th call; power fails after both, or the second."""
    for second in itertools.count(1 + seed % step, step):
        crashes = Processes(shape)
        lived = not crashes.run(stop_at(first))
        rng = Random(f"{seed} {first} {second}")
        if rng.random() < 0.5:
            crashes.disk.lose_power(rng)
        lived_again = not crashes.run(stop_at(second), other_cuts=second % 2 == 0)
        if rng.random() < 0.8:
            crashes.disk.lose_power(rng)
        crashes.check(other_cuts=rng.random() < 0.5)
        proof(TWICE)
        if lived_again:
            return lived
    raise AssertionError


def test_crash_while_recovering(shape: Shape, proof: Proof) -> None:
    """The process that mends also dies: the third one still finds everything."""
    for first in range(3, 1000, 17):
        if crash_while_recovering(shape, first, seed=first, step=5, proof=proof):
            break


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_crash_while_recovering_in_full(shape: Shape, seed: int, proof: Proof) -> None:
    """As above, after a first crash at every call."""
    for first in itertools.count(1):
        if crash_while_recovering(shape, first, seed=3 * first + seed, step=7, proof=proof):
            break
