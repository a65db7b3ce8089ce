"""`reput rebuild` over a hole in the log: it reports missing ranges and moved entries, and keeps right ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.delta_rows import rows
from support.outputs import SEGMENT_BYTES, SETTINGS, Output, config_of
from support.rebuild_runner import LocalTasks, rebuild
from support.sink_runner import files_below, no_fsync
from support.verified import found_in, notes_of, verify

from reput.sinks.quarantine import load_quarantine
from reput.source.errors import SegmentError, UnexplainedError
from reput.source.record.message_format import MAGIC_AT, QUEUE_ID_AT
from reput.streaming.rebuild.pipeline import RebuildProgress
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild

GOES_OVER = "failOnDataLoss=false"


@pytest.fixture(autouse=True)
def fast_disk() -> Any:
    with no_fsync():
        yield


@pytest.fixture
def store(tmp_path: Path) -> Output:
    """A log of eight segments that has lost its fourth, and whole queues of it in `out`."""
    output = Output.make(tmp_path, Random(11), 120)
    (output.log / f"{3 * SEGMENT_BYTES:020d}").unlink()
    return output


def test_a_hole_ends_a_rebuild_as_ever(store: Output) -> None:
    with pytest.raises(SegmentError, match="hole in the commitlog"):
        rebuild(config_of(store.store), store.root / "made")


def test_a_rebuild_over_a_hole(store: Output) -> None:
    """It reports which range is missing, and whose entries are before the queue offset of their message."""
    config = config_of(store.store, SETTINGS, GOES_OVER, "onDamage=quarantine")
    made = store.root / "made"
    report = rebuild(config, made)
    begin, end = 3 * SEGMENT_BYTES, 4 * SEGMENT_BYTES
    assert report.missing == [(begin, end)]
    assert report.size_bytes == report.end - report.start - SEGMENT_BYTES
    assert report.quarantined == {"EXPIRED": 1}
    (line,) = load_quarantine(made)
    assert (line.physical_offset, line.length, line.cause) == (begin, end - begin, "EXPIRED")
    sections = verify(config, made)
    assert found_in(sections) == {}
    assert sum(report.entries_moved.values()) == notes_of(sections)["entries_moved"] == report.anomalies["gap"]
    assert set(report.entries_moved) <= {"A-0", "A-1", "B-0", "B-1", "SCHEDULE_TOPIC_XXXX-0", "SCHEDULE_TOPIC_XXXX-1"}
    text = report.text()
    assert f"passed over: [{begin}, {end}), {SEGMENT_BYTES} bytes of segments that are missing" in text
    assert f"{report.anomalies['gap']} entries have a smaller number than the message's queue offset, in " in text
    assert all(f"{queue} ({count})" in text for queue, count in [*report.entries_moved.items()][:5])


@pytest.mark.parametrize("only", [None, "table"])
def test_the_table_has_a_row_of_the_hole(only: str | None, store: Output) -> None:
    """Beside the line of the output, in the quarantine's table; made again, it gets no second row."""
    config, made, table = (
        config_of(store.store, SETTINGS, GOES_OVER, "onDamage=quarantine"),
        store.root / "made",
        store.root / "t",
    )
    for _ in range(2):
        request = RebuildRequest(made, table=table, only=only)
        with Rebuild(config, request, RebuildProgress()) as job:
            job.run(LocalTasks(), no_spark)
        (row,) = rows(table.with_name("t-quarantine"))
        assert (row["physical_offset"], row["length"], row["cause"]) == (3 * SEGMENT_BYTES, SEGMENT_BYTES, "EXPIRED")
        (line,) = load_quarantine(made)
        assert line.physical_offset == row["physical_offset"]


def no_spark() -> Any:
    pytest.fail("Spark was started")


def test_entries_that_are_right_are_moved_only_with_yes(store: Output) -> None:
    """The queues are whole: entries after the hole are where their messages say, and a rebuild would move them."""
    config = config_of(store.store, SETTINGS, GOES_OVER)
    before = files_below(store.out)
    with pytest.raises(UnexplainedError) as raised:
        rebuild(config, store.out)
    assert files_below(store.out).items() >= before.items()
    assert not any(path.startswith("reput/rebuild") for path in files_below(store.out))
    elsewhere = rebuild(config, store.root / "made")
    moved, queues = sum(elsewhere.entries_moved.values()), len(elsewhere.entries_moved)
    begin, end = 3 * SEGMENT_BYTES, 4 * SEGMENT_BYTES
    told = f"the log lacks [{begin}, {end}), so this rebuild would move {moved} entries of {queues} queues "
    assert str(raised.value).startswith(told)
    assert "--yes" in str(raised.value)
    assert rebuild(config, store.out, yes=True).entries_moved == elsewhere.entries_moved
    # They have been moved now: nothing is left to be asked about.
    assert rebuild(config, store.out).entries_moved == elsewhere.entries_moved


def test_damage_moves_entries_only_with_yes(store: Output) -> None:
    """As over a hole, whether a record is left out or names another queue."""
    for name in ("damaged", "another queue"):
        root = store.root / name
        root.mkdir()
        whole = Output.make(root, Random(11), 120)
        record = next(each for each in whole.records[40:] if each.message.topic == "A" and not each.message.sys_flag)
        at = record.physical_offset + (QUEUE_ID_AT if name == "another queue" else MAGIC_AT)
        with (whole.log / f"{at - at % SEGMENT_BYTES:020d}").open("r+b") as file:
            file.seek(at % SEGMENT_BYTES)
            file.write((9).to_bytes(4, "big"))
        config = config_of(whole.store, SETTINGS, "onDamage=quarantine")
        before = files_below(whole.out)
        with pytest.raises(UnexplainedError, match=r"this rebuild would move \d+ entr.* or give --yes"):
            rebuild(config, whole.out)
        assert files_below(whole.out).items() >= before.items()
        moved = rebuild(config, whole.out, yes=True).entries_moved
        assert moved
        assert rebuild(config, whole.out).entries_moved == moved


def test_queues_that_are_gone_need_no_yes(store: Output) -> None:
    shutil.rmtree(store.out)
    assert rebuild(config_of(store.store, SETTINGS, GOES_OVER), store.out).entries_moved
