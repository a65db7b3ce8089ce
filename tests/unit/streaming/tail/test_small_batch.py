"""Which micro-batches the driver reads itself, and that it reads what Spark planned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.logs import varied_messages
from support.record_writer import write_log

from reput.source.data_source import OFFSET_VERSION
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.tail import micro_batch
from reput.streaming.tail.micro_batch import SmallBatches

SIZE = 4096


@pytest.fixture
def offsets(tmp_path: Path) -> list[int]:
    """Where the records begin of a log of several segments."""
    records = write_log(tmp_path / "commitlog", varied_messages(80), SIZE)
    return [record.physical_offset for record in records]


def small_batches(root: Path, *ends: int, fail: bool = True, version: int = OFFSET_VERSION) -> SmallBatches:
    """Those of a query whose batches end at `ends`, as Spark notes it."""
    (root / "checkpoint" / "offsets").mkdir(parents=True, exist_ok=True)
    for number, end in enumerate(ends):
        offset = json.dumps({"version": version, "physicOffset": end})
        (root / "checkpoint" / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')
    given = {"path": str(root / "commitlog"), "tailGuardMs": "0", "failOnDataLoss": str(fail).lower()}
    return SmallBatches(root / "checkpoint", LogReader(SourceOptions.parse(given)))


def test_ranges_are_those_of_the_batch(offsets: list[int], tmp_path: Path) -> None:
    """From the end of the batch before to its own end, cut at segments, however often and in which order one asks."""
    small = small_batches(tmp_path, offsets[3], offsets[40], offsets[41])
    for _ in range(2):
        found = small.ranges(1)
        assert found is not None
        assert len(found) > 2
        assert (offsets[3], offsets[40]) == (found[0].start, found[-1].end)
        assert all(one.end == after.start for one, after in zip(found, found[1:], strict=False))
        assert all(span.file.file_from_offset == span.start // SIZE * SIZE for span in found)
        last = small.ranges(2)
        assert last is not None
        assert [(offsets[40], offsets[41])] == [(span.start, span.end) for span in last]


def test_the_first_batch_begins_where_the_source_was_told(offsets: list[int], tmp_path: Path) -> None:
    """Spark notes no begin of it; where that is unknown, or sinks were further, a job reads what Spark planned."""
    small = small_batches(tmp_path, offsets[40])
    assert small.ranges(0) is None
    small.begin = offsets[3]
    found = small.ranges(0)
    assert found is not None
    assert (offsets[3], offsets[40]) == (found[0].start, found[-1].end)
    for begin in (offsets[40], offsets[41]):
        small.begin = begin
        assert small.ranges(0) is None


def test_a_job_reads_the_rest(offsets: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is large; one that is not planned; an empty one."""
    small = small_batches(tmp_path, offsets[3], offsets[40], offsets[40])
    assert small.ranges(2) is None
    assert small.ranges(3) is None
    monkeypatch.setattr(micro_batch, "SMALL_BYTES", offsets[40] - offsets[3])
    assert small.ranges(1) is not None
    monkeypatch.setattr(micro_batch, "SMALL_BYTES", offsets[40] - offsets[3] - 1)
    assert small.ranges(1) is None


def test_the_first_one_that_is_asked_for_may_be_larger(
    offsets: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever number Spark gives it, and however often it is asked for."""
    monkeypatch.setattr(micro_batch, "SMALL_BYTES", 0)
    monkeypatch.setattr(micro_batch, "SMALL_FIRST_BYTES", offsets[40] - offsets[3])
    small = small_batches(tmp_path, offsets[3], offsets[40], offsets[41])
    assert [small.ranges(number) is None for number in (1, 2, 1)] == [False, True, False]
    monkeypatch.setattr(micro_batch, "SMALL_FIRST_BYTES", offsets[40] - offsets[3] - 1)
    assert small_batches(tmp_path, offsets[3], offsets[40], offsets[41]).ranges(1) is None


@pytest.mark.parametrize("text", ["", "v1\n{}\n{}", "v1\n{}\nnull", "\0" * 40])
def test_a_job_says_what_is_wrong(text: str, offsets: list[int], tmp_path: Path) -> None:
    """With Spark's checkpoint, with a later release's, or with the log, a segment of which is gone."""
    assert small_batches(tmp_path, offsets[3], offsets[40], version=OFFSET_VERSION + 1).ranges(1) is None
    small = small_batches(tmp_path, offsets[3], offsets[40])
    (tmp_path / "checkpoint" / "offsets" / "1").write_text(text)
    assert small.ranges(1) is None
    small = small_batches(tmp_path, offsets[3], offsets[40])
    sorted((tmp_path / "commitlog").iterdir())[1].unlink()
    assert small.ranges(1) is None
