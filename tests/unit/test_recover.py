"""`reput recover`: whatever happened to log or output, what follows ends with the bytes of a rebuild."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from unit.outputs import SPOILERS, Output
from sink_runner import MEMORY, files_below, no_fsync

from reput.source.errors import SinkError
from reput.streaming.maintenance import recover_output

Spoiler = Callable[[Output, Random], None]


def refused(output: Output) -> bool:
    """Whether nothing tells files that were cut from files of another setting: none has the size it should have."""
    for folder, size in (("consumequeue", 100), ("index", 268)):
        sizes = {path.stat().st_size for path in (output.out / folder).rglob("*") if path.is_file()}
        if any(sizes) and size not in sizes:
            return True
    return False


def recover_and_check(output: Output) -> None:
    """A dry run changes nothing, a second run neither, and going on gives the model's bytes."""
    spoiled = files_below(output.out)
    if refused(output):
        with pytest.raises(SinkError, match=r"bytes where .* 100; give the|bytes where .* make 268; give the"):
            recover_output(output.config, output.store, output.out)
        (output.out / "lock").unlink()
        assert files_below(output.out) == spoiled
        return
    planned = recover_output(output.config, output.store, output.out, dry_run=True)
    assert files_below(output.out) == spoiled
    done = recover_output(output.config, output.store, output.out)
    assert done == planned
    recovered = files_below(output.out)
    again = recover_output(output.config, output.store, output.out)
    assert not again.is_changed, again
    assert files_below(output.out) == recovered
    assert again.queues == done.queues
    output.go_on()
    output.check()
    after = recover_output(output.config, output.store, output.out)
    assert not after.is_changed
    maxima = {(queue.topic, queue.queue_id): queue.max_offset for queue in after.queues}
    expected = {
        (record.message.topic, record.message.queue_id): (record.message.queue_offset or 0) + 1
        for record in output.records
        if record.message.is_queued
    }
    assert maxima == expected


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
def test_one_thing_happened(spoil: Spoiler, seed: int) -> None:
    """One kind of damage to an output that was at the end of the log, or behind it."""
    rng = Random(f"{spoil.__name__} {seed}")
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), rng, done=rng.choice([1.0, 1.0, 0.6]))
        spoil(output, rng)
        recover_and_check(output)


@pytest.mark.parametrize("seed", range(100))
def test_many_things_happened(seed: int) -> None:
    """Several kinds of damage at once."""
    rng = Random(seed)
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), rng, rng.choice([5, 60, 120]), done=rng.choice([1.0, 0.3]))
        for spoil in rng.sample(SPOILERS, rng.randrange(2, 6)):
            with suppress(IndexError, FileNotFoundError):  # what it would spoil is gone already
                spoil(output, rng)
        recover_and_check(output)
