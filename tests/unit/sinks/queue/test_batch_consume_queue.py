"""The BatchConsumeQueue of 5.x: entries, batches cut anywhere and restarts."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.record_writer import Message, write_log
from support.sink_runner import LogBatches, files_below, no_fsync

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.source.errors import OptionError, SinkError

UNIT = struct.Struct(">qiqqqhii")
NEEDS = LogicNeeds(batch_topics=frozenset({b"B"}), index=False)


def inner_batches(count: int) -> list[Message]:
    """Inner batches of topic B in two queues, and messages between that get no entry there."""
    messages = []
    base = [0, 0]
    for number in range(count):
        queue, size = number % 2, 1 + number % 5
        inner = {"INNER_NUM": str(size), "INNER_BASE": str(base[queue]), "TAGS": "t"}
        base[queue] += size
        messages.append(Message("B", queue, queue_offset=base[queue], store_timestamp=1_000 + number, properties=inner))
        messages.append(Message("A", 0))
        messages.append(Message("B", 0, queue_offset=0, properties={"INNER_NUM": "2"}))  # no base
    return messages


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_entries_by_the_layout(tmp_path: Path, step: int) -> None:
    """46 bytes each, in files of three, the same after a restart before each batch and one batch written twice."""
    records = write_log(tmp_path / "commitlog", inner_batches(20))
    expected: dict[str, bytes] = {}
    for queue in (0, 1):
        entries = [
            UNIT.pack(
                record.physical_offset,
                record.msg_size,
                ord("t"),
                record.message.store_timestamp,
                int(record.message.properties["INNER_BASE"]),  # type: ignore[call-overload]
                int(record.message.properties["INNER_NUM"]),  # type: ignore[call-overload]
                -1,
                0,
            )
            for record in records
            if record.message.queue_id == queue and "INNER_BASE" in record.message.properties
        ]
        assert len(entries) == 10
        for first in range(0, len(entries), 3):
            name = f"batchconsumequeue/B/{queue}/{first * 46:020d}"
            expected[name] = b"".join(entries[first : first + 3]).ljust(138, b"\0")
    batches = LogBatches(tmp_path / "commitlog", needs=NEEDS)
    offsets = [record.physical_offset for record in records]
    cuts = [*offsets[::step], records[-1].physical_offset + records[-1].msg_size]
    with no_fsync():
        for start, end in zip(cuts, cuts[1:], strict=False):
            files = DurableFiles(tmp_path / "output")
            sink = BatchConsumeQueueSink(files, 138)
            assert sink.recover(0).end_offset == start
            sink.write(batches(start, end))
            sink.write(batches(start, end))
            files.close()
    found = files_below(tmp_path / "output")
    assert {name: data for name, data in found.items() if name.startswith("batch")} == expected


def test_a_dropped_entry_comes_again(tmp_path: Path) -> None:
    """Entries behind the progress record are dropped at recovery, and the batch's replay writes them once."""
    records = write_log(tmp_path / "commitlog", inner_batches(8))
    end = records[-1].physical_offset + records[-1].msg_size
    batches = LogBatches(tmp_path / "commitlog", needs=NEEDS)
    middle = records[9].physical_offset
    files = DurableFiles(tmp_path / "output")
    sink = BatchConsumeQueueSink(files, 138)
    sink.recover(0)
    sink.write(batches(0, middle))
    progress = tmp_path / "output" / "reput" / "progress" / "batchconsumequeue.json"
    known = progress.read_bytes()
    sink.write(batches(middle, end))
    whole = files_below(tmp_path / "output" / "batchconsumequeue")
    progress.write_bytes(known)
    sink = BatchConsumeQueueSink(files, 138)
    assert sink.recover(0).end_offset == middle
    assert files_below(tmp_path / "output" / "batchconsumequeue") != whole
    sink.write(batches(middle, end))
    assert files_below(tmp_path / "output" / "batchconsumequeue") == whole
    (tmp_path / "output" / "batchconsumequeue" / "B" / "1" / f"{138:020d}").unlink()
    with pytest.raises(SinkError, match="files are missing or were changed"):
        BatchConsumeQueueSink(files, 138).recover(0)
    files.close()


def test_a_size_that_no_broker_can_fill_is_refused(tmp_path: Path) -> None:
    """The broker's own appends fail at the end of such a file."""
    with pytest.raises(OptionError, match="a multiple of 46"):
        BatchConsumeQueueSink(DurableFiles(tmp_path), 4601)
