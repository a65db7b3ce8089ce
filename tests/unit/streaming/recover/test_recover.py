"""`reput recover`: whatever happened to log or output, what follows ends with the bytes of a rebuild."""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from _pytest.mark import ParameterSet
from support.model import index_file_contents
from support.outputs import (
    SPOILERS,
    Output,
    bogus_unit,
    damaged_index,
    lost_index_file,
    lost_page,
    lost_records,
    older_record,
    stale_units,
)
from support.record_writer import Message
from support.sink_runner import MEMORY, SinkRun, files_below, index_contents, no_fsync, queue_files, record_bounds

from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source.errors import SinkError
from reput.streaming.recover.recover import expire_output, recover_output

Spoiler = Callable[[Output, Random], None]


def seeds(few: int, many: int) -> list[ParameterSet]:
    """Return this many seeds on every change, and the rest before a release."""
    return [pytest.param(seed, marks=[pytest.mark.slow] if seed >= few else []) for seed in range(many)]


def refused(output: Output) -> bool:
    """Whether nothing tells files that were cut from files of another setting: none has the size it should have."""
    for folder, size in (("consumequeue", 100), ("index", 268)):
        sizes = {path.stat().st_size for path in (output.out / folder).rglob("*") if path.is_file()}
        if any(sizes) and size not in sizes:
            return True
    return False


def recover_and_check(output: Output) -> None:
    """A dry run changes nothing, nor does a second run, and continuing gives the model's bytes."""
    spoiled = files_below(output.out)
    if refused(output):
        with pytest.raises(SinkError, match=r"bytes where .* 100; give the|bytes where .* make 268; give the"):
            recover_output(output.config, output.store, output.out)
        (output.out / "lock").unlink()
        assert files_below(output.out) == spoiled
        return
    planned = recover_output(output.config, output.store, output.out, dry_run=True)
    assert files_below(output.out) == spoiled
    # If a log was cut to next to nothing and the files are also damaged, nothing agrees: --yes is asked for.
    done = recover_output(output.config, output.store, output.out, yes=planned.unexplained is not None)
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


@pytest.mark.parametrize("seed", seeds(5, 60))
@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
def test_one_thing_happened(spoil: Spoiler, seed: int) -> None:
    """One kind of damage to an output that was at the end of the log, or before it."""
    rng = Random(f"{spoil.__name__} {seed}")
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), rng, done=rng.choice([1.0, 1.0, 0.6]))
        spoil(output, rng)
        recover_and_check(output)


@pytest.mark.parametrize("at", range(40, 60))
def test_a_changed_byte_in_the_front_of_a_queue(at: int, tmp_path: Path) -> None:
    """A queue that begins in the middle of its first file has units in front that must be exactly those."""
    with no_fsync():
        output = Output(tmp_path, [])
        output.write_log([Message(topic="Late", queue_id=0, queue_offset=offset) for offset in range(3, 9)])
        with SinkRun(output.out, output.settings) as run:
            run.write(output.batches()(0, record_bounds(output.records)[-1]))
        output.check()
        (first, *_) = sorted((output.out / "consumequeue" / "Late" / "0").iterdir())
        content = bytearray(first.read_bytes())
        content[at] ^= 1
        first.write_bytes(content)
        assert recover_output(output.config, output.store, output.out).is_changed
        assert not recover_output(output.config, output.store, output.out).is_changed
        output.go_on()
        output.check()


@pytest.mark.parametrize("seed", seeds(40, 1500))
def test_many_things_happened(seed: int) -> None:
    """Several kinds of damage at once."""
    rng = Random(seed)
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), rng, rng.choice([5, 60, 120]), done=rng.choice([1.0, 0.3]))
        for spoil in rng.sample(SPOILERS, rng.randrange(2, 6)):
            with suppress(IndexError, FileNotFoundError):  # what it would spoil is gone already
                spoil(output, rng)
        recover_and_check(output)


@pytest.mark.parametrize("seed", seeds(25, 400))
def test_after_segments_have_expired(seed: int) -> None:
    """Effects of expired records stay as they are; the others come back, each entry and key once and at its place."""
    rng = Random(f"expired {seed}")
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), rng, 150)
        segments = sorted(output.log.iterdir())
        removed = rng.randrange(1, len(segments) - 1)
        for segment in segments[:removed]:
            segment.unlink()
        least = int(segments[removed].name)
        if rng.random() < 0.5:
            expire_output(output.config, output.out)
        rng.choice([stale_units, bogus_unit, lost_page, lost_records, older_record, damaged_index])(output, rng)
        recover_output(output.config, output.store, output.out)
        assert not recover_output(output.config, output.store, output.out).is_changed
        output.records = [record for record in output.records if record.physical_offset >= least]
        output.go_on()
        assert not recover_output(output.config, output.store, output.out).is_changed
        assert entries_from(least, queue_files(output.out)) == {
            (f"consumequeue/{record.message.topic}/{record.message.queue_id}", record.message.queue_offset): at
            for at, record in ((record.physical_offset, record) for record in output.records)
            if record.message.is_queued
        }
        (whole,) = {b"".join(index_keys_from(least, index_contents(output.out)))}
        assert whole == b"".join(index_keys_from(least, index_file_contents(output.records, output.settings)))


def entries_from(least: int, files: dict[str, bytes]) -> dict[tuple[str, int], int]:
    """Physical offsets from `least` on, by queue and number of the entry."""
    found = {}
    for path, data in files.items():
        queue, _, file = path.rpartition("/")
        for i, (offset, size, _) in enumerate(struct.iter_unpack(">qiq", data)):
            if size not in (0, 0x7FFFFFFF) and offset >= least:
                found[queue, int(file) // 20 + i] = offset
    return found


def index_keys_from(least: int, contents: list[bytes]) -> list[bytes]:
    """Hash and physical offset of each key of a record from `least` on, in order."""
    found = []
    for data in contents:
        count = max(1, int.from_bytes(data[36:40], "big"))
        entries = [data[68 + 20 * i : 80 + 20 * i] for i in range(1, count)]
        found += [entry for entry in entries if int.from_bytes(entry[4:], "big") >= least]
    return found


def test_an_output_that_began_later_stays_so(tmp_path: Path) -> None:
    """With `startingOffset` an output has no effect of older records, and recovery asks for none."""
    output = Output.make(tmp_path / "whole", Random(1))
    allowed = record_bounds(output.records)
    start = allowed[20]
    later = [record for record in output.records if record.physical_offset >= start]
    with no_fsync(), SinkRun(output.root / "later", output.settings, start) as run:
        run.write(output.batches()(start, allowed[-1]))
    output.out = output.root / "later"
    assert not recover_output(output.config, output.store, output.out).is_changed
    output.check(later)
    lost_page(output, Random(5))
    lost_index_file(output, Random(3))
    report = recover_output(output.config, output.store, output.out)
    assert all(sink.end_after >= start for sink in report.sinks)
    output.go_on()
    output.check(later)


def test_the_checkpoint_does_not_promise_what_was_cut_off(tmp_path: Path) -> None:
    """A broker that starts next must not believe that lost effects are on disk; continuing makes it equal again."""
    output = Output.make(tmp_path, Random(4))
    wanted = (output.out / "checkpoint").read_bytes()
    path = min((output.out / "consumequeue" / "A" / "0").iterdir())
    path.write_bytes(path.read_bytes()[:20].ljust(100, b"\0"))
    report = recover_output(output.config, output.store, output.out)
    found = StoreCheckpoint.decode((output.out / "checkpoint").read_bytes())
    end = report.sinks[0].end_after
    last = max(record for record in output.records if record.physical_offset < end)
    assert found.logics_msg_timestamp == last.message.store_timestamp
    assert found.physic_msg_timestamp <= found.logics_msg_timestamp
    assert 0 < found.logics_physical_offset <= last.physical_offset
    output.go_on()
    assert (output.out / "checkpoint").read_bytes() == wanted


def test_multi_dispatch_queues_are_not_removed_by_mistake(tmp_path: Path) -> None:
    """Settings that do not derive them are an error, and nothing is touched."""
    output = Output.make(tmp_path, Random(1))
    queue = output.out / "consumequeue" / "%LMQ%a" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020d}").write_bytes(struct.pack(">qiq", 0, 100, 0).ljust(100, b"\0"))
    before = files_below(output.out)
    with pytest.raises(SinkError, match="is a queue of multi dispatch"):
        recover_output(output.config, output.store, output.out)
    assert files_below(output.out).keys() - {"lock"} == before.keys()


@pytest.mark.parametrize(
    ("unclean", "physic", "expected"),
    [(False, 0, -3), (True, 10_000_000_000_000, -1), (True, 0, 0), (True, 1_700_000_003_000, 0)],
)
def test_where_a_broker_would_begin(unclean: bool, physic: int, expected: int, tmp_path: Path) -> None:
    """The last three segments, or the last one whose first record is older than the checkpoint by three seconds."""
    output = Output.make(tmp_path, Random(2), 80)
    checkpoint = StoreCheckpoint(physic, physic, 0)
    (output.out / "checkpoint").write_bytes(checkpoint.encode())
    if unclean:
        (output.store / "abort").touch()
    report = recover_output(output.config, output.store, output.out, dry_run=True)
    segments = [int(path.name) for path in sorted(output.log.iterdir())]
    assert report.broker_recovers_from == segments[expected]
    assert report.unclean == unclean


# The end of an output's queues, which a 5.5.0 broker asks for after a clean stop, and its checkpoint, which it asks
# otherwise: how far the queues are on disk (`logicsPhysicalOffset`), or their time if an older broker wrote it.
@pytest.mark.parametrize(
    ("unclean", "done", "logics_offset", "logics_ms", "expected"),
    [
        (False, 1.0, 0, 0, -1),
        (False, 0.0, 0, 0, -10),
        (True, 1.0, 10**12, 0, -1),
        (True, 1.0, 4 * 2000, 0, 4),
        (True, 1.0, 4 * 2000 - 1, 10_000_000_000_000, 3),
        (True, 1.0, 0, 10_000_000_000_000, -1),
        (True, 1.0, 0, 0, -10),
    ],
)
def test_where_a_5_5_0_broker_would_begin(
    unclean: bool, done: float, logics_offset: int, logics_ms: int, expected: int, tmp_path: Path
) -> None:
    """No further back than ten segments, where its first record is sound."""
    output = Output.make(tmp_path, Random(2), 160, done=done)
    others = struct.pack(">qqq", 0, 0, logics_offset)
    (output.out / "checkpoint").write_bytes(StoreCheckpoint(0, logics_ms, 0, others).encode())
    if unclean:
        (output.store / "abort").touch()
    config = replace(output.config, broker=replace(output.config.broker, version="5.5.0"))
    report = recover_output(config, output.store, output.out, dry_run=True)
    segments = [int(path.name) for path in sorted(output.log.iterdir())]
    assert segments[4] == 4 * 2000
    assert len(segments) in (11, 12, 13)
    assert report.broker_recovers_from == segments[expected]
