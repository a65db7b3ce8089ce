"""The broker's queue in memory puts what the sink writes, and cuts as 4.9.3's own source says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.formats.consume_queue import BATCH_ENTRY, ENTRY
from reput.sinks.queue.broker_queue import BrokerBatchQueue, BrokerQueue, BrokerRocksDBQueue, QueueFile
from reput.sinks.queue.consume_queue import ConsumeQueue
from reput.sinks.queue.rocksdb_queue import Place

UNITS_A_FILE = 5
FILE_BYTES = UNITS_A_FILE * 20
QUEUE_OFFSETS = st.one_of(st.none(), st.integers(0, 30))


def entries_of(sizes: list[int], first_offset: int = 0) -> np.ndarray:
    """Entries of records that follow each other in the log."""
    units = np.zeros(len(sizes), ENTRY)
    units["msg_size"] = sizes
    units["physical_offset"] = first_offset + np.cumsum([0, *sizes[:-1]]) if sizes else []
    return units.view(np.uint8).reshape(-1, 20)


@given(offsets=st.lists(st.lists(QUEUE_OFFSETS, min_size=1, max_size=12), max_size=5))
def test_puts_what_the_sink_writes(offsets: list[list[int | None]]) -> None:
    """Runs, gaps, repeats and restarts, in whatever batches: the same entries, the same end, the same last record."""
    broker, sink = BrokerQueue("T", 0, FILE_BYTES), ConsumeQueue(b"T", 0)
    written: dict[int, bytes] = {}
    at = 0
    for batch in offsets:
        numbers = []
        for wanted in batch:  # None: the next one
            numbers.append(wanted if wanted is not None else (numbers[-1] + 1 if numbers else sink.end // 20))
        entries, queue_offsets = entries_of([100] * len(batch), at), np.array(numbers, np.int64)
        at += 100 * len(batch)
        broker.put(entries, queue_offsets)
        append = sink.plan_append(QueueEntries(b"T", 0, entries, queue_offsets), FILE_BYTES)
        written |= {append.begin // 20 + row: entry.tobytes() for row, entry in enumerate(append.entries)}
        sink.files = [*range(0, sink.end + 1, FILE_BYTES)]
        assert (broker.max_offset * 20, broker.max_physic_offset) == (sink.end, sink.max_physic_offset)
    found = {
        file.begin // 20 + row: unit.tobytes()
        for file in broker.files
        for row, unit in enumerate(file.units[: file.wrote // 20])
    }
    assert found == written


def stored(directory: Path, sizes: list[int]) -> BrokerQueue:
    """A queue whose files were loaded, with the entries of records of these sizes; 0 leaves an entry out."""
    data = entries_of(sizes).tobytes()
    files = []
    for begin in range(0, len(data), FILE_BYTES):
        path = directory / f"{begin:020d}"
        path.write_bytes(data[begin : begin + FILE_BYTES].ljust(FILE_BYTES, b"\0"))
        files.append(QueueFile(begin, FILE_BYTES, path))
    return BrokerQueue("T", 0, FILE_BYTES, files)


def test_recovers_to_the_last_entry(tmp_path: Path) -> None:
    queue = stored(tmp_path, [100] * 12)
    queue.recover()
    assert (queue.max_offset, queue.max_physic_offset, queue.removed) == (12, 1200, [])


def test_recovery_looks_at_three_files_and_removes_what_is_behind_a_gap(tmp_path: Path) -> None:
    """An entry that is missing before them is not seen; one in them ends the queue, and later files go."""
    sizes = [100] * 25
    sizes[2] = 0
    queue = stored(tmp_path, sizes)
    queue.recover()
    assert queue.max_offset == 25
    sizes[17] = 0
    (tmp_path / "other").mkdir()
    queue = stored(tmp_path / "other", sizes)
    queue.recover()
    assert queue.max_offset == 17
    assert [path.name for path in queue.removed] == [f"{20 * 20:020d}"]


@pytest.mark.parametrize(("cut", "max_offset", "removed"), [(2000, 12, 0), (1100, 11, 0), (1000, 10, 1), (0, 0, 3)])
def test_truncates_to_an_offset_of_the_log(cut: int, max_offset: int, removed: int, tmp_path: Path) -> None:
    queue = stored(tmp_path, [100] * 12)
    queue.recover()
    queue.truncate(cut)
    assert (queue.max_offset, queue.max_physic_offset) == (max_offset, 100 * max_offset)
    assert len(queue.removed) == removed


def test_a_first_entry_that_stays_counts_whatever_it_is(tmp_path: Path) -> None:
    """A last file that was made and has no entry yet gets one of zeros (``truncateDirtyLogicFiles``)."""
    queue = stored(tmp_path, [100] * 5)
    queue.files.append(QueueFile(FILE_BYTES, 0))
    queue.truncate(2000)
    assert (queue.max_offset, queue.max_physic_offset) == (6, 0)


def test_zeros_between_entries_are_no_entries(tmp_path: Path) -> None:
    """Recovery does not read the files before the last three, and keeps their bytes."""
    sizes = [100] * 25
    sizes[1] = sizes[2] = 0
    queue = stored(tmp_path, sizes)
    queue.recover()
    queue.files[0].units[1:3] = np.zeros(2, ENTRY)
    assert (queue.max_offset, queue.entries_from(0), queue.entries_in([(0, 10_000)])) == (25, 23, 23)


def batch_queue(directory: Path, counts: list[int]) -> BrokerBatchQueue:
    """Load a BatchConsumeQueue of inner batches with these numbers of messages, in records of 100 bytes; 0: none."""
    units = np.zeros(len(counts), BATCH_ENTRY)
    units["physical_offset"], units["msg_size"] = np.arange(len(counts)) * 100, 100
    units["msg_base_offset"], units["batch_size"] = np.cumsum([0, *counts[:-1]]), counts
    data, files, size = units.tobytes(), [], UNITS_A_FILE * 46
    for begin in range(0, len(data), size):
        path = directory / f"{begin:020d}"
        path.write_bytes(data[begin : begin + size].ljust(size, b"\0"))
        files.append(QueueFile(begin, size, path, unit=BATCH_ENTRY))
    return BrokerBatchQueue("T", 0, size, files)


@pytest.mark.parametrize(
    ("cut", "max_offset", "reached"),
    [(2000, 36, 1100), (1100, 33, 1000), (1050, 33, 1000), (1000, 30, 900), (0, 0, -1)],
)
def test_a_batch_queue(cut: int, max_offset: int, reached: int, tmp_path: Path) -> None:
    """The next queue offset is after the last batch; a queue reaches to where its last record begins."""
    queue = batch_queue(tmp_path, [3] * 12)
    queue.recover()
    assert (queue.max_offset, queue.max_physic_offset) == (36, 1100)
    queue.truncate(cut)
    assert (queue.max_offset, queue.max_physic_offset) == (max_offset, reached)
    more = batch_queue(tmp_path, [3] * 14).files[-1].units[:4]
    queue.put(more.view(np.uint8).reshape(-1, 46), more["msg_base_offset"].astype(np.int64))
    assert (queue.max_offset, queue.max_physic_offset) == (42, 1300)


def test_a_batch_without_messages_ends_the_recovery_of_a_batch_queue(tmp_path: Path) -> None:
    queue = batch_queue(tmp_path, [3, 3, 3, 0, 3])
    queue.recover()
    assert (queue.max_offset, queue.max_physic_offset) == (9, 200)


def in_rocksdb(count: int, first: Place | None = None) -> BrokerRocksDBQueue:
    """A queue whose records of 100 bytes follow each other from offset 1000 on."""
    queue = BrokerRocksDBQueue("T", 0, 0, first=first)
    queue.put(entries_of([100] * count, 1000), np.arange(count))
    return queue


@pytest.mark.parametrize(
    ("cut", "max_offset"),
    [
        # Between two records, where the search comes to its end.
        (1450, 5),
        (1050, 1),
        # At the record that the search looks at first, then, and at last.
        (1400, 1),
        (1700, 5),
        (1800, 8),
        (1900, 9),
        # No entry is before: the broker leaves the queue as it was, or takes its first one for the last.
        (950, 10),
        (1000, 1),
    ],
)
def test_a_queue_in_rocksdb_is_cut_as_the_broker_searches(cut: int, max_offset: int) -> None:
    queue = in_rocksdb(10)
    queue.cut(cut, 0)
    assert queue.max_offset == max_offset


def test_a_queue_in_rocksdb_is_searched_from_its_first_entry_on() -> None:
    """From the one that a broker has looked for, unless it has expired; then from the first that the log has."""
    known, expired = in_rocksdb(10, Place(1200, 2)), in_rocksdb(10, Place(1000, 0))
    known.cut(1600, 1200)
    expired.cut(1500, 1250)
    assert (known.max_offset, expired.max_offset) == (6, 5)


def test_of_a_queue_that_is_named_twice_the_first_entry_is_the_last() -> None:
    queue = BrokerRocksDBQueue("%LMQ%a", 0, 0)
    entries = entries_of([100, 100], 0)
    queue.put(np.concatenate([entries, entries[1:]]), np.array([0, 1, 2]))
    assert (queue.max_offset, queue.last_end) == (2, 200)
