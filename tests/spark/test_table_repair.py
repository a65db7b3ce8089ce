"""Changes of others to a message table: noticed, reported, and mended in one commit."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.kept_table import KeptTable, messages
from support.logs import put_bytes
from support.tail_runs import run_tail

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.quarantine import QuarantinedRange
from reput.sinks.table.message_table import MessageTable
from reput.sinks.table.quarantine_table import QuarantineTable
from reput.sinks.table.watch import TableWatch
from reput.source.errors import CommitLogRewoundError, OutputError, RowsLostError, TransientError
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification
from reput.streaming.verify.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.long]


# Without the second, VACUUM lists directories by ten thousand tasks.
VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    known = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    yield
    for name, value in known.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


class DiedError(BaseException):
    """The process dies."""


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> KeptTable:
    kept = KeptTable(spark, tmp_path)
    kept.fill(kept.open(), (10, 20, 30, 40))  # versions 1 to 4
    return kept


def reput_log(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records if record.name.startswith("reput")]
    caplog.clear()
    return said


def test_rows_that_others_changed_in_columns_that_tell_no_record(kept: KeptTable) -> None:
    """Each row is made as the log has it: it is still known whose record it is."""
    before = kept.spark.read.format("delta").load(str(kept.path)).orderBy("physical_offset").toArrow()
    kept.spark.sql(f"UPDATE {kept.sql} SET topic = 'x', queue_id = 9, tags = 'x', uniq_key = 'x', msg_id = 'x'")
    kept.repair()
    after = kept.spark.read.format("delta").load(str(kept.path)).orderBy("physical_offset").toArrow()
    assert after.to_pylist()[:40] == before.to_pylist()
    versions = len(kept.history())
    kept.repair()
    assert len(kept.history()) == versions  # nothing differs any more


def test_restore(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """Refused by a running tail before its next commit, and by the next start; one command makes the table whole."""
    running = kept.open()
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF 2")
    assert kept.found() == kept.expected(0, 20)
    said = rf"20 rows of broker 'b' from \[{kept.offsets[20]}, {kept.offsets[40]}\) .* gone: version 5, RESTORE"
    command = rf"'reput rebuild --only table --from {kept.offsets[20]} --to {kept.offsets[40]}'"
    with pytest.raises(RowsLostError, match=said) as refused:
        kept.fill(running, (50,))
    assert str(refused.value).count("\n") == 0
    assert (refused.value.file, refused.value.physical_offset) == (str(kept.path), kept.offsets[20])
    assert command in str(refused.value.advice)
    with pytest.raises(RowsLostError, match=command):
        kept.open()
    assert kept.found() == kept.expected(0, 20)
    kept.repair(start=kept.offsets[20], end=kept.offsets[40])
    assert kept.found() == kept.expected(0, 40)
    kept.fill(kept.open(), (50,))
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF 2")
    kept.repair()  # finds the range itself, and continues to the log's end
    assert kept.found() == kept.expected()
    kept.open()
    with caplog.at_level(logging.INFO, "reput"):
        kept.repair()
    assert any("are those of the log" in line for line in reput_log(caplog))
    assert kept.found() == kept.expected()


def test_a_start_runs_no_job_of_sparks(kept: KeptTable, tmp_path: Path) -> None:
    """A JVM that has just started takes seconds for the first one: neither known rows nor a new broker need any."""
    jobs = kept.spark.sparkContext.statusTracker()
    before = jobs.getJobIdsForGroup()
    kept.open()
    assert KeptTable(kept.spark, tmp_path, broker="c").open().end_offset == 0
    assert jobs.getJobIdsForGroup() == before
    kept.spark.sql(f"INSERT INTO {kept.sql} SELECT 'd' AS broker, * EXCEPT (broker) FROM {kept.sql}")
    with pytest.raises(OutputError, match="40 rows of broker 'd' and no transaction"):
        KeptTable(kept.spark, tmp_path, broker="d").open()
    assert jobs.getJobIdsForGroup() != before  # those were counted


def test_files_are_looked_at_where_only_spark_reads_the_log(spark: SparkSession, tmp_path: Path) -> None:
    """The directory's name means another one to deltalake; a file that is gone is missed all the same."""
    kept = KeptTable(spark, tmp_path / "per%20cent")
    kept.fill(kept.open(), (10, 20))
    kept.open()
    next(kept.path.glob("part-*.parquet")).unlink()
    with pytest.raises(RowsLostError, match="is not there"):
        kept.open()


@pytest.mark.slow
def test_files_removed_by_hand(kept: KeptTable) -> None:
    """One is gone and one is cut short: the error names them; they are made again, though they cannot be read."""
    second = sorted(path for path in kept.path.glob(f"part-{kept.offsets[30]:020d}-*.parquet"))
    first = sorted(path for path in kept.path.glob(f"part-{kept.offsets[10]:020d}-*.parquet"))
    lost = sum(pq.read_metadata(path).num_rows for path in (first[0], second[0]))
    first[0].unlink()
    with pytest.raises(RowsLostError, match=rf"{first[0].name} is not there; 'reput rebuild --only table' with"):
        kept.open()
    second[0].write_bytes(second[0].read_bytes()[:100])
    with pytest.raises(RowsLostError, match=r"is not there and 1 more; 'reput rebuild --only table' with"):
        kept.open()
    verification = StoreVerification(kept.config(), kept.out, sums=True)
    verification.run(SerialTasks())
    section = verify_table(kept.path, "b", verification, SerialTasks(), lambda: kept.spark)
    assert section.findings.counts == {"file_missing": 2, "row_missing": lost}
    assert section.advice.startswith(f"'reput rebuild --only table --from 0 --to {kept.offsets[40]}' with the same")
    kept.repair()
    assert kept.found() == kept.expected()
    kept.open()


def test_what_people_delete_stays_away_and_is_said_once(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """By a running tail, and by the next start; a rebuild that was asked for brings it again, and says so."""
    running = kept.open()
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset IN ({kept.offsets[3]}, {kept.offsets[33]})")
    left = [offset for offset in kept.expected() if offset not in (kept.offsets[3], kept.offsets[33])]
    with caplog.at_level(logging.INFO, "reput"):
        kept.fill(running, (45,))
        said = [line for line in reput_log(caplog) if "others changed rows" in line]
        assert len(said) == 1
        assert "version 5, DELETE" in said[0]
        assert "2 rows fewer, 0 more; they stay as they are" in said[0]
        kept.fill(kept.open(), (50,))
        kept.spark.sql(f"UPDATE {kept.sql} SET tags = 'x' WHERE physical_offset = {kept.offsets[4]}")
        kept.open()
        assert [line for line in reput_log(caplog) if "UPDATE" in line and "0 rows fewer, 0 more" in line]
        kept.fill(kept.open(), (60,))
        assert not [line for line in reput_log(caplog) if "others changed" in line]
        assert kept.found() == left
        kept.repair()
        assert [line for line in reput_log(caplog) if "changed on purpose" in line and "DELETE" in line]
    assert kept.found() == kept.expected()


@pytest.mark.slow
def test_rows_of_other_brokers_stay(
    spark: SparkSession, kept: KeptTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two brokers, whose rows OPTIMIZE and VACUUM bring into the same files, with a deletion vector and INT96 times."""
    other = KeptTable(spark, tmp_path, 40, broker="other")
    other.fill(other.open(), (20, 40))
    running = kept.open()
    spark.sql(f"OPTIMIZE {kept.sql}")
    with settings(spark, **VACUUM):
        spark.sql(f"VACUUM {kept.sql} RETAIN 0 HOURS")
    assert len(list(kept.path.glob("*.parquet"))) == 1
    with caplog.at_level(logging.WARNING, "reput"):
        with mock.patch.object(TableWatch, "_counts", side_effect=AssertionError("counted")):
            kept.fill(running, (50,))
            kept.open()
        assert (kept.open().end_offset, other.open().end_offset) == (kept.offsets[50], other.offsets[40])
        assert not reput_log(caplog)
        spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        spark.sql(f"DELETE FROM {kept.sql} WHERE broker = 'other' AND physical_offset = {other.offsets[7]}")
        spark.sql(f"ALTER TABLE {kept.sql} ADD COLUMNS (note string)")
        spark.sql(f"INSERT INTO {kept.sql} SELECT * FROM {kept.sql} WHERE broker = 'b' AND physical_offset < 1000")
        twice = len([offset for offset in kept.expected() if offset < 1000])
        kept.open()
        assert [line for line in reput_log(caplog) if f"others added {twice} rows of broker 'b'" in line]
    before = (
        spark.read.format("delta").load(str(kept.path)).where("broker = 'other'").toArrow().sort_by("physical_offset")
    )
    kept.repair(start=kept.offsets[5], end=kept.offsets[12])
    kept.repair()
    assert kept.found() == kept.expected()
    assert other.found() == [offset for offset in other.expected() if offset != other.offsets[7]]
    after = (
        spark.read.format("delta").load(str(kept.path)).where("broker = 'other'").toArrow().sort_by("physical_offset")
    )
    assert after == before
    kept.open()
    other.open()


@pytest.mark.slow
def test_an_older_copy_of_the_table(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """A backup that was put back continues where it ends; under a running tail it is an error that may pass."""
    shutil.copytree(kept.path, kept.root / "copy")
    running = kept.open()
    kept.fill(running, (50,))
    shutil.rmtree(kept.path)
    (kept.root / "copy").rename(kept.path)
    with pytest.raises(TransientError, match="is not the commit that was made"):
        kept.fill(running, (60,))
    again = kept.open()
    assert again.end_offset == kept.offsets[40]
    kept.fill(again, (60,))
    assert kept.found() == kept.expected()
    copy = (
        f"CREATE TABLE delta.`{kept.root}/selected` USING DELTA AS SELECT * FROM {kept.sql} WHERE physical_offset > 99"
    )
    kept.spark.sql(copy)
    kept.path = kept.root / "selected"
    with pytest.raises(OutputError, match=r"58 rows of broker 'b' and no transaction of reput"):
        kept.open()
    kept.repair()
    assert kept.found() == kept.expected()
    assert kept.open().end_offset == kept.offsets[60]


def test_a_log_that_was_cut(kept: KeptTable) -> None:
    """The table's rows after the cut go in the commit that brings the new ones; a crash after it changes nothing."""
    kept.write_log([*messages(25), *messages(3, 100)])
    with pytest.raises(CommitLogRewoundError, match="'reput rebuild --only table'"):
        kept.open()
    with (
        mock.patch.object(ProgressFile, "store", side_effect=ZeroDivisionError("died")),
        pytest.raises(ZeroDivisionError),
    ):
        kept.repair()
    assert kept.found() == kept.expected()
    kept.repair()
    assert kept.history() == ["CREATE TABLE", *["WRITE"] * 5]
    kept.write_log([*messages(25), *messages(30, 100)])
    table = kept.open()
    assert table.end_offset == kept.offsets[28]
    kept.fill(table, (55,))
    assert kept.found() == kept.expected()


@pytest.mark.slow
def test_a_damaged_log_is_not_taken_for_one_that_was_cut(kept: KeptTable) -> None:
    """The table's rows after the damage stay: they may be all that is left of their messages. --from decides."""
    kept.fill(kept.open(), (50,))
    damaged, last = kept.offsets[46], kept.records[49].physical_offset
    assert damaged // 2000 == last // 2000
    for segment in (kept.store / "commitlog").iterdir():
        if int(segment.name) > last:
            segment.unlink()
    put_bytes(kept.store / "commitlog" / f"{last - last % 2000:020d}", damaged % 2000 + 4, b"\x55")
    before = kept.found()
    with pytest.raises(OutputError, match=rf"table's last record is after that, .* '--from {damaged}' removes"):
        kept.repair()
    assert kept.found() == before
    kept.repair(start=damaged)
    assert kept.found() == kept.expected(0, 46)
    assert kept.open().end_offset == damaged


@pytest.mark.slow
def test_another_store_changes_nothing(kept: KeptTable) -> None:
    """No record of the log is in the table: its rows are not taken for those of a log that was cut."""
    kept.write_log(messages(12, 500))
    before = kept.found()
    with pytest.raises(OutputError, match="another store, or its log is empty; nothing was changed"):
        kept.repair()
    (kept.store / "commitlog" / f"{0:020d}").write_bytes(bytes(2000))  # as a log looks in which nothing was written
    with pytest.raises(OutputError, match="another store, or its log is empty; nothing was changed"):
        kept.repair()
    assert kept.found() == before


@pytest.mark.slow
def test_what_the_log_has_no_more_is_gone_for_good(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """Said with its number; accepted by failOnDataLoss=false, or by the repair of the rest."""
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF 0")
    expired = (kept.store / "commitlog" / f"{0:020d}", kept.store / "commitlog" / f"{2000:020d}")
    for path in expired:
        path.unlink()
    gone = sum(offset < 4000 for offset in kept.expected(0, 40))
    assert gone == 38
    with pytest.raises(
        RowsLostError, match=r"--from 4000 --to .* makes them again; what is before 4000 is gone for good"
    ):
        kept.open("failOnDataLoss=false")
    with caplog.at_level(logging.WARNING, "reput"):
        kept.repair()
        assert [
            line
            for line in reput_log(caplog)
            if f"{gone} rows of broker 'b' from [0, 4000) of the log are gone" in line
        ]
    assert kept.found() == [offset for offset in kept.expected() if offset >= 4000]
    kept.open()
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset < 4000")
    kept.open()


@pytest.mark.slow
def test_tables_of_earlier_versions(kept: KeptTable) -> None:
    """Without a ledger the rows are counted once; a RESTORE in the table's log is refused until it was compared."""
    record = ProgressFile(DurableFiles(kept.out), "messages")
    progress = record.load()
    assert progress is not None
    without = type(progress)(progress.start_offset, progress.end_offset, progress.last_record)
    record.store(without)
    kept.fill(kept.open(), (50,))
    known = record.load()
    assert known is not None
    assert known.state["ledger"]["marks"] == [[kept.offsets[40], 40], [kept.offsets[50], 50]]
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF 3")
    record.store(type(known)(known.start_offset, known.end_offset, known.last_record))
    with pytest.raises(RowsLostError, match="took rows away; it is not known whether the table has all rows of broker"):
        kept.open()
    kept.repair()
    assert kept.found() == kept.expected()
    # The table's log lost the files of its early versions, as it does after a month.
    for path in sorted((kept.path / "_delta_log").glob("*.json"))[:-1]:
        path.with_suffix(".old").write_bytes(b"")
    kept.open()


@pytest.mark.slow
def test_a_repair_that_dies_anywhere(kept: KeptTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before or behind each call that puts something in offset: the old rows or the new ones, and then all."""
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF 2")
    old, new = kept.expected(0, 20), kept.expected(0, 40)
    outcomes = set()
    points: list[tuple[Any, str]] = [(os, "link"), (DurableFiles, "make_durable"), (MessageTable, "accept_as_is")]
    for owner, name in points:
        for is_before in (True, False):
            real = getattr(owner, name)

            def die(*arguments: Any, real: Any = real, is_before: bool = is_before) -> None:
                if not is_before:
                    real(*arguments)
                raise DiedError

            with monkeypatch.context() as patch:
                patch.setattr(owner, name, die)
                with pytest.raises(DiedError):
                    kept.repair(start=kept.offsets[20], end=kept.offsets[40])
            found = kept.found()
            assert found in (old, new), (name, is_before)
            outcomes.add(found == new)
            if found == new:
                kept.open()
                kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF 2")
    assert outcomes == {True, False}
    kept.repair()
    assert kept.found() == kept.expected()


@pytest.mark.slow
def test_the_quarantine_table(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lost lines come back from the output's own at the next start; lines that a DELETE removed stay away."""
    lines = [QuarantinedRange("b", at, 9, "BAD_MAGIC", "f", at, "00", "t", "quarantine") for at in (10, 20, 30, 40)]
    path = tmp_path / "table-quarantine"

    def opened() -> QuarantineTable:
        table = QuarantineTable(tmp_path / "table", "b")
        table.repair(lines)
        return table

    def found() -> list[int]:
        rows = spark.read.format("delta").load(str(path)).orderBy("physical_offset").collect()
        return [row.physical_offset for row in rows]

    opened().write(25, lines[:2])
    opened().write(45, lines[2:])
    assert found() == [10, 20, 30, 40]
    spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 1")
    with caplog.at_level(logging.WARNING, "reput"):
        opened()
        assert [line for line in reput_log(caplog) if "2 ranges were gone (version 3, RESTORE" in line]
    assert found() == [10, 20, 30, 40]
    max(path.glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns).unlink()
    opened()
    assert found() == [10, 20, 30, 40]
    spark.sql(f"DELETE FROM delta.`{path}` WHERE physical_offset = 20")
    opened().write(60, lines)
    assert found() == [10, 30, 40]


@pytest.mark.slow
def test_a_tail_stops_and_a_rebuild_and_a_tail_go_on(spark: SparkSession, tmp_path: Path) -> None:
    """The commands themselves."""
    kept = KeptTable(spark, tmp_path)
    options = ("broker=b", "consumeQueueEnable=false", "messageIndexEnable=false", "tableMaxBytesPerTrigger=1500")
    run_tail(spark, kept.store, kept.out, *options, table=kept.path)
    assert kept.found() == kept.expected()
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF 2")
    with pytest.raises(RowsLostError, match="RESTORE"):
        run_tail(spark, kept.store, kept.out, *options, table=kept.path)
    kept.write_log([*messages(30), *messages(30, 200)])
    kept.repair()
    run_tail(spark, kept.store, kept.out, *options, table=kept.path)
    assert kept.found() == kept.expected()
