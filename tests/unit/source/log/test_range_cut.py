"""Ranges cut at any byte: tasks find the records there, and a forged one in a body is found out by the chain."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from support.logs import end_of, load_log, put_bytes, varied_messages
from support.record_writer import Message, encode

from reput.source.errors import DataLossError
from reput.source.log import range_reader
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import cut_ranges, next_record
from reput.source.record.damage import STOP

SIZE = 4096


def offsets_of(queue: MappedFileQueue, records: list, frame: int) -> list[int]:
    return [record.physical_offset - frame for record in records]


@pytest.mark.parametrize("dledger", [False, True])
@pytest.mark.parametrize("window_bytes", [1 << 20, 200])
def test_next_record_at_every_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dledger: bool, window_bytes: int
) -> None:
    """From each byte of a segment: the first record from there on, its frame first; the stop after the last."""
    monkeypatch.setattr(range_reader, "_WINDOW_BYTES", window_bytes)
    queue, records = load_log(tmp_path, varied_messages(20), SIZE, SIZE, dledger=dledger)
    file = queue.files[0]
    begins = [begin for begin in offsets_of(queue, records, file.frame) if begin < file.end]
    for offset in range(file.file_from_offset, file.end):
        expected = next((begin for begin in begins if begin >= offset), file.end)
        assert next_record(file, offset, file.end, STOP) == expected


def test_a_record_that_crosses_the_stop_is_none(tmp_path: Path) -> None:
    """Nothing crosses a proven offset, so what seems to is a forgery."""
    queue, records = load_log(tmp_path, varied_messages(6), SIZE)
    last = records[2]
    assert next_record(queue.files[0], last.physical_offset, last.physical_offset + last.msg_size - 1, STOP) == (
        last.physical_offset + last.msg_size - 1
    )


@pytest.mark.parametrize("damage", ["magic", "offset", "size"])
def test_what_only_looks_like_a_record_is_passed_over(tmp_path: Path, damage: str) -> None:
    """Magic, own offset and lengths must all agree."""
    queue, records = load_log(tmp_path, [Message(body=b"x" * 50) for _ in range(5)], SIZE)
    at = records[2].physical_offset
    put_bytes(queue.files[0].path, at + {"magic": 4, "offset": 28, "size": 0}[damage], b"\0\0\1\2")
    assert next_record(queue.files[0], at, end_of(records), STOP) == records[3].physical_offset


@pytest.mark.parametrize("seed", range(4))
def test_cuts_settle_to_ranges_that_follow_each_other(tmp_path: Path, seed: int) -> None:
    """Whatever the size of ranges and waves, and wherever they begin: every record is in one range."""
    rng = random.Random(seed)
    queue, records = load_log(tmp_path, varied_messages(60, seed=seed), SIZE)
    offsets = offsets_of(queue, records, 0)
    end = end_of(records)
    for _ in range(40):
        start = rng.choice(offsets)
        bytes_a_range, bytes_max = rng.randrange(1, 2 * SIZE), rng.randrange(1, 5 * SIZE)
        at = start
        while at < end:
            wave = [cut.settle(STOP) for cut in cut_ranges(queue, at, end, bytes_a_range, bytes_max)]
            assert wave[0].start == at
            assert all(first.end == second.start for first, second in zip(wave, wave[1:], strict=False))
            assert all(span.file.file_from_offset <= span.start <= span.end <= span.file.end for span in wave)
            assert all(span.start in offsets or span.start in {f.end for f in queue.files} | {end} for span in wave)
            assert wave[-1].end > at
            at = wave[-1].end
        assert at == end


def test_a_forged_record_is_found(tmp_path: Path) -> None:
    """A body that holds a whole record with the offset it has: the cut settles on it, and the chain will not."""
    first = Message(body=b"")
    begin = len(encode(first, 0)) + 88
    forged = encode(Message(body=b"forged"), begin)
    queue, records = load_log(tmp_path, [first, replace(first, body=forged + b"x" * 300), first, first], SIZE)
    assert records[1].physical_offset + 88 == begin
    assert next_record(queue.files[0], begin - 1, end_of(records), STOP) == begin


def test_a_segment_that_has_gone(tmp_path: Path) -> None:
    """The log expires or is cut while a task looks for a record."""
    queue, _ = load_log(tmp_path, varied_messages(20), SIZE)
    Path(queue.files[0].path).write_bytes(b"")
    with pytest.raises(DataLossError, match="is shorter than its 4096 bytes"):
        next_record(queue.files[0], 0, SIZE, STOP)
    Path(queue.files[0].path).unlink()
    with pytest.raises(DataLossError, match="is gone"):
        next_record(queue.files[0], 0, SIZE, STOP)
    with pytest.raises(DataLossError, match="no file with offset"):
        cut_ranges(MappedFileQueue((), ()), 0, 10, 5, 5)
