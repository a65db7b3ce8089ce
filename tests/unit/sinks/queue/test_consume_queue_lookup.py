"""Queue entries by offset, and offsets by time: the broker's bounds and rules, and files that are damaged."""

from __future__ import annotations

import random
import struct
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import pytest

from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.lookup import ConsumeQueueEntry, ConsumeQueueLookup
from reput.sinks.queue.queue_reader import QueueReader
from reput.source.errors import SegmentError, SinkError

PRE_BLANK = (0, 0x7FFFFFFF, 0)
UNWRITTEN = (0, 0, 0)
A_FILE = 4  # entries

Unit = tuple[int, int, int]


def write_queue(root: Path, units: Sequence[Unit], first_file: int = 0) -> Path:
    """Files of `A_FILE` entries, the last one filled with unwritten ones."""
    directory = root / "consumequeue" / "T" / "0"
    directory.mkdir(parents=True, exist_ok=True)
    for at in range(0, len(units), A_FILE):
        content = b"".join(struct.pack(">qiq", *unit) for unit in units[at : at + A_FILE])
        name = f"{(first_file * A_FILE + at) * 20:020d}"
        (directory / name).write_bytes(content.ljust(A_FILE * 20, b"\0"))
    return directory


def units(count: int, first: int = 0) -> list[Unit]:
    """Entry i points to offset 100 * i."""
    return [(100 * i, 100, i) for i in range(first, first + count)]


def open_queue(root: Path, min_phy_offset: int = 0) -> ConsumeQueueLookup:
    return ConsumeQueueLookup.open(root, "T", 0, min_phy_offset)


def bounds(root: Path, min_phy_offset: int = 0) -> tuple[int, int]:
    queue = open_queue(root, min_phy_offset)
    return queue.min_offset, queue.max_offset


def test_entries_over_files(tmp_path: Path) -> None:
    """Every entry of three files by its offset."""
    write_queue(tmp_path, units(10))
    queue = open_queue(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (0, 10)
    assert [queue.entry(i) for i in range(10)] == [ConsumeQueueEntry(i, 100 * i, 100, i) for i in range(10)]


@pytest.mark.parametrize(
    ("content", "min_phy_offset", "wanted"),
    [
        (units(8), 0, (0, 8)),  # the last file is full
        (units(10), 300, (3, 10)),
        (units(10), 301, (4, 10)),
        (units(10), 900, (9, 10)),
        (units(10), 901, (10, 10)),  # all expired: 5.x's rule; 4.9.3 keeps the bound that it had
        ([PRE_BLANK, PRE_BLANK, *units(3, 2)], 0, (2, 5)),
        ([PRE_BLANK] * 5 + units(2, 5), 400, (5, 7)),
        ([PRE_BLANK, PRE_BLANK], 0, (2, 2)),
        ([UNWRITTEN], 0, (0, 0)),
        ([*units(2), (200, 0, 0), (300, 100, 3)], 0, (0, 2)),  # stale, after the end
        ([*units(2), (-1, 100, 0), (300, 100, 3)], 0, (0, 2)),
        ([*units(2), UNWRITTEN, UNWRITTEN, *units(4, 4), *units(2, 8)], 0, (0, 2)),
        # Files before the last three are trusted, as in the broker's recovery.
        ([*units(2), UNWRITTEN, UNWRITTEN, *units(10, 4)], 0, (0, 14)),
    ],
)
def test_bounds(content: list[Unit], min_phy_offset: int, wanted: tuple[int, int], tmp_path: Path) -> None:
    """From the first entry that points into the log to the first that is not valid."""
    write_queue(tmp_path, content)
    assert bounds(tmp_path, min_phy_offset) == wanted


def test_a_file_that_expires_under_it(tmp_path: Path) -> None:
    """The log is seen as it was before the file went: the queue begins with the next one."""
    directory = write_queue(tmp_path, units(10))
    reader = QueueReader(tmp_path, KIND, 20 * A_FILE, b"T", 0)
    assert len(reader.files) == 3
    (directory / f"{0:020d}").unlink()
    assert reader.min_offset(100, 10) == 4


def test_a_queue_whose_first_files_expired(tmp_path: Path) -> None:
    """Offsets count from the name of the first file, not from its place in the row."""
    write_queue(tmp_path, units(6, 8), first_file=2)
    queue = open_queue(tmp_path, 900)
    assert (queue.min_offset, queue.max_offset) == (9, 14)
    assert queue.entry(9).physical_offset == 900
    with pytest.raises(SinkError, match="00000000000000000080 has no entry 7 of queue 0 of topic 'T' at byte 60"):
        queue.entry(7)


def test_third_fields(tmp_path: Path) -> None:
    """A ConsumeQueueExt address is below every int32; a negative hash is a tags code."""
    codes = [0, -1, -(2**31), -(2**31) - 1, -(2**63), 2**63 - 1]
    write_queue(tmp_path, [(100 * i, 100, code) for i, code in enumerate(codes)])
    entries = [open_queue(tmp_path).entry(i) for i in range(len(codes))]
    assert [entry.tags_code for entry in entries] == codes
    assert [entry.ext_address for entry in entries] == [None, None, None, -(2**31) - 1, -(2**63), None]


def test_a_missing_file_in_the_row(tmp_path: Path) -> None:
    """The other files' entries are still there."""
    directory = write_queue(tmp_path, units(12))
    (directory / f"{80:020d}").unlink()
    queue = open_queue(tmp_path)
    assert [queue.entry(i).physical_offset for i in (3, 8)] == [300, 800]
    with pytest.raises(SinkError, match=r"has no entry 5 of .*: .*the file is missing from the row"):
        queue.entry(5)


def test_files_that_are_no_queue(tmp_path: Path) -> None:
    """Sizes that differ, that are not whole entries, or that change meanwhile: the error names the file."""
    directory = write_queue(tmp_path, units(8))
    queue = open_queue(tmp_path)
    (directory / f"{80:020d}").write_bytes(bytes(60))
    with pytest.raises(SinkError, match=f"{80:020d} has no entry 7 of .* at byte 60: .*was cut while it was read"):
        queue.entry(7)
    with pytest.raises(SegmentError, match=f"{80:020d} has 60 bytes"):
        open_queue(tmp_path)
    for path in directory.iterdir():
        path.unlink()
    with pytest.raises(SinkError, match=r"has no entry 0 of .*: .*the file is missing from the row"):
        queue.entry(0)
    (directory / f"{0:020d}").write_bytes(bytes(90))
    with pytest.raises(SinkError, match=f"{0:020d} has 90 bytes, which is not a multiple of 20"):
        open_queue(tmp_path)


def test_no_queue(tmp_path: Path) -> None:
    """The directory is named; a name that leads elsewhere makes none."""
    with pytest.raises(SinkError, match=rf"no queue 0 of topic 'T' at {tmp_path}/consumequeue/T/0"):
        open_queue(tmp_path)
    for topic in ("../../x", "", "a/b", "..", "\udcff"):
        with pytest.raises(SinkError, match="not the printable name of one directory"):
            ConsumeQueueLookup.open(tmp_path, topic, 0, 0)
    write_queue(tmp_path, units(1)).joinpath(f"{0:020d}").unlink()
    assert bounds(tmp_path) == (0, 0)


def by_time(root: Path, times: Sequence[int], timestamp: int, min_phy_offset: int = 0) -> int:
    def store_time(entry: ConsumeQueueEntry) -> int:
        assert entry.physical_offset >= min_phy_offset, "an expired record was asked for"
        return times[entry.queue_offset]

    return open_queue(root, min_phy_offset).offset_in_queue_by_time(timestamp, store_time)


@pytest.mark.parametrize("seed", range(60))
def test_times_equal_a_search_in_order(seed: int, tmp_path: Path) -> None:
    """Where time goes forward: the first entry not before the time, over files, equal times and expired entries."""
    rng = random.Random(seed)
    count = rng.randint(1, 30)
    times = [1000]
    while len(times) < count:
        times.append(times[-1] + rng.choice([0, 0, 1, 3]))
    expired = rng.choice([0, rng.randint(0, count - 1)])
    write_queue(tmp_path, units(count))
    for timestamp in range(998, times[-1] + 3):
        wanted = bisect_left(times, timestamp, expired)
        assert by_time(tmp_path, times, timestamp, 100 * expired) == wanted


@pytest.mark.parametrize(
    ("times", "timestamp", "wanted"),
    [
        ([10, 20, 30], 15, 1),  # 4.9.3 takes the nearer one, of two equally near the first
        ([10, 20, 30], 5, 0),
        ([10, 20, 30], 31, 3),
        ([10, 20, 20, 20, 30, 40, 50], 20, 1),
        ([10, 10, 20, 20, 20, 20], 20, 2),
        # The clock went back: the first file that ends late enough is searched by halves.
        ([50, 60, 70, 80, 10, 20, 30], 30, 0),
        ([50, 10, 10, 10, 10, 20, 30], 20, 5),
        ([20, 10, 20, 20], 20, 2),
    ],
)
def test_times_by_5x_rule(times: list[int], timestamp: int, wanted: int, tmp_path: Path) -> None:
    """The boundary LOWER, also where times are not in order."""
    write_queue(tmp_path, units(len(times)))
    assert by_time(tmp_path, times, timestamp) == wanted


def test_times_of_a_queue_without_entries(tmp_path: Path) -> None:
    """Its end, and no record is asked for."""
    write_queue(tmp_path, [PRE_BLANK] * 3)
    assert by_time(tmp_path, [], 5) == 3
    write_queue(tmp_path, units(3))
    assert by_time(tmp_path, [], 5, 300) == 3
