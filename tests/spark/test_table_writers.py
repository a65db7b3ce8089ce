"""Several reputs on one table: of several brokers they do not meet, of one broker the second is refused."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import SparkSession
from support.command_line import invoke, run_reput
from support.kept_table import KeptTable

from reput.sinks.table import cleaning, delta_table
from reput.sinks.table import upkeep as upkeep_module
from reput.sinks.table.storage import turn
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OutputError

pytestmark = pytest.mark.spark


def brokers(spark: SparkSession, root: Path, *names: str) -> list[KeptTable]:
    return [KeptTable(spark, root, broker=name) for name in names]


@pytest.mark.parametrize(
    "ends", [(10, 20), *(pytest.param(each, marks=pytest.mark.slow) for each in ((20, 10), (10, 10)))]
)
def test_two_reputs_with_one_brokers_name(ends: tuple[int, int], spark: SparkSession, tmp_path: Path) -> None:
    """Each has an output of its own, so no lock keeps them apart: the one that commits behind the other is refused."""
    first, second = brokers(spark, tmp_path, "b", "b")
    second.out = tmp_path / "second-out"
    tables = first.open(), second.open()
    first.fill(tables[0], [ends[0]])
    with pytest.raises(OutputError, match=r"another reput .* broker 'b'") as refused:
        second.fill(tables[1], [ends[1]])
    assert refused.value.exit_code == 1
    assert str(refused.value).count("\n") == 0
    first.fill(tables[0], [30])
    assert first.found() == first.expected(0, 30)
    second.fill(second.open(), [40])  # one behind the other is as if the output had been moved
    with pytest.raises(OutputError, match=r"another reput .* broker 'b'"):
        first.fill(tables[0], [60])
    assert first.found() == first.expected(0, 40)


def test_a_broker_that_was_silent_while_others_filled_the_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit that it saw last is no longer in the log: its rows are counted, and it continues."""
    monkeypatch.setattr(cleaning, "READ_FOR_S", 0)
    monkeypatch.setattr(upkeep_module, "CLEANED_EVERY", 5)
    silent, busy = brokers(spark, tmp_path, "b", "c")
    running = silent.open()
    silent.fill(running, [10])
    spark.sql(f"ALTER TABLE {silent.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '5')")
    others = busy.open()
    upkeep = TableUpkeep(others.delta, "c", 5)
    for number in range(1, 21):
        busy.fill(others, [number])
        upkeep.step(60.0)
    assert not (others.path / "_delta_log" / f"{1:020d}.json").exists()
    with caplog.at_level(logging.WARNING, "reput"):
        silent.fill(running, [20])
        silent.fill(silent.open(), [30])
    assert not caplog.records
    assert (silent.found(), busy.found()) == (silent.expected(0, 30), busy.expected(0, 20))


@pytest.mark.slow
def test_a_second_reput_is_seen_where_the_log_was_cut(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last transaction tells of it where the commits themselves are gone."""
    monkeypatch.setattr(cleaning, "READ_FOR_S", 0)
    first, second = brokers(spark, tmp_path, "b", "b")
    second.out = tmp_path / "second-out"
    running = first.open()
    first.fill(running, [10])
    spark.sql(f"ALTER TABLE {first.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '5')")
    other = second.open()
    second.fill(other, range(11, 31))
    assert cleaning.clean_log(first.path, other.delta.version, 5) > 2
    with pytest.raises(OutputError, match="another reput has committed rows of broker 'b'"):
        first.fill(running, [40])
    assert first.found() == first.expected(0, 30)


@pytest.mark.slow
def test_rows_are_counted_behind_a_cleaned_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commits that Spark read at the start are gone when another process's DELETE makes the run count its rows."""
    monkeypatch.setattr(cleaning, "READ_FOR_S", 0)
    (kept,) = brokers(spark, tmp_path, "b")
    kept.fill(kept.open(), [1])
    spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '5')")
    kept.fill(kept.open(), range(2, 11))
    running = kept.open()
    known = set((running.path / "_delta_log").glob("*.checkpoint.parquet"))
    kept.fill(running, range(11, 31))
    assert cleaning.clean_log(kept.path, running.delta.version, 5) > 0
    assert not any(path.exists() for path in known)
    deltalake.DeltaTable(str(kept.path)).delete(f"physical_offset = {kept.offsets[3]}")
    with caplog.at_level(logging.WARNING, "reput"):
        kept.fill(running, [40])
    assert ["1 rows fewer, 0 more; they stay as they are" in each.getMessage() for each in caplog.records] == [True]
    assert kept.found() == [offset for offset in kept.expected(0, 40) if offset != kept.offsets[3]]


def test_who_keeps_the_turn_delays_a_commit_and_no_more(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a reput that is stopped in the middle of its commit."""
    monkeypatch.setattr(delta_table, "_TURN_S", 0.2)
    (kept,) = brokers(spark, tmp_path, "b")
    table = kept.open()
    with turn(table.path / "_delta_log", 0.0) as is_ours:
        assert is_ours
        with turn(table.path / "_delta_log", 0.0) as is_anothers:
            assert not is_anothers
        kept.fill(table, [10])
    kept.fill(table, [20])
    assert kept.found() == kept.expected(0, 20)


def found(kept: KeptTable) -> list[Any]:
    return list(kept.spark.read.format("delta").load(str(kept.path)).orderBy("physical_offset").toArrow().to_pylist())


def all_read(kept: KeptTable, rows: int) -> None:
    """Every command that reads the table without Spark does."""
    table = ("--table", str(kept.path))
    told = invoke(["sql", *table, "--format", "csv", "SELECT count(*) AS n FROM messages"])
    assert (told.exit_code, told.stdout.split()) == (0, ["n", str(rows)]), told.stderr
    for words in (["query", "--key", "k3"], ["ask", "top-topics"], ["table", "describe"]):
        run_reput([*words, *table])


def advised(kept: KeptTable) -> None:
    """Do what the errors say, one after the other, until a tail can continue."""
    for _ in range(4):
        said = ""
        try:
            kept.open()
        except OutputError as error:
            said = str(error)
        if not said:
            return
        statements = re.findall(r"(?:ALTER|RESTORE) TABLE [^;']+(?:'[^;]*'\))?", said)
        assert statements, said
        kept.spark.sql(statements[0])
    pytest.fail("it is refused again and again")


MAPPED = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


@pytest.mark.parametrize(
    "changes",
    [
        (MAPPED, "DROP COLUMN tags"),
        (MAPPED, "RENAME COLUMN tags TO labels"),
        ("SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", "ALTER COLUMN queue_id TYPE BIGINT"),
    ],
)
def test_what_is_advised_undoes_what_others_changed(
    changes: tuple[str, ...], spark: SparkSession, tmp_path: Path
) -> None:
    """Each statement is run unchanged; then all commands read the table, and the rows are those of the log."""
    (kept,) = brokers(spark, tmp_path, "b")
    kept.fill(kept.open(), [10])
    before = found(kept)
    for change in changes:
        spark.sql(f"ALTER TABLE {kept.sql} {change}")
    with pytest.raises(OutputError, match="lacking"):
        kept.open()
    advised(kept)
    assert found(kept) == before
    kept.fill(kept.open(), [20])
    all_read(kept, 20)


def test_deltalakes_switch_for_deletion_vectors(spark: SparkSession, tmp_path: Path) -> None:
    """It names variantType, too, of which the table has no column."""
    (kept,) = brokers(spark, tmp_path, "b")
    kept.fill(kept.open(), [10])
    deltalake.DeltaTable(str(kept.path)).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    assert "variantType" in deltalake.DeltaTable(str(kept.path)).protocol().reader_features
    advised(kept)
    kept.fill(kept.open(), [20])
    all_read(kept, 20)
