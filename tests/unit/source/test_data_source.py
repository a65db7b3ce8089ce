"""The Spark adapters, called as Spark calls them but without Spark: offsets, partitions, rows."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType
from support.logs import end_of, put_bytes, varied_messages
from support.record_writer import CommitLogWriter, Message, StoredRecord, write_log

from reput.source.data_source import CommitLogDataSource, CommitLogReader, CommitLogStreamReader, RangePartition
from reput.source.errors import CommitLogRewoundError, DataLossError, LaterFormatError, OptionError, TransientError
from reput.source.log import log_reader, range_reader
from reput.source.log.offset_range import RANGE_SCHEMA
from reput.source.log.range_reader import scan_windows
from reput.source.rows.message_schema import message_schema

SIZE = 4096
START = 2 * SIZE
ALL = ReadAllAvailable()


def source(path: Path, **options: object) -> CommitLogDataSource:
    given = {"path": str(path), "tailGuardMs": "0"} | {name: str(value) for name, value in options.items()}
    return CommitLogDataSource(given)


def stream(path: Path, **options: object) -> CommitLogStreamReader:
    return source(path, **options).streamReader(StructType())


def batch(path: Path, **options: object) -> CommitLogReader:
    return source(path, **options).reader(StructType())


def spans(partitions: object) -> list[tuple[int, int]]:
    """The ranges of partitions."""
    assert isinstance(partitions, list)
    return [(partition.range.start, partition.range.end) for partition in partitions]


@pytest.fixture
def records(tmp_path: Path) -> list[StoredRecord]:
    """The records of a log of several segments from START on."""
    return write_log(tmp_path, varied_messages(60), SIZE, start_offset=START)


@pytest.mark.parametrize("size", [SIZE // 2, 2 * SIZE])
def test_a_segment_size_that_all_segments_contradict(
    size: int, records: list[StoredRecord], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is read by the size that its segments have, with one line that says so."""
    assert len(list(tmp_path.iterdir())) > 2
    assert spans(batch(tmp_path, mappedFileSizeCommitLog=size).partitions()) == spans(batch(tmp_path).partitions())
    segments = len(list(tmp_path.iterdir()))
    (line,) = (record.getMessage() for record in caplog.records)
    assert line == (
        f"mappedFileSizeCommitLog={size} does not fit {tmp_path}: all {segments} segments have {SIZE} bytes; the log "
        "is read by that size"
    )
    assert records


def test_name_and_schema(tmp_path: Path) -> None:
    """The format's name, and the columns that the options ask for."""
    assert CommitLogDataSource.name() == "rocketmq-commitlog"
    for body in (False, True):
        assert message_schema(include_body=body).names == source(tmp_path, includeBody=body).schema().names
    ranges = ["start", "end", "file", "file_from_offset", "file_size", "frame"]
    assert source(tmp_path, rows="ranges").schema().names == ranges


# --- offsets ---------------------------------------------------------------------------------------------


def test_an_offset_is_plain_json_in_a_fixed_order(records: list[StoredRecord], tmp_path: Path) -> None:
    """Spark compares offsets as text, so they have one spelling."""
    reader = stream(tmp_path)
    first = reader.initialOffset()
    begin = (
        '{"version": 1, "physicOffset": 8192, "fileFromOffset": -1, "firstStoreTimestamp": -1, "startOffset": 8192, '
        '"lastRecordOffset": -1, "lastRecordSize": -1, "lastRecordStoreTimestamp": -1, "lastRecordBodyCrc": -1}'
    )
    assert begin == json.dumps(first)
    last = reader.latestOffset(first, ALL)
    assert list(first) == list(last)
    assert json.loads(json.dumps(last)) == last
    assert {type(value) for value in last.values()} == {int}
    assert end_of(records) == last["physicOffset"]


def test_the_initial_offset_does_not_move(tmp_path: Path) -> None:
    """Spark asks twice, and the log may grow between."""
    with CommitLogWriter(tmp_path, SIZE) as writer:
        first, *others = varied_messages(20)
        writer.append(first)
        reader = stream(tmp_path, startingOffset="latest")
        answer = reader.initialOffset()
        for message in others:
            writer.append(message)
        assert answer == reader.initialOffset()
        assert answer["physicOffset"] == writer.records[1].physical_offset


def test_latest_offset_at_the_end_is_the_start_itself(records: list[StoredRecord], tmp_path: Path) -> None:
    """Without new records there is no new offset, not even another spelling."""
    reader = stream(tmp_path)
    last = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(last, ALL) is last
    ahead = last | {"physicOffset": last["physicOffset"] + 5}
    assert reader.latestOffset(ahead, ALL) is ahead
    assert reader.partitions(last, last) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ALL),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxMessagesPerTrigger": 7}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "1k", "maxMessagesPerTrigger": 7}, ReadMaxBytes(1024)),
    ],
)
def test_default_limits(options: dict[str, object], expected: ReadLimit, tmp_path: Path) -> None:
    """The options are the limit of a micro-batch."""
    (tmp_path / "commitlog").mkdir()
    assert expected == stream(tmp_path / "commitlog", **options).getDefaultReadLimit()


@pytest.mark.parametrize(
    ("limit", "options", "count"),
    [
        (ReadMaxRows(3), {}, 3),
        (ReadMaxBytes(1), {}, 1),
        (ReadMaxBytes(1 << 20), {"maxMessagesPerTrigger": 5}, 5),
        (ReadMaxRows(2), {"maxMessagesPerTrigger": 5}, 2),
        (ALL, {}, 60),
    ],
)
def test_limits_of_a_batch(
    limit: ReadLimit, options: dict[str, object], count: int, records: list[StoredRecord], tmp_path: Path
) -> None:
    """A batch ends behind as many records as the limits allow, and its partitions are just those."""
    reader = stream(tmp_path, **options)
    first = reader.initialOffset()
    last = reader.latestOffset(first, limit)
    assert end_of(records[:count]) == last["physicOffset"]
    rows = [row for partition in reader.partitions(first, last) for row in reader.read(partition)]
    assert count == sum(row.num_rows for row in rows)


def test_available_now_ends_where_the_log_ended(tmp_path: Path) -> None:
    """Records that come during the run are for the next one."""
    with CommitLogWriter(tmp_path, SIZE) as writer:
        for message in varied_messages(20):
            writer.append(message)
        end = writer.max_offset
        reader = stream(tmp_path, tailGuardMs=10)
        reader.prepareForTriggerAvailableNow()
        writer.append(varied_messages(1)[0])
        first = reader.initialOffset()
        last = reader.latestOffset(first, ALL)
        assert end == last["physicOffset"]
        assert reader.latestOffset(last, ALL) is last


def test_the_end_is_reported_for_the_lag(records: list[StoredRecord], tmp_path: Path) -> None:
    """Nothing before the first look, then the log's end, whatever the batch's limit."""
    reader = stream(tmp_path)
    assert reader.reportLatestOffset() is None
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert end_of(records) == reported["physicOffset"]


# --- checkpoints -----------------------------------------------------------------------------------------


def offset_at(path: Path, offset: int) -> dict[str, Any]:
    return stream(path)._offset(offset, offset)


def test_a_checkpoint_of_another_version_is_refused(records: list[StoredRecord], tmp_path: Path) -> None:
    """Offsets that this source did not write are not guessed at."""
    with pytest.raises(OptionError, match="which this source did not write"):
        stream(tmp_path).latestOffset({"o": 100}, ALL)
    with pytest.raises(LaterFormatError, match="has format 2, which a later release of reput wrote"):
        stream(tmp_path).latestOffset({**offset_at(tmp_path, 100), "version": 2}, ALL)


def test_a_checkpoint_of_another_log_is_refused(records: list[StoredRecord], tmp_path: Path) -> None:
    """A log that begins with other records than it did is another log."""
    known = offset_at(tmp_path, 3 * SIZE)
    put_bytes(tmp_path / f"{START:020d}", 56, bytes(8))
    for ask in (lambda: stream(tmp_path).latestOffset(known, ALL), lambda: stream(tmp_path).partitions(known, known)):
        with pytest.raises(CommitLogRewoundError, match="the checkpoint is of another log") as raised:
            ask()
        assert raised.value.physical_offset == 3 * SIZE
        assert raised.value.advice == "give the store that the checkpoint was made for, or a new checkpoint and output"


def test_a_checkpoint_that_has_expired(
    records: list[StoredRecord], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that expired unread stop the query, or are logged where that was asked for."""
    known = offset_at(tmp_path, START + 100)
    (tmp_path / f"{START:020d}").unlink()
    with pytest.raises(DataLossError) as raised:
        stream(tmp_path).latestOffset(known, ALL)
    assert raised.value.cause == "the log begins at 12288, records from 8292 on have expired unread"
    assert raised.value.advice == "set failOnDataLoss=false to continue at the log's beginning"
    reader = stream(tmp_path, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        last = reader.latestOffset(known, ALL)
    assert "records from 8292 on have expired unread; continuing at the log's beginning" in caplog.text
    assert (3 * SIZE, end_of(records)) == (spans(reader.partitions(known, last))[0][0], last["physicOffset"])


def test_a_stream_has_no_end(tmp_path: Path) -> None:
    """An option that a stream cannot honour is refused."""
    with pytest.raises(OptionError, match="endingOffset is for batch reads; a stream has no end"):
        stream(tmp_path, endingOffset=5)


@pytest.mark.parametrize("kind", [CommitLogDataSource, CommitLogReader, CommitLogStreamReader])
def test_whatever_spark_asks_for_tells_its_errors_with_their_fields(kind: type) -> None:
    """But for questions that have no errors; of `read`, which is a generator, Spark is asked (spark/)."""
    base = kind.__mro__[1]
    asked = {name for name in vars(kind).keys() & {*vars(base), "prepareForTriggerAvailableNow"} if name[0] != "_"}
    told = {name for name in asked if hasattr(vars(kind)[name], "__wrapped__")}
    assert asked - told <= {"name", "read", "getDefaultReadLimit", "reportLatestOffset"}
    assert told


# --- batch reads and rows --------------------------------------------------------------------------------


def read(reader: CommitLogReader, partitions: list[InputPartition]) -> list[pa.RecordBatch]:
    """All rows, through partitions as they arrive at a worker."""
    return [rows for partition in partitions for rows in reader.read(pickle.loads(pickle.dumps(partition)))]


def test_a_batch_read_gives_every_message(records: list[StoredRecord], tmp_path: Path) -> None:
    """The partitions of a batch read have each record once, in ranges of the size asked for."""
    reader = batch(tmp_path, maxBytesPerPartition=1000)
    partitions = list(reader.partitions())
    assert len(partitions) > 3
    offsets = [offset for rows in read(reader, partitions) for offset in rows["physical_offset"].to_pylist()]
    assert [record.physical_offset for record in records] == offsets


@pytest.mark.parametrize("more", [0, 1, 90])
def test_ending_offset(more: int, records: list[StoredRecord], tmp_path: Path) -> None:
    """An end inside a record is an end before it."""
    reader = batch(tmp_path, endingOffset=records[7].physical_offset + more)
    assert spans(reader.partitions())[-1][1] == records[7].physical_offset


@pytest.mark.parametrize("ending", [100, START, START + 50])
def test_an_end_before_the_start_reads_nothing(ending: int, records: list[StoredRecord], tmp_path: Path) -> None:
    """The start may lie behind an end that was given, as it does with startingOffset=latest."""
    for starting in ("latest", records[5].physical_offset):
        reader = batch(tmp_path, startingOffset=starting, endingOffset=ending)
        assert read(reader, list(reader.partitions())) == []


def test_an_empty_log_has_one_empty_partition(tmp_path: Path) -> None:
    """Spark would make a partition of its own for none."""
    (tmp_path / "commitlog").mkdir()
    for path in (tmp_path / "commitlog", tmp_path):
        reader = batch(path)
        (partition,) = reader.partitions()
        assert read(reader, [partition]) == []


def test_ranges_as_rows(records: list[StoredRecord], tmp_path: Path) -> None:
    """Each range is one row of its partition's offsets."""
    reader = batch(tmp_path, rows="ranges")
    partitions = list(reader.partitions())
    rows = read(reader, partitions)
    assert [RANGE_SCHEMA] * len(partitions) == [row.schema for row in rows]
    first = partitions[0]
    assert isinstance(first, RangePartition)
    expected = {"start": START, "end": 3 * SIZE, "file": first.range.file.path, "file_from_offset": START}
    assert [expected | {"file_size": SIZE, "frame": 0}] == rows[0].to_pylist()


@pytest.mark.parametrize("bytes_max", [1, 700, 5000])
def test_a_dledger_log(bytes_max: int, tmp_path: Path) -> None:
    """Micro-batches of any size hold each message once, at its own physical offset; ranges carry the frame."""
    records = write_log(tmp_path, varied_messages(30), SIZE, dledger=True)
    dledger = {"enableDLegerCommitLog": "true", "maxBytesPerPartition": 900}
    reader = stream(tmp_path, **dledger)
    reader.prepareForTriggerAvailableNow()
    offset, found = reader.initialOffset(), []
    while (after := reader.latestOffset(offset, ReadMaxBytes(bytes_max))) != offset:
        partitions = list(reader.partitions(offset, after))
        found += [begin for rows in read(reader, partitions) for begin in rows["physical_offset"].to_pylist()]
        offset = after
    assert [record.physical_offset for record in records] == found
    ranges = batch(tmp_path, rows="ranges", **dledger)
    assert {48} == {row["frame"] for rows in read(ranges, list(ranges.partitions())) for row in rows.to_pylist()}


# --- planning ahead --------------------------------------------------------------------------------------


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each walk over records has read."""
    sizes: list[int] = []

    def counting(*given: Any, **options: Any) -> Any:
        for scan in scan_windows(*given, **options):
            sizes.append(scan.end - scan.start)
            yield scan

    for module in (range_reader, log_reader):
        monkeypatch.setattr(module, "scan_windows", counting)
    return sizes


def test_the_next_batch_is_followed_while_one_is_read(
    tmp_path: Path, walked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a batch is planned, the records of the next are walked; to plan it reads a window or two."""
    window, size = range_reader.WINDOW_BYTES, 4 * range_reader.WINDOW_BYTES
    messages = [Message(body=b"x" * 30_000) for _ in range(5 * size // 30_000)]
    write_log(tmp_path, messages, size)
    # A batch has two segments.
    reader = stream(tmp_path, maxBytesPerTrigger=2 * size, maxBytesPerPartition=window)
    reader.prepareForTriggerAvailableNow()
    begin, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    first = reader.latestOffset(begin, limit)
    reader.partitions(begin, first)
    reader._wait_for_look_ahead()
    assert sum(walked) > 13 * window
    walked.clear()
    monkeypatch.setattr(reader, "_look_ahead", lambda _: None)  # it would begin to walk the batch behind
    second = reader.latestOffset(first, limit)
    planned = spans(reader.partitions(first, second))
    assert (first["physicOffset"] + 2 * size, 8) == (second["physicOffset"], len(planned))
    assert sum(walked) <= window
    assert spans(stream(tmp_path, maxBytesPerPartition=window).partitions(first, second)) == planned


def test_a_log_that_goes_while_it_is_followed_is_told_when_it_is_planned(tmp_path: Path) -> None:
    """Looking ahead raises no error."""
    messages = varied_messages(60)
    write_log(tmp_path, messages, SIZE)
    reader = stream(tmp_path, maxBytesPerTrigger=SIZE)
    first = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    for segment in tmp_path.iterdir():
        segment.unlink()
    reader._look_ahead(first["physicOffset"])
    reader._wait_for_look_ahead()
    with pytest.raises(TransientError, match="holds no segment"):
        reader.latestOffset(first, reader.getDefaultReadLimit())
