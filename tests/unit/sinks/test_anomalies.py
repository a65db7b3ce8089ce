"""Anomalies: each has the broker's effect on queues and index, is counted by its cause, and floods no log."""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable
from support.anomaly_logs import CASES, SETTINGS, of_topic, offsets, queue_counts, write_all_cases
from support.logs import end_of, put_bytes
from support.model import Record, Settings, anomalies
from support.record_writer import CommitLogWriter, Message, encode, write_log
from support.seen_log import SeenLog
from support.sink_runner import (
    MEMORY,
    LogBatches,
    SinkRun,
    batch_of,
    check_output,
    files_below,
    no_fsync,
    queue_files,
    record_bounds,
)
from support.tail_runs import quiet_reporter

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, anomaly_at_end
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.queue.consume_queue import ConsumeQueue
from reput.source.data_source import CommitLogStreamReader
from reput.source.errors import CorruptRecordError, SinkError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.options import SourceOptions
from reput.source.record.message_decoder import Verdict
from reput.streaming.status.batch_report import BatchReport, LogEnd

SIZE = 1024


def named(counts: AnomalyCounts) -> dict[str, int]:
    return {name: count for name, count in asdict(counts).items() if count}


def dispatch(root: Path, log: Path, cuts: list[int], settings: Settings = SETTINGS) -> dict[str, int]:
    """Run both sinks over the log, a batch between each two cuts; gives what was met."""
    batches = LogBatches(log)
    with no_fsync(), SinkRun(root, settings, cuts[0]) as run:
        for start, end in itertools.pairwise(cuts):
            run.write(batches(start, end))
        return named(run.anomalies)


def one_batch(allowed: list[int]) -> list[int]:
    return [allowed[0], allowed[-1]]


def one_by_one(allowed: list[int]) -> list[int]:
    return allowed


CUTS = [one_batch, one_by_one]


# --- queues and index ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("topic", CASES)
def test_case(topic: str, cut: Callable[[list[int]], list[int]], tmp_path: Path) -> None:
    """The files are those of the model of the broker, the counts the model's and those written beside the case."""
    records = write_log(tmp_path / "log", of_topic(topic))
    found = dispatch(tmp_path / "out", tmp_path / "log", cut(record_bounds(records)))
    check_output(tmp_path / "out", records, SETTINGS)
    assert found == anomalies(records, SETTINGS) == dict(CASES[topic].counts)


@pytest.mark.parametrize("cut", CUTS)
def test_all_cases_in_one_log(cut: Callable[[list[int]], list[int]], tmp_path: Path) -> None:
    """Interleaved, over several segments, one of them a blank only, with whole old records behind another's blank."""
    records = write_all_cases(tmp_path / "log")
    found = dispatch(tmp_path / "out", tmp_path / "log", cut(record_bounds(records)))
    check_output(tmp_path / "out", records, SETTINGS)
    assert found == anomalies(records, SETTINGS)
    assert found.pop("store_time_backwards") > 0
    assert found == queue_counts()


@st.composite
def disordered(draw: st.DrawFn) -> list[Message]:
    """Messages of two queues with any queue offsets, mostly near each other, and any store times."""
    near = st.integers(0, 12)
    far = st.sampled_from([-1, -(2**63), 2**40, 2**58, 2**60, 2**62, 2**63 - 1])
    start = st.integers(0, 2**40)
    messages = []
    begun = set()
    for queue_id, offset, later, time in draw(
        st.lists(st.tuples(st.integers(0, 1), near | near | near | far, start, st.integers(0, 3)), min_size=1)
    ):
        # A queue that begins at an impossible place is another test's.
        queue_offset = offset if queue_id in begun or 0 <= offset <= 12 else later
        begun.add(queue_id)
        messages.append(Message(queue_id=queue_id, queue_offset=queue_offset, store_timestamp=1000 + time))
    return messages


@given(disordered(), st.data())
def test_any_order_in_any_batches_equals_the_model(messages: list[Message], data: st.DataObject) -> None:
    """Wherever batches end, files and counts are the model's."""
    with TemporaryDirectory(dir=MEMORY) as directory:
        root = Path(directory)
        records = write_log(root / "log", messages)
        allowed = record_bounds(records)
        inner = data.draw(st.sets(st.sampled_from(allowed)), label="cuts")
        found = dispatch(root / "out", root / "log", sorted(inner | {allowed[0], allowed[-1]}))
        check_output(root / "out", records, SETTINGS)
        assert found == anomalies(records, SETTINGS)


def test_queue_offset_that_wraps(tmp_path: Path) -> None:
    """``Long.MIN_VALUE`` is one more than ``Long.MAX_VALUE`` to numpy: the two in one batch do not make a run."""
    messages = [Message(queue_offset=offset) for offset in (0, 1, 2**63 - 1, -(2**63), 2)]
    records = write_log(tmp_path / "log", messages)
    allowed = record_bounds(records)
    found = dispatch(tmp_path / "out", tmp_path / "log", [allowed[0], allowed[2], allowed[4], allowed[-1]])
    check_output(tmp_path / "out", records, SETTINGS)
    assert found == anomalies(records, SETTINGS)


def test_already_built() -> None:
    """(A): a record that ends at or before its queue's last one is counted and has no entry."""
    queue = ConsumeQueue(b"T", 0)
    for placed, expected in (
        ([(0, 0), (100, 1)], NO_ANOMALIES),
        ([(0, 0), (100, 1), (200, 2)], AnomalyCounts(already_built=2)),
        ([(200, 2)], AnomalyCounts(already_built=1)),
    ):
        (incoming,) = batch_of(b"T", 0, placed).entries.all_queues()
        assert queue.plan_append(incoming, 60).anomalies == expected
        queue.files = [0]
    assert queue.end == 60


def test_a_further_queue_named_twice(tmp_path: Path) -> None:
    """Multi dispatch to one queue twice: the second time the record is built already."""
    names = {"INNER_MULTI_DISPATCH": "L,T,L", "INNER_MULTI_QUEUE_OFFSET": "0,1,0"}
    records = write_log(tmp_path / "log", [Message("T", properties=names)])
    batches = LogBatches(tmp_path / "log", needs=LogicNeeds(multi_dispatch=MultiDispatch()))
    with SinkRun(tmp_path / "out", SETTINGS) as run:
        run.write(batches(0, end_of(records)))
        assert run.anomalies == AnomalyCounts(already_built=2)
    ((at, _, size),) = records
    unit = struct.pack(">qiq", at, size, 0).ljust(60, b"\0")
    assert queue_files(tmp_path / "out") == {f"consumequeue/{topic}/0/{0:020d}": unit for topic in "LT"}


def test_a_replay_is_no_anomaly(tmp_path: Path) -> None:
    """Records that a sink has already are passed over without a count, by the same run and by the next."""
    records = write_log(tmp_path / "log", of_topic("Sound"))
    batch = LogBatches(tmp_path / "log")(0, record_bounds(records)[-1])
    for runs in range(2):
        with SinkRun(tmp_path / "out", SETTINGS) as run:
            assert (runs, run.queues.write(batch)) == (runs, NO_ANOMALIES)
            assert (run.queues.write(batch), run.index.write(batch)) == (NO_ANOMALIES, NO_ANOMALIES)


@pytest.mark.parametrize(("topic", "queue_id"), [("T", -1), ("T", -(2**31)), ("../T", 0), ("a/b", 0)])
def test_a_queue_that_makes_no_directory(topic: str, queue_id: int, tmp_path: Path) -> None:
    """A broker would make a directory of any name; here the run stops before anything is written of the queue."""
    records = write_log(tmp_path / "log", [Message(topic, queue_id)])
    with pytest.raises(SinkError, match="no queue is made of it"):
        dispatch(tmp_path / "out", tmp_path / "log", record_bounds(records))
    assert not [path for path in files_below(tmp_path) if path.startswith("out/consumequeue/")]


# --- lines for users --------------------------------------------------------------------------------------


def test_a_hostile_log_prints_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line a queue out of order with its counts and its first place, at most five a batch, then how many more."""
    messages = [
        replace(message, topic=f"T{topic}")
        for topic in range(8)
        for message in offsets(0, 1, *range(100, 200), 3, 4, 5, 0)
    ]
    records = write_log(tmp_path / "log", messages, 4096)
    with caplog.at_level(logging.WARNING):
        found = dispatch(tmp_path / "out", tmp_path / "log", one_batch(record_bounds(records)))
    assert found == {"gap": 800, "repeated": 24, "queue_restart": 8}
    assert caplog.messages == [
        *(
            f"queue order of b'T{topic}'-0: 3 repeated, 100 gap, 1 queue_restart; first, the record at "
            f"{records[topic * 106 + 2].physical_offset} has queue offset 100, the queue ended at 2"
            for topic in range(5)
        ),
        "queue order: 3 more queues in this batch",
    ]


def test_a_queue_behind_a_gap_is_placed_without_a_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After one gap every record of the queue is out of place for ever: still one line a batch, and all are counted."""
    count = 200_000
    first = batch_of(b"T", 0, [(0, 0)]).entries.queue_entries(0)
    entries = np.repeat(first.entries, count, axis=0)
    entries.view(">i8,>i4,>i8")["f0"][:, 0] = 100 * np.arange(1, count + 1)
    queue = ConsumeQueue(b"T", 0)
    queue.plan_append(first, 60)
    queue.files = [0]
    append = queue.plan_append(QueueEntries(b"T", 0, entries, np.arange(5, count + 5)), 60)
    assert named(append.anomalies) == {"gap": count}
    assert append.entries is entries
    assert (queue.end, queue.max_physic_offset) == (20 * (count + 1), 100 * count + 100)


def test_counts_add_up_and_read_well() -> None:
    """Zero counts are not shown; adding keeps each cause apart."""
    assert (str(NO_ANOMALIES), bool(NO_ANOMALIES)) == ("", False)
    total = AnomalyCounts(gap=3) + AnomalyCounts(repeated=1) + AnomalyCounts(gap=1, stale=2)
    assert total == AnomalyCounts(gap=4, repeated=1, stale=2)
    assert str(total) == "1 repeated, 4 gap, 2 stale"
    assert bool(total)


def test_batch_line_and_summary_show_anomalies_only_when_there_are_some(caplog: pytest.LogCaptureFixture) -> None:
    """A sound batch's line is unchanged; the summary adds up the run and describes the bytes at the log's end."""
    reporter = quiet_reporter()
    with caplog.at_level(logging.INFO, "reput"):
        reporter.on_batch(BatchReport("logic", 0, 100, 2, 1.0))
        reporter.on_batch(BatchReport("logic", 100, 200, 2, 1.0, AnomalyCounts(gap=3)))
        reporter.on_batch(BatchReport("logic", 200, 300, 2, 1.0, AnomalyCounts(repeated=1)))
    assert [line.partition("behind")[2] for line in caplog.messages] == [
        "",
        ", anomalies: 3 gap",
        ", anomalies: 1 repeated",
    ]
    ends = "end offset 300, 0 bytes and 0.0 s behind, anomalies: 1 repeated, 3 gap"
    for log_end, more in ((LogEnd(300, AnomalyCounts(bad_magic=1)), ", 1 bad_magic"), (LogEnd(300), "")):
        reporter.start(SeenLog(log_end))
        reporter.stop()
        assert reporter.summary()[0].endswith(ends + more)


# --- the shape of the log --------------------------------------------------------------------------------

Shape = Callable[[Path], tuple[list[Path], list[Record]]]


def fill(writer: CommitLogWriter, count: int = 5) -> None:
    for number in range(count):
        writer.append(Message(properties={"KEYS": f"k{number}"}))


def too_large(writer: CommitLogWriter) -> None:
    with suppress(ValueError):
        writer.append(Message(body=bytes(SIZE)))


def blank_twice(directory: Path) -> tuple[list[Path], list[Record]]:
    with CommitLogWriter(directory, SIZE) as writer:
        fill(writer)
        too_large(writer)
        fill(writer)
    return [directory], list(writer.records)


def begins_with_a_blank_only_segment(directory: Path) -> tuple[list[Path], list[Record]]:
    with CommitLogWriter(directory, SIZE) as writer:
        too_large(writer)
        too_large(writer)
        fill(writer)
    return [directory], list(writer.records)


def ends_with_a_blank_only_segment(directory: Path) -> tuple[list[Path], list[Record]]:
    with CommitLogWriter(directory, SIZE) as writer:
        fill(writer)
        too_large(writer)
    return [directory], list(writer.records)


def next_segment_preallocated(directory: Path) -> tuple[list[Path], list[Record]]:
    with CommitLogWriter(directory, SIZE, preallocate=True) as writer:
        fill(writer)
    return [directory], list(writer.records)


def several_paths(directory: Path) -> tuple[list[Path], list[Record]]:
    with CommitLogWriter(directory / "all", SIZE) as writer:
        fill(writer, 30)
    paths = [directory / name for name in "abc"]
    for number, file in enumerate(sorted((directory / "all").iterdir())):
        paths[number % 3].mkdir(exist_ok=True)
        file.rename(paths[number % 3] / file.name)
    return paths, list(writer.records)


def old_records_behind_a_blank(directory: Path) -> tuple[list[Path], list[Record]]:
    """The broker writes a blank from a buffer whose rest may hold what it held before."""
    with CommitLogWriter(directory, SIZE) as writer:
        fill(writer, 30)
    for record, after in itertools.pairwise(writer.records):
        end = record.physical_offset + record.msg_size
        if after.physical_offset > end:
            room = SIZE - end % SIZE - 8
            path = directory / f"{end - end % SIZE:020d}"
            put_bytes(path, end % SIZE + 8, encode(Message(body=b""), end + 8)[:room])
    return [directory], list(writer.records)


SHAPES: dict[str, Shape] = {
    "a blank written twice": blank_twice,
    "a blank only at the beginning": begins_with_a_blank_only_segment,
    "a blank only at the end": ends_with_a_blank_only_segment,
    "the next segment preallocated": next_segment_preallocated,
    "several paths": several_paths,
    "old records behind a blank": old_records_behind_a_blank,
}


def log_reader(paths: list[Path]) -> LogReader:
    return LogReader(SourceOptions.parse({"path": ",".join(map(str, paths)), "tailGuardMs": "0"}))


@pytest.mark.parametrize("name", SHAPES)
def test_shape(name: str, tmp_path: Path) -> None:
    """A log of a sound broker, however odd, is read to its end, whole, and counts nothing."""
    paths, records = SHAPES[name](tmp_path / "log")
    reader = log_reader(paths)
    end = reader.settled_end(0)
    # The last blank is passed when the next segment exists.
    assert end >= records[-1][0] + records[-1][2]
    assert reader.bad_end is None
    batches = LogBatches(paths)
    for number, cuts in enumerate(([0, end], sorted({0, *record_bounds(records), end}))):
        with no_fsync(), SinkRun(tmp_path / f"out{number}", SETTINGS) as run:
            for start, stop in itertools.pairwise(cuts):
                run.write(batches(start, stop))
            assert run.anomalies == NO_ANOMALIES
        check_output(tmp_path / f"out{number}", records, SETTINGS)


# --- bytes at the end, and in the middle -----------------------------------------------------------------

SOUND = Message(body=b"0123456789", properties={"TAGS": "TagA"})

BAD: dict[str, tuple[Callable[[int], bytes], Verdict, str]] = {
    "bad magic": (lambda at: encode(replace(SOUND, magic=0x12345678), at), Verdict.BAD_MAGIC, "bad_magic"),
    "zeros before a magic": (lambda at: bytes(4) + encode(SOUND, at)[4:], Verdict.BAD_SIZE, "size_mismatch"),
    "size beyond the file": (
        lambda at: (0x7FFFFFFF).to_bytes(4, "big") + encode(SOUND, at)[4:],
        Verdict.BAD_SIZE,
        "size_mismatch",
    ),
    "negative size": (lambda at: b"\xff" * 4 + encode(SOUND, at)[4:], Verdict.BAD_SIZE, "size_mismatch"),
    "size 10 too large": (lambda at: sized(at, 10), Verdict.BAD_LENGTH, "size_mismatch"),
    "size 10 too small": (lambda at: sized(at, -10), Verdict.BAD_LENGTH, "size_mismatch"),
    "of another place": (lambda at: encode(SOUND, at + SIZE), Verdict.BAD_PHYSICAL_OFFSET, "stale"),
    "of place 0": (lambda at: encode(SOUND, 0), Verdict.BAD_PHYSICAL_OFFSET, "stale"),
    "body not there": (lambda at: encode(replace(SOUND, body_crc=1), at), Verdict.BAD_CRC, "torn"),
    "checksum of the whole record wrong": (
        lambda at: (record := encode(replace(SOUND, append_property_crc=True), at))[:15] + b"\x01" + record[16:],
        Verdict.BAD_PROPERTY_CRC,
        "torn",
    ),
    "topic empty": (lambda at: encode(replace(SOUND, topic=""), at), Verdict.BAD_TOPIC, "torn"),
}


def sized(at: int, more: int) -> bytes:
    record = encode(SOUND, at)
    return (len(record) + more).to_bytes(4, "big") + record[4:]


@pytest.mark.parametrize("name", BAD)
def test_at_the_end_it_is_waited_for_and_counted(name: str, tmp_path: Path) -> None:
    """The records before it are dispatched, it is not; the source reports it, and it goes away when it is a record."""
    make, verdict, cause = BAD[name]
    with CommitLogWriter(tmp_path / "log", SIZE) as writer:
        fill(writer, 3)
    end, records = end_of(writer.records), list(writer.records)
    put_bytes(tmp_path / "log" / f"{0:020d}", end, make(end))
    reader = log_reader([tmp_path / "log"])
    assert (reader.settled_end(0), reader.bad_end) == (end, verdict)
    assert named(anomaly_at_end(verdict)) == {cause: 1}
    dispatch(tmp_path / "out", tmp_path / "log", [0, end])
    check_output(tmp_path / "out", records, SETTINGS)

    stream = CommitLogStreamReader(SourceOptions.parse({"path": str(tmp_path / "log"), "tailGuardMs": "0"}))
    stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    reported = stream.reportLatestOffset()
    assert reported is not None
    assert (reported["physicOffset"], reported["badEnd"]) == (end, verdict.name)
    put_bytes(tmp_path / "log" / f"{0:020d}", end, encode(SOUND, end) + bytes(8))
    stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    reported = stream.reportLatestOffset()
    assert reported is not None
    assert reported["physicOffset"] > end
    assert "badEnd" not in reported


def test_a_reused_segment_ends_the_log(tmp_path: Path) -> None:
    """A next segment full of another one's records, as from a pool of files, is not begun yet."""
    with CommitLogWriter(tmp_path / "log", SIZE) as writer:
        fill(writer, 3)
        too_large(writer)
    first = tmp_path / "log" / f"{0:020d}"
    (tmp_path / "log" / f"{SIZE:020d}").write_bytes(first.read_bytes())
    reader = log_reader([tmp_path / "log"])
    assert reader.settled_end(0) == SIZE
    dispatch(tmp_path / "out", tmp_path / "log", [0, SIZE])
    check_output(tmp_path / "out", list(writer.records), SETTINGS)


CHECKSUMS = (Verdict.BAD_CRC, Verdict.BAD_PROPERTY_CRC)


@pytest.mark.parametrize("name", [name for name in BAD if BAD[name][1] not in CHECKSUMS])
def test_in_the_middle_it_stops_the_run_at_its_place(name: str, tmp_path: Path) -> None:
    """With sound records in the next segment it is damage: one error, with file, offset and what was found."""
    make, verdict, _ = BAD[name]
    with CommitLogWriter(tmp_path / "log", SIZE) as writer:
        fill(writer, 20)
    at = writer.records[2].physical_offset
    put_bytes(tmp_path / "log" / f"{0:020d}", at, make(at))
    end = log_reader([tmp_path / "log"]).settled_end(0)
    assert end == end_of(writer.records)
    expected = rf"{0:020d}: no good record at offset {at} .* {verdict.name}, the bytes there are"
    with pytest.raises(CorruptRecordError, match=expected):
        dispatch(tmp_path / "out", tmp_path / "log", [0, end])


def test_a_body_is_checked_in_the_middle_on_request(tmp_path: Path) -> None:
    """A broker never looks at a body in replay: nor is it looked at here, unless checkCrc=all."""
    messages = [SOUND, replace(SOUND, body_crc=1), SOUND]
    records = write_log(tmp_path / "log", messages)
    assert dispatch(tmp_path / "out", tmp_path / "log", record_bounds(records)) == {}
    check_output(tmp_path / "out", records, SETTINGS)
    (file,) = MappedFileQueue.load([tmp_path / "log"]).files
    with pytest.raises(CorruptRecordError, match=f"offset {records[1].physical_offset} .* BAD_CRC"):
        list(read_windows(file, 0, end_of(records), DecodeOptions(check_crc=True)))
