"""The last record that was read: whether the log still has it, and what is trusted without following it."""

from __future__ import annotations

from pathlib import Path

from support.logs import load_log, put_bytes
from support.record_writer import Message

from reput.source.log.log_reader import LastRecordWatch, last_record_before, record_at
from reput.source.log.range_reader import Boundaries
from reput.source.record.damage import STOP

SIZE = 4096


def test_only_the_record_that_was_found_is_trusted_unfollowed(tmp_path: Path) -> None:
    """Another process may have read another record, which is whole but to which nothing leads any more."""
    queue, records = load_log(tmp_path, [Message(body=bytes([number])) for number in range(4)], SIZE)
    found = last_record_before(queue, records[2].physical_offset, STOP, Boundaries())
    other = record_at(queue.files[0], records[2].physical_offset)
    assert found is not None
    assert other is not None
    put_bytes(queue.files[0].path, records[0].physical_offset + 4, b"none")  # the broker cut the log here
    watches = [LastRecordWatch() for _ in range(3)]
    for watch in watches[:2]:
        watch.note_found(found)
    asked = zip(watches, (found, other, found), strict=True)
    assert [watch.is_there(queue, known, [0], is_idle=False) for watch, known in asked] == [True, False, False]
