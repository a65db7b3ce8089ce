"""G11 while it runs: segments go under a stream at any moment of a batch, at the front or in the middle of the row."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes
from pyspark.sql.types import StructType
from support.logs import varied_messages
from support.proof_counts import Proof
from support.record_writer import CommitLogWriter, write_log

from reput.source.data_source import CommitLogDataSource, CommitLogStreamReader, RangePartition
from reput.source.errors import DataLossError, SegmentError, StoreError, TransientError
from reput.source.log import mapped_file_queue
from reput.source.log.log_reader import LogReader

SIZE = 4096
ALL = ReadAllAvailable()


@pytest.fixture
def log(tmp_path: Path) -> tuple[Path, list[int]]:
    """A log of several segments, and where its records begin."""
    records = write_log(tmp_path / "log", varied_messages(120), SIZE)
    return tmp_path / "log", [record.physical_offset for record in records]


def stream(log: Path, *, fail: bool) -> CommitLogStreamReader:
    given = {"path": str(log), "tailGuardMs": "0", "failOnDataLoss": str(fail).lower()}
    return CommitLogDataSource(given).streamReader(StructType())


def remove(log: Path, *numbers: int) -> None:
    for number in numbers:
        (log / f"{number * SIZE:020d}").unlink()


def segment_of(physical_offset: int) -> int:
    return physical_offset // SIZE


def batches(reader: CommitLogStreamReader, offset: dict[str, Any], limit: Any = ALL) -> list[int]:
    """The records that micro-batches have until there is nothing new."""
    found: list[int] = []
    while (end := reader.latestOffset(offset, limit)) != offset:
        for partition in reader.partitions(offset, end):
            found += [at for rows in reader.read(partition) for at in rows["physical_offset"].to_pylist()]
        offset = end
    return found


MISSING = {"the first": [0], "the first three": [0, 1, 2], "all but the last": None, "one": [2], "two holes": [1, 3, 4]}


@pytest.mark.parametrize("limit", [ALL, ReadMaxBytes(900)])
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("moment", ["before the plan", "between the batches", "before the ranges"])
def test_going_on_without_them(
    moment: str,
    missing: str,
    limit: Any,
    log: tuple[Path, list[int]],
    caplog: pytest.LogCaptureFixture,
    proof: Proof,
) -> None:
    """Each record before and after the missing ones once, in order; and one report of the loss."""
    path, offsets = log
    numbers = MISSING[missing]
    gone = list(range(segment_of(offsets[-1]))) if numbers is None else numbers
    reader = stream(path, fail=False)
    offset, before = reader.initialOffset(), []
    if moment == "between the batches":
        offset = reader.latestOffset(offset, ReadMaxBytes(900))
        before = [physical_offset for physical_offset in offsets if physical_offset < offset["physicOffset"]]
    if moment == "before the ranges":
        end = reader.latestOffset(offset, limit)
        remove(path, *gone)
        spans = [
            partition.range for partition in reader.partitions(offset, end) if isinstance(partition, RangePartition)
        ]
        assert all(segment_of(span.start) not in gone for span in spans)
        return
    remove(path, *gone)
    with caplog.at_level(logging.WARNING):
        found = batches(reader, offset, limit)
    assert found == [at for at in offsets if at not in before and segment_of(at) not in gone]
    told = [text for text in caplog.messages if "unread; continuing" in text]
    assert len(told) == (1 if gone == list(range(len(gone))) else len(missing_rows(gone)))
    proof("G11 streams that went on without what was gone")


def missing_rows(gone: list[int]) -> list[int]:
    """Where each row of missing segments begins."""
    return [number for number in gone if number - 1 not in gone]


@pytest.mark.parametrize("missing", MISSING)
def test_the_loss_ends_the_stream(missing: str, log: tuple[Path, list[int]]) -> None:
    """Unless it was allowed: the error names the loss, and no record after it was returned."""
    path, offsets = log
    numbers = MISSING[missing]
    reader = stream(path, fail=True)
    offset = reader.initialOffset()
    remove(path, *(list(range(segment_of(offsets[-1]))) if numbers is None else numbers))
    with pytest.raises((DataLossError, SegmentError), match=r"failOnDataLoss=false|bytes are missing"):
        batches(reader, offset)


def test_a_stream_stands_before_no_hole(log: tuple[Path, list[int]]) -> None:
    """Segments that are missing in the middle are never the end of the log."""
    path, offsets = log
    remove(path, 3)
    for begin in (0, 1):
        given = {"path": str(path), "tailGuardMs": "0", "failOnDataLoss": "false"}
        reader = CommitLogDataSource(given | {"startingOffset": str(offsets[begin])}).streamReader(StructType())
        reader.prepareForTriggerAvailableNow()
        found = batches(reader, reader.initialOffset())
        assert found == [physical_offset for physical_offset in offsets[begin:] if segment_of(physical_offset) != 3]
    rows = CommitLogDataSource(given).reader(StructType())
    assert sum(batch.num_rows for part in rows.partitions() for batch in rows.read(part)) == sum(
        segment_of(physical_offset) != 3 for physical_offset in offsets
    )


def test_the_segment_of_the_last_record_is_missing(tmp_path: Path) -> None:
    """In the middle of the row it is a loss, not a cut: the stream continues after it, also in another process."""
    records = write_log(tmp_path, varied_messages(120), SIZE)
    offsets = [record.physical_offset for record in records]
    reader = stream(tmp_path, fail=False)
    offset = reader.latestOffset(reader.initialOffset(), ReadMaxBytes(2 * SIZE + 2000))
    here = segment_of(offset["lastRecordOffset"])
    assert offset["physicOffset"] % SIZE
    remove(tmp_path, here)
    for again in (reader, stream(tmp_path, fail=False)):
        assert batches(again, offset) == [at for at in offsets if segment_of(at) > here]
    with pytest.raises(SegmentError, match="bytes are missing"):
        stream(tmp_path, fail=True).latestOffset(offset, ALL)


@pytest.mark.parametrize("fail", [True, False])
def test_segments_that_go_while_the_end_is_looked_for(fail: bool, tmp_path: Path) -> None:
    """The oldest one goes at any opening of a segment: an error names the loss, or each record after it comes."""
    outcomes: dict[type[Exception], str] = {}
    for number in range(1, 9):
        records = write_log(tmp_path / str(number), varied_messages(120), SIZE)
        offsets = [record.physical_offset for record in records]
        reader = stream(tmp_path / str(number), fail=fail)
        offset = reader.initialOffset()
        real, left = mapped_file_queue.open_unnoticed, [number]

        def opened(path: str, real: Any = real, left: list[int] = left) -> int:
            left[0] -= 1
            if left[0] == 0:
                Path(path).unlink()
            return int(real(path))

        with mock.patch.object(mapped_file_queue, "open_unnoticed", opened):
            try:
                offset = reader.latestOffset(offset, ReadMaxBytes(3000))
            except (DataLossError, SegmentError) as error:
                assert fail
                outcomes[type(error)] = str(error)
                continue
        if not fail:
            found = batches(reader, offset)
            kept = [int(path.name) // SIZE for path in (tmp_path / str(number)).iterdir()]
            assert found == [at for at in offsets if at >= offset["physicOffset"] and segment_of(at) in kept]
    assert (DataLossError in outcomes) == fail
    assert all("expired" in said or "bytes are missing" in said for said in outcomes.values())


# --- what cannot be read ---------------------------------------------------------------------------------


@pytest.fixture
def failing(log: tuple[Path, list[int]]) -> Callable[[str, int], Any]:
    """Let a call of the system fail on the log's files with an error number."""

    def fail(name: str, number: int) -> Any:
        real = getattr(os, name)

        def call(first: Any, *rest: Any, **options: Any) -> Any:
            if name == "open":
                raise OSError(number, os.strerror(number), first)
            if name in {"pread", "preadv"}:
                raise OSError(number, os.strerror(number))
            return real(first, *rest, **options)

        return mock.patch.object(mapped_file_queue.os, name, call)

    return fail


@pytest.mark.parametrize("name", ["open", "preadv"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EIO, TransientError),
        (errno.ESTALE, TransientError),
        (errno.ENOTCONN, TransientError),
        (errno.EACCES, StoreError),
        (errno.ELOOP, StoreError),
    ],
)
def test_a_segment_that_cannot_be_read(
    name: str, number: int, kind: type[Exception], log: tuple[Path, list[int]], failing: Callable[[str, int], Any]
) -> None:
    """One line with the file and the system's word: a fault of the disk may pass, a permission does not."""
    path, _ = log
    reader = stream(path, fail=True)
    offset = reader.initialOffset()
    with failing(name, number), pytest.raises(kind) as raised:
        reader.latestOffset(offset, ALL)
    assert f"cannot read {path}/0000" in str(raised.value)
    assert os.strerror(number) in str(raised.value)


def test_waiting_at_the_end_costs_little_and_sees_at_once(tmp_path: Path) -> None:
    """A question that comes behind another is answered when something came, or after a moment."""
    with CommitLogWriter(tmp_path, SIZE) as writer:
        writer.append(varied_messages(1)[0])
        reader = stream(tmp_path, fail=True)
        end = reader.latestOffset(reader.initialOffset(), ALL)
        real = LogReader._is_still_empty
        with mock.patch.object(LogReader, "_is_still_empty", autospec=True, side_effect=real) as looks:
            assert reader.latestOffset(end, ALL) is end
            assert reader.latestOffset(end, ALL) is end
        assert looks.call_count > 3
        writer.append(varied_messages(2)[1])
        assert reader.latestOffset(end, ALL)["physicOffset"] == writer.max_offset
