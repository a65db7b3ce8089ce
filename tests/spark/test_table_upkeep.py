"""A table that is tidied while it grows: the same rows in fewer files, beside others' commits, and a short log."""

from __future__ import annotations

import json
import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import deltalake
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from support.delta_rows import rows as rows_of
from support.kept_table import KeptTable
from support.other_writer import in_the_moment_of_a_commit
from support.tail_runs import run_tail

from reput.sinks.table import cleaning
from reput.sinks.table import upkeep as upkeep_module
from reput.sinks.table.lookup import TableLookup
from reput.sinks.table.message_table import MessageTable
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OutputFullError, RowsLostError
from reput.streaming.tail.upkeep import BatchUpkeep

pytestmark = pytest.mark.spark

LONG = 60.0


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> KeptTable:
    return KeptTable(spark, tmp_path)


def upkeep_of(table: MessageTable, kept: int = 50) -> TableUpkeep:
    return TableUpkeep(table.delta, "b", kept)


def files(kept: KeptTable) -> list[str]:
    return deltalake.DeltaTable(str(kept.path)).file_uris()


def test_small_files_become_one(kept: KeptTable) -> None:
    """Every row once, sorted by topic; the commit changes no row, and the history names the operation."""
    table = kept.open()
    kept.fill(table, range(1, 41))
    before = rows_of(kept.path)
    done = upkeep_of(table).step(LONG)
    assert (done.merges, done.files_before, done.files_after) == (1, 40, 1)
    assert len(files(kept)) == 1
    assert rows_of(kept.path) == before
    rows = pq.read_table(files(kept)[0], columns=["topic", "physical_offset"]).to_pylist()
    assert rows == sorted(rows, key=lambda row: (row["topic"], row["physical_offset"]))
    last = kept.spark.sql(f"DESCRIBE HISTORY {kept.sql} LIMIT 1").first()
    assert last is not None
    assert last.operation == "OPTIMIZE"
    assert (last.operationMetrics["numAddedFiles"], last.operationMetrics["numRemovedFiles"]) == ("1", "40")
    log = [
        json.loads(line)
        for line in (table.path / "_delta_log" / f"{table.delta.version:020d}.json").read_text().splitlines()
    ]
    assert not any(action[kind]["dataChange"] for action in log for kind in ("add", "remove") if kind in action)
    statistics = json.loads(next(action["add"]["stats"] for action in log if "add" in action))
    assert statistics["numRecords"] == 40
    assert (statistics["minValues"]["topic"], statistics["maxValues"]["topic"]) == ("A", "B")


@pytest.mark.slow
def test_any_path(spark: SparkSession, tmp_path: Path) -> None:
    """Spaces, letters of all alphabets and percent signs in the table's path, but for what looks like a URL's."""
    kept = KeptTable(spark, tmp_path / "a b#ä订 50%x")
    table = kept.open()
    kept.fill(table, range(1, 11))
    assert upkeep_of(table).step(LONG).merges == 1
    assert kept.found() == kept.expected(0, 10)


@pytest.mark.slow
def test_the_run_goes_on_behind_it(kept: KeptTable) -> None:
    """In the same run and in a next one: no report of lost rows, added rows or another writer."""
    table = kept.open()
    kept.fill(table, range(1, 21))
    upkeep = upkeep_of(table)
    assert upkeep.step(LONG).merges == 1
    kept.fill(table, range(21, 41))
    assert upkeep.step(LONG).merges == 1
    again = kept.open()
    kept.fill(again, [60])
    assert kept.found() == kept.expected()


def test_a_merge_at_a_time(kept: KeptTable) -> None:
    """However short the time is, what is due is done at last: first the files of a few rows, then what they became."""
    table = kept.open()
    kept.fill(table, range(1, 33))
    upkeep = upkeep_of(table)
    with mock.patch.object(upkeep_module, "_MERGED_MAX", 8):
        found = [upkeep.step(0.0) for _ in range(5)]
    assert [(done.merges, done.files_before) for done in found] == [(1, 8)] * 4 + [(0, 0)]
    assert len(files(kept)) == 4
    assert kept.found() == kept.expected(0, 32)


def test_each_broker_merges_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """In a table of several; none touches files of another."""
    both = [KeptTable(spark, tmp_path, broker=broker) for broker in ("b", "c")]
    tables = [kept.open() for kept in both]
    for kept, table in zip(both, tables, strict=True):
        kept.fill(table, range(1, 21))
    assert upkeep_of(tables[0]).step(LONG).files_before == 20
    assert len(files(both[0])) == 21
    assert [kept.found() for kept in both] == [kept.expected(0, 20) for kept in both]


OTHERS = {
    "OPTIMIZE": lambda kept: kept.spark.sql(f"OPTIMIZE {kept.sql}"),
    "compact": lambda kept: deltalake.DeltaTable(str(kept.path)).optimize.compact(),
    "DELETE": lambda kept: kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {kept.offsets[3]}"),
}


@pytest.mark.parametrize(
    ("other", "vectors"),
    [
        ("DELETE", True),
        ("compact", False),
        pytest.param("OPTIMIZE", False, marks=pytest.mark.slow),
        pytest.param("OPTIMIZE", True, marks=pytest.mark.slow),
        pytest.param("DELETE", False, marks=pytest.mark.slow),
    ],
)
def test_another_writer_in_the_moment_of_a_merge(other: str, vectors: bool, kept: KeptTable) -> None:
    """Commits of others stay: the merge is given up, its file is gone, and no row comes back or goes.

    The small and whole files that the other left are merged then.
    """
    table = kept.open()
    kept.fill(table, range(4, 61, 4))  # several rows a file: one that loses all goes with its deletion vector
    if vectors:
        kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    upkeep = upkeep_of(table)
    small = len(files(kept))
    with in_the_moment_of_a_commit(lambda: OTHERS[other](kept)):
        done = upkeep.step(LONG)
    assert (done.merges, done.files_before) == ((0, 0) if other in ("compact", "OPTIMIZE") else (1, small - 1))
    assert {path.name for path in kept.path.glob("merged-*")} <= {Path(uri).name for uri in files(kept)}
    wanted = [offset for offset in kept.expected() if other != "DELETE" or offset != kept.offsets[3]]
    assert kept.found() == wanted
    upkeep.step(LONG)
    assert kept.found() == wanted


def test_a_merge_is_written_beside_the_next_commits(kept: KeptTable) -> None:
    """It takes the files that existed when it began; a later step commits it, and begins what is due then."""
    table = kept.open()
    kept.fill(table, range(1, 21))
    upkeep, may_write = upkeep_of(table), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(may_write.wait, LONG / 3)
        assert upkeep.step(LONG, beside=pool).merges == 0
        kept.fill(table, [21, 22])
        assert not upkeep.has_written
        assert upkeep.step(LONG, beside=pool).merges == 0
        assert len(files(kept)) == 22
        may_write.set()
        pool.submit(int).result(LONG)  # behind the merge
        assert upkeep.has_written
        done = upkeep.step(LONG, beside=pool)
        assert (done.merges, done.files_before, done.files_after) == (1, 20, 1)
        assert not upkeep.has_written
    assert len(files(kept)) == 3
    assert kept.found() == kept.expected(0, 22)
    kept.open()


def begun(kept: KeptTable, pool: ThreadPoolExecutor) -> TableUpkeep:
    """Upkeep that has begun a merge, and written its files."""
    table = kept.open()
    kept.fill(table, range(4, 61, 4))
    upkeep = upkeep_of(table)
    upkeep.step(LONG, beside=pool)
    pool.submit(int).result(LONG)
    assert list(kept.path.glob("merged-*"))
    return upkeep


def test_a_step_by_itself_commits_a_merge_that_was_begun(kept: KeptTable) -> None:
    """As at the end of a run: once."""
    with ThreadPoolExecutor(1) as pool:
        assert begun(kept, pool).step(LONG).merges == 1
    assert len(files(kept)) == 1
    assert kept.found() == kept.expected()


@pytest.mark.parametrize(
    ("other", "vectors"), [("compact", False), pytest.param("DELETE", True, marks=pytest.mark.slow)]
)
def test_another_writer_while_a_merge_is_written(other: str, vectors: bool, kept: KeptTable) -> None:
    """As in the moment of a commit; what the other left small is merged afterwards."""
    with ThreadPoolExecutor(1) as pool:
        upkeep = begun(kept, pool)
        small = len(files(kept))
        if vectors:
            kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
        OTHERS[other](kept)
        assert upkeep.step(0.0, beside=pool).merges == 0
        pool.submit(int).result(LONG)
        last = upkeep.step(LONG)
    wanted = [offset for offset in kept.expected() if other != "DELETE" or offset != kept.offsets[3]]
    assert kept.found() == wanted
    assert (last.merges, last.files_before) == ((1, small - 1) if vectors else (0, 0))
    assert {path.name for path in kept.path.glob("merged-*")} <= {Path(uri).name for uri in files(kept)}


def test_a_merge_that_is_given_up_leaves_nothing(kept: KeptTable) -> None:
    """Neither its file nor its key filter, whether it is written already or not; the table is as it was."""
    may_write = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        upkeep = begun(kept, pool)
        small = files(kept)
        upkeep.give_up()
        pool.submit(may_write.wait, LONG)
        upkeep.step(LONG, beside=pool)
        threading.Timer(0.2, may_write.set).start()
        upkeep.give_up()
        upkeep.give_up()
    assert not list(kept.path.rglob("merged-*"))
    assert files(kept) == small
    assert kept.found() == kept.expected()


def test_a_running_tail_to_which_nothing_comes_commits_its_merge(kept: KeptTable) -> None:
    """The next micro-batch, which would, may be long in coming."""
    kept.fill(kept.open(), range(1, 41))
    with kept.followed("tableTriggerMs=100") as wait_until:
        wait_until(lambda: any(Path(uri).name.startswith("merged-") for uri in files(kept)))
    assert kept.found() == kept.expected()
    assert {path.name for path in kept.path.glob("merged-*")} <= {Path(uri).name for uri in files(kept)}


def test_a_merge_that_cannot_be_written_beside(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """The step that would commit it says so, as if it had written it itself, and the next one merges."""
    table = kept.open()
    kept.fill(table, range(1, 21))
    upkeep, full = upkeep_of(table), OutputFullError("no room", file=kept.path)
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING, "reput"):
        with mock.patch.object(upkeep_module, "merged_files", side_effect=full):
            upkeep.step(LONG, beside=pool)
            pool.submit(int).result(LONG)
        assert upkeep.step(LONG, beside=pool).merges == 0
        assert [record.getMessage() for record in caplog.records] == ["no room; the table is tidied later"]
        assert upkeep.step(LONG).merges == 1
    assert kept.found() == kept.expected(0, 20)


def test_the_log_stays_short(kept: KeptTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old versions go, and the data files that only they had; every version that is kept can be read."""
    monkeypatch.setattr(cleaning, "READ_FOR_S", 0)
    monkeypatch.setattr(upkeep_module, "CLEANED_EVERY", 10)
    table = kept.open()
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '10')")
    upkeep = upkeep_of(table, 12)
    rows, removed = {}, 0
    for number in range(1, 41):
        kept.fill(table, [number])
        rows[table.delta.version] = number
        removed += upkeep.step(LONG).commits_removed
        rows[table.delta.version] = number
    versions = sorted(int(path.stem) for path in (table.path / "_delta_log").glob("*.json"))
    assert removed == versions[0] > 12
    assert 12 <= table.delta.version - versions[0] < 40
    assert versions == list(range(versions[0], table.delta.version + 1))
    needed = set()
    for version in versions:
        at_version = deltalake.DeltaTable(str(kept.path), version=version)
        assert at_version.to_pyarrow_table(columns=["physical_offset"]).num_rows == rows[version]
        needed |= set(at_version.file_uris())
    assert {str(path) for path in kept.path.glob("*.parquet")} == needed
    assert kept.open().end_offset == kept.offsets[40]
    assert kept.found() == kept.expected(0, 40)


@pytest.mark.slow
def test_a_file_that_came_back_is_kept(kept: KeptTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """RESTORE names files again that a merge had removed."""
    monkeypatch.setattr(cleaning, "READ_FOR_S", 0)
    table = kept.open()
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '5')")
    kept.fill(table, range(1, 21))
    before = table.delta.version
    upkeep = upkeep_of(table, 5)
    assert upkeep.step(LONG).merges == 1
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF {before}")
    kept.fill(table, range(21, 41))
    assert cleaning.clean_log(kept.path, table.delta.version, 5) > before
    assert kept.found() == kept.expected(0, 40)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("delta.enableRowTracking", "true", "enableRowTracking"), ("delta.logRetentionDuration", "interval 9 days", None)],
)
@pytest.mark.slow
def test_what_the_owner_of_the_table_set_is_respected(
    name: str, value: str, said: str | None, kept: KeptTable, caplog: pytest.LogCaptureFixture
) -> None:
    table = kept.open()
    kept.fill(table, range(1, 11))
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('{name}' = '{value}')")
    upkeep = upkeep_of(table)
    with caplog.at_level(logging.WARNING, "reput"), mock.patch.object(upkeep_module, "CLEANED_EVERY", 1):
        done = [upkeep.step(LONG) for _ in range(2)]
    assert [each.merges for each in done] == ([0, 0] if said else [1, 0])
    assert [said in record.getMessage() for record in caplog.records] == ([True] if said else [])


def test_a_file_that_is_gone_ends_the_upkeep_alone(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """The run continues; the next start says which rows are lost."""
    table = kept.open()
    kept.fill(table, range(1, 21))
    Path(files(kept)[3]).unlink()
    upkeep = upkeep_of(table)
    with caplog.at_level(logging.WARNING, "reput"):
        assert [upkeep.step(LONG).merges for _ in range(2)] == [0, 0]
    assert len(caplog.records) == 1
    assert re.search(
        r"not tidied before the next start: .*parquet is gone, .* 'reput rebuild --only table' makes them", caplog.text
    )
    kept.fill(table, range(21, 31))
    with pytest.raises(RowsLostError, match=r"is not there; 'reput rebuild --only table' with"):
        kept.open()
    kept.repair()
    kept.open()
    assert kept.found() == kept.expected()


@pytest.mark.parametrize(("switch", "least", "most"), [("true", 1, 2), ("false", 10, 99)])
def test_a_run_to_the_logs_end_leaves_a_tidy_table(
    switch: str, least: int, most: int, spark: SparkSession, tmp_path: Path
) -> None:
    """However many commits it made."""
    kept = KeptTable(spark, tmp_path)
    size = kept.offsets[-1] // 12
    options = (f"maxBytesPerTrigger={size}", f"tableMaxBytesPerTrigger={size}", f"tableUpkeep={switch}", "broker=b")
    run_tail(spark, kept.store, kept.out, *options, table=kept.path)
    assert kept.found() == kept.expected()
    assert least <= len(files(kept)) <= most


def test_a_table_far_behind_catches_up_first() -> None:
    """Between batches that are full there is no time for tidying."""
    table = mock.create_autospec(TableUpkeep, instance=True)
    done: list[object] = []
    upkeep = BatchUpkeep(table, 5.0, 1000, done.append)
    for read_bytes in (1000, 999, 500):
        upkeep.after_batch(read_bytes)
    assert table.step.call_args_list == []
    upkeep.after_batch(499)
    upkeep.at_end()
    upkeep.close()
    steps = [(call.args, call.kwargs.keys()) for call in table.step.call_args_list]
    assert steps == [((5.0,), {"beside"}), ((30.0,), {"sorts"})]
    assert done == [table.step.return_value] * 2


@pytest.mark.parametrize("has_written", [True, False])
def test_a_look_at_the_table_between_two_batches(has_written: bool) -> None:
    """A merge whose files are written does not wait for the next message; otherwise there is nothing to do."""
    table = mock.create_autospec(TableUpkeep, instance=True)
    table.has_written = has_written
    upkeep = BatchUpkeep(table, 5.0, 1000, mock.Mock())
    upkeep.look()
    assert table.step.call_count == has_written
    upkeep.close()
    assert table.give_up.call_count == 1


def keys_of(kept: KeptTable, first: int, last: int) -> list[tuple[int, int, int]]:
    """Of the messages `[first, last)` by key: the rows found, the files opened for it, those without a filter."""
    lookup = TableLookup(kept.path)
    found = [lookup.by_key(f"k{number}", max_num=9) for number in range(first, last)]
    return [(len(answer.rows), answer.opened, answer.unfiltered) for answer in found]


def test_each_file_gets_its_key_filter(kept: KeptTable) -> None:
    """Merged ones, ones that are left as they are, and those that others merged."""
    table = kept.open()
    kept.fill(table, range(1, 31))
    upkeep = upkeep_of(table)
    upkeep.step(LONG)
    kept.fill(table, range(31, 34))  # too few to be merged
    assert keys_of(kept, 31, 33) == [(1, 3, 3)] * 2
    upkeep.step(LONG)
    assert keys_of(kept, 0, 33) == [(1, 1, 0)] * 33
    assert keys_of(kept, 33, 40) == [(0, 0, 0)] * 7
    deltalake.DeltaTable(str(kept.path)).optimize.compact()
    kept.fill(table, [34])
    upkeep.step(LONG)
    assert keys_of(kept, 0, 34) == [(1, 1, 0)] * 34


def test_deleted_rows_are_not_found(kept: KeptTable) -> None:
    """By a deletion vector, which leaves them in the file: each other row is found, as Spark finds it."""
    table = kept.open()
    kept.fill(table, [30, 60])
    upkeep_of(table).step(LONG)
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE array_contains(keys, 'k7') OR queue_offset = 20")
    rows = kept.spark.sql(f"SELECT keys[0] AS key FROM {kept.sql}").collect()
    there = {row.key for row in rows}
    assert 50 < len(there) < 60
    assert [found for found, _, _ in keys_of(kept, 0, 60)] == [int(f"k{number}" in there) for number in range(60)]
