"""ConsumeQueue files: equal to the model for any log and any batches, and each of the broker's rules by name."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import Settings, consume_queue_files
from support.record_writer import Message, write_log
from support.sink_runner import (
    MEMORY,
    SMALL,
    LogBatches,
    SinkRun,
    batch_of,
    expected_queue_files,
    files_below,
    no_fsync,
    queue_files,
    record_bounds,
)

from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.queue.consume_queue import (
    ConsumeQueue,
    ConsumeQueueSink,
    QueueAppend,
    rounded_file_size,
    write_queue_appends,
)
from reput.source.errors import SinkError

RESTART = None
TYPES = [0x0, 0x4, 0x8, 0xC]
FEWER = settings(max_examples=settings().max_examples // 2)  # an example takes 20 ms


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Message], Settings]:
    """Messages of several queues, whose offsets mostly run on, and files of 2 to 5 entries."""
    units = draw(st.integers(2, 5))
    first = st.sampled_from([0, 0, 1, units - 1, units, units + 1, 3 * units])
    step = st.sampled_from([1] * 12 + [0, -1, -3, 2, units, 7, RESTART])
    queue = st.tuples(st.sampled_from(["A", "TopicB", "%RETRY%g"]), st.sampled_from([0, 7]))
    kind = st.sampled_from([0x0] * 6 + TYPES)
    queue_offsets: dict[tuple[str, int], int] = {}
    messages = []
    size = draw(st.integers(1, 40))
    for (topic, queue_id), by, sys_flag in draw(st.lists(st.tuples(queue, step, kind), min_size=size, max_size=size)):
        key = (topic, queue_id)
        known = queue_offsets.get(key)
        queue_offsets[key] = draw(first) if known is None else 0 if by is RESTART else max(0, known + by)
        tags = {"TAGS": f"tag{len(messages) % 3}"}
        messages.append(Message(topic, queue_id, queue_offsets[key], properties=tags, sys_flag=sys_flag))
    return messages, Settings(mapped_file_size_consume_queue=20 * units - draw(st.integers(0, 19)))


def open_sink(root: Path, mapped_file_size: int, stack: ExitStack) -> ConsumeQueueSink:
    """A new run's sink, recovered; its files are closed with `stack`."""
    sink = ConsumeQueueSink(stack.enter_context(closing(DurableFiles(root))), mapped_file_size)
    sink.recover(0)
    return sink


def cut_by(data: st.DataObject, allowed: Sequence[int]) -> list[int]:
    """Draw batches that cover the whole log."""
    inner = data.draw(st.sets(st.sampled_from(allowed)), label="cuts")
    return sorted(inner | {allowed[0], allowed[-1]})


@given(logs(), st.data())
@FEWER
def test_any_log_in_any_batches_equals_the_model(log: tuple[list[Message], Settings], data: st.DataObject) -> None:
    """Whatever the queue offsets do and wherever runs restart, the files are the model's at the end of each batch."""
    messages, settings = log
    size = settings.mapped_file_size_consume_queue
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync(), ExitStack() as stack:
        root = Path(directory)
        records = write_log(root / "log", messages, 1000)
        batches = LogBatches(root / "log")
        sink = open_sink(root / "out", size, stack)
        for start, end in itertools.pairwise(cut_by(data, record_bounds(records))):
            if data.draw(st.integers(0, 3), label="restart at 0") == 0:
                sink = open_sink(root / "out", size, stack)
            sink.write(batches(start, end))
            before_end = [record for record in records if record.physical_offset < end]
            assert queue_files(root / "out") == expected_queue_files(before_end, settings)


@given(logs(), st.data())
@FEWER
def test_replays_and_other_cuts_change_no_byte(log: tuple[list[Message], Settings], data: st.DataObject) -> None:
    """G1: any range given again, before or after its successors, by the same run or the next, has its effect once."""
    messages, settings = log
    size = settings.mapped_file_size_consume_queue
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync(), ExitStack() as stack:
        root = Path(directory)
        records = write_log(root / "log", messages, 1000)
        batches, allowed = LogBatches(root / "log"), record_bounds(records)
        offset = st.sampled_from(allowed)
        span = st.tuples(offset, offset).map(sorted)
        sink = open_sink(root / "out", size, stack)
        for start, end in data.draw(st.lists(span, max_size=5), label="ranges"):
            if start < end and start <= sink.end_offset:
                sink.write(batches(start, end))
        sink.write(batches(0, allowed[-1]))
        assert queue_files(root / "out") == expected_queue_files(records, settings)
        after_all = files_below(root / "out")
        for start, end in data.draw(st.lists(span, max_size=3), label="replays"):
            if start < end:
                sink.write(batches(start, end))
        assert files_below(root / "out") == after_all
        open_sink(root / "out", size, stack).write(batches(0, allowed[-1]))
        assert files_below(root / "out") == after_all


@given(logs(), st.data())
@FEWER
def test_a_tasks_write_that_is_repeated_late_changes_no_byte(
    log: tuple[list[Message], Settings], data: st.DataObject
) -> None:
    """A task that a cluster has given up may write after later waves have filled the files that it made."""
    messages, settings = log
    size = settings.mapped_file_size_consume_queue
    written: list[tuple[PieceEntries, list[QueueAppend]]] = []
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync(), ExitStack() as stack:
        root = Path(directory)

        def write(entries: PieceEntries, appends: list[QueueAppend]) -> None:
            with closing(DurableFiles(root / "out")) as of_task:
                write_queue_appends(of_task, size, entries, appends)

        def write_as_task(entries: PieceEntries, appends: list[QueueAppend]) -> None:
            written.append((entries, appends))
            write(entries, appends)

        records = write_log(root / "log", messages, 1000)
        batches, sink = LogBatches(root / "log"), open_sink(root / "out", size, stack)
        for start, end in itertools.pairwise(cut_by(data, record_bounds(records))):
            sink.write(batches(start, end), write_as_task)
            write(*data.draw(st.sampled_from(written), label="a late write"))
        assert queue_files(root / "out") == expected_queue_files(records, settings)


def test_a_batch_that_would_skip_records_is_refused(tmp_path: Path) -> None:
    """A batch that begins behind the sink's end is an error that names both places, and leaves no trace."""
    records = write_log(tmp_path / "log", [Message()] * 6)
    batches, third = LogBatches(tmp_path / "log"), records[2].physical_offset
    with SinkRun(tmp_path / "out", SMALL) as run:
        before = files_below(tmp_path / "out")
        with pytest.raises(SinkError, match=f"ends at 0 and the batch begins at {third}"):
            run.queues.write(batches(third, record_bounds(records)[-1]))
        with pytest.raises(SinkError, match=f"ends at 0 and the batch begins at {third}"):
            run.index.write(batches(third, record_bounds(records)[-1]))
    assert files_below(tmp_path / "out") == before


# --- the rules by name -----------------------------------------------------------------------------------

ZERO, PRE_BLANK = (0, 0, 0), (0, 0x7FFFFFFF, 0)


def entries(at: int) -> tuple[int, int, int]:
    return (at, 100, 0)


RULES = {
    "C: begins in the middle of a file": ([(0, 4)], {60: [PRE_BLANK, entries(0), ZERO]}),
    "C: begins at a file's last place": ([(0, 5)], {60: [PRE_BLANK, PRE_BLANK, entries(0)]}),
    "C: begins at a file's start": ([(0, 3)], {60: [entries(0), ZERO, ZERO]}),
    "D: repeated": ([(0, 0), (100, 1), (200, 1)], {0: [entries(0), entries(100), ZERO]}),
    "D: gone back": ([(0, 3), (100, 4), (200, 3)], {60: [entries(0), entries(100), ZERO]}),
    "D: repeated behind a full file": (
        [(0, 0), (100, 1), (200, 2), (300, 1)],
        {0: [entries(0), entries(100), entries(200)], 60: [ZERO, ZERO, ZERO]},
    ),
    "E: a gap goes where the queue ends": ([(0, 0), (100, 5)], {0: [entries(0), entries(100), ZERO]}),
    "E: then D against the place, not the last offset": (
        [(0, 0), (100, 5), (200, 1), (300, 2)],
        {0: [entries(0), entries(100), entries(300)]},
    ),
    "0 is appended wherever the queue stands": (
        [(0, 0), (100, 1), (200, 0), (300, 0)],
        {0: [entries(0), entries(100), entries(200)], 60: [entries(300), ZERO, ZERO]},
    ),
}


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "one by one"])
@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str, at_once: bool, tmp_path: Path) -> None:
    """Files of 3 entries, records of 100 bytes at (physical offset, queue offset), in one batch and one by one."""
    placed, expected = RULES[rule]
    settings = Settings(mapped_file_size_consume_queue=60)
    with ExitStack() as stack:
        sink = open_sink(tmp_path, 60, stack)
        for step in [placed] if at_once else [[one] for one in placed]:
            sink.write(batch_of(b"T", 3, step))
    found = {int(path[-20:]): list(struct.iter_unpack(">qiq", data)) for path, data in queue_files(tmp_path).items()}
    assert found == expected
    (model,) = consume_queue_files(
        [(at, Message(queue_offset=queue_offset), 100) for at, queue_offset in placed], settings
    ).values()
    assert {at: list(struct.iter_unpack(">qiq", data)) for at, data in model.items()} == expected


def test_rule_a_not_beyond_the_last_record() -> None:
    """A record that ends at or before the last one's end is built already; one that ends a byte later is not."""
    queue = ConsumeQueue(b"T", 3)
    assert len(placed_in(queue, [(0, 0)])) == 1
    assert not len(placed_in(queue, [(0, 1)]))
    assert not len(placed_in(queue, [(0, 0), (0, 1), (0, 2)]))
    assert (queue.end, queue.max_physic_offset) == (20, 100)
    assert placed_in(queue, [(0, 1), (1, 1)]).view(ENTRY)["physical_offset"].tolist() == [[1]]
    assert (queue.end, queue.max_physic_offset) == (40, 101)


def placed_in(queue: ConsumeQueue, placed: list[tuple[int, int]]) -> np.ndarray:
    (incoming,) = batch_of(b"T", 3, placed).entries.all_queues()
    result = queue.plan_append(incoming, 60)
    queue.files = queue.files or [0]
    return result.entries


@pytest.mark.parametrize("queue_offset", [-(2**63), -(2**40), -4, -3, -1, 2**40, 2**58, 2**59, 2**60, 2**62, 2**63 - 1])
def test_a_queue_offset_from_nowhere(queue_offset: int, tmp_path: Path) -> None:
    """G10: a record that lies about its place is refused, or what it makes is small and found again at the start."""
    with ExitStack() as stack:
        try:
            open_sink(tmp_path, 60, stack).write(batch_of(b"T", 0, [(0, queue_offset)]))
        except SinkError as error:
            assert str(queue_offset) in str(error)  # noqa: PT017
        else:
            assert {len(data) for data in queue_files(tmp_path).values()} <= {60}
            assert open_sink(tmp_path, 60, stack).end_offset == 100
        assert {path[:17] for path in queue_files(tmp_path)} <= {"consumequeue/T/0/"}
        assert all(len(path) == 17 + 20 and path[17:].isdecimal() for path in queue_files(tmp_path))


# --- sizes and what is found at start --------------------------------------------------------------------


@pytest.mark.parametrize(("configured", "size"), [(1, 20), (20, 20), (21, 40), (199, 200), (6_000_000, 6_000_000)])
def test_file_size_is_rounded_up_to_whole_entries(configured: int, size: int, tmp_path: Path) -> None:
    """As `getMappedFileSizeConsumeQueue`, and a file has its full size from its first entry on."""
    assert rounded_file_size(configured) == size
    with ExitStack() as stack:
        open_sink(tmp_path, configured, stack).write(batch_of(b"T", 0, [(0, 0)]))
    assert (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").stat().st_size == size


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    """Another setting than the files were made with is an error with path, both sizes and what to do."""
    message = f"{tmp_path}/consumequeue/T/0/{0:020d} has 60 bytes where mappedFileSizeConsumeQueue is 80; give the"
    with ExitStack() as stack:
        open_sink(tmp_path, 60, stack).write(batch_of(b"T", 0, [(0, 0)]))
        with pytest.raises(SinkError, match=message):
            open_sink(tmp_path, 80, stack)


def test_a_missing_queue_is_refused_and_a_missing_folder_derived_again(tmp_path: Path) -> None:
    """One lost queue is an error with the way out; with the whole folder gone the sink begins again by itself."""
    records = write_log(tmp_path / "log", [Message(topic=topic) for topic in "ABABA"])
    batch, out = LogBatches(tmp_path / "log")(0, record_bounds(records)[-1]), tmp_path / "out"
    with ExitStack() as stack:
        open_sink(out, 60, stack).write(batch)
        shutil.rmtree(out / "consumequeue" / "A")
        with pytest.raises(SinkError, match=r"end at 2 entries in all where 5 were written.* remove consumequeue/"):
            open_sink(out, 60, stack)
        shutil.rmtree(out / "consumequeue")
        sink = open_sink(out, 60, stack)
        assert sink.end_offset == 0
        sink.write(batch)
    assert queue_files(out) == expected_queue_files(records, SMALL)


def test_a_lost_progress_record_takes_the_files_over(tmp_path: Path) -> None:
    """As with a broker's files, the sink continues after the last record that any queue has."""
    records = write_log(tmp_path / "log", [Message(topic=topic) for topic in "ABCABCAB"])
    batches, cut, end = LogBatches(tmp_path / "log"), records[5].physical_offset, record_bounds(records)[-1]
    with SinkRun(tmp_path / "out", SMALL) as run:
        run.write(batches(0, cut))
    (tmp_path / "out" / "reput" / "progress" / "consumequeue.json").unlink()
    with SinkRun(tmp_path / "out", SMALL) as run:
        assert run.queues.end_offset == cut
        run.write(batches(0, end))
    assert queue_files(tmp_path / "out") == expected_queue_files(records, SMALL)


def test_a_full_file_was_modified_when_its_last_message_was_stored(tmp_path: Path) -> None:
    """Whether its entries run on or not, in one batch or in two; the time stays as it is where no record is found."""
    stored = {100: 10_000, 300: 30_500, 500: 50_000}  # ms by physical offset; there is no record at 700 any more
    with closing(DurableFiles(tmp_path)) as files:
        sink = ConsumeQueueSink(files, 2 * ENTRY.itemsize, store_time_of=stored.get)
        sink.recover(0)
        sink.write(batch_of(b"T", 0, [(0, 0), (100, 1)]))
        placed = [(200, 2), (300, 3), (400, 4), (500, 5), (600, 6), (700, 7), (800, 8)]
        sink.write(replace(batch_of(b"T", 0, placed), start=200))
        # The last of these is out of order.
        sink.write(replace(batch_of(b"T", 0, [(900, 9), (1000, 12)]), start=900))
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())]
    assert times[:3] == [10_000_000_000, 30_500_000_000, 50_000_000_000]
    assert min(times[3:]) > 60_000_000_000_000


def test_a_time_that_no_file_can_have_is_left_out(tmp_path: Path) -> None:
    """A damaged record may have any; the entries are written all the same, and the file was modified now."""
    with closing(DurableFiles(tmp_path)) as files:
        sink = ConsumeQueueSink(files, ENTRY.itemsize, store_time_of={0: 2**63 - 1, 100: -(2**63), 200: 2**43}.get)
        sink.recover(0)
        sink.write(batch_of(b"T", 0, [(0, 0), (100, 1), (200, 2)]))
    paths = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())
    assert [path.stat().st_size for path in paths] == [ENTRY.itemsize] * 3
    assert all(1.7e9 < path.stat().st_mtime < 8e9 for path in paths)
