"""`reput table describe`, `history`, `optimize` and `vacuum`: on tables of several brokers, beside those who write."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from support.command_line import run_reput
from support.kept_table import KeptTable

from reput.sinks.table import cleaning
from reput.sinks.table.history import log_entries
from reput.sinks.table.storage import table_storage
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OptionError, OutputError
from reput.streaming.table.commands import TableState, optimize, vacuum

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECOND = "ö d"
HOSTILE = "x\x1b]0;x\x07\u202e"


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> list[KeptTable]:
    """A table of two brokers, of which one has a merged file."""
    both = [KeptTable(spark, tmp_path, broker=broker) for broker in ("b", SECOND)]
    table = both[0].open()
    both[0].fill(table, range(4, 45, 4))
    assert TableUpkeep(table.delta, "b", 50).step(60).merges == 1
    both[0].fill(table, range(48, 61, 4))
    both[1].fill(both[1].open(), range(3, 34, 3))
    return both


def run(*words: str) -> str:
    result = run_reput(["table", *words])
    return result.stdout


def files(kept: KeptTable) -> set[str]:
    return {path.name for path in kept.path.glob("*.parquet")}


@pytest.mark.parametrize("vectors", [pytest.param(False, marks=pytest.mark.slow), True])
def test_describe(vectors: bool, both: list[KeptTable]) -> None:
    """As Spark counts them, in files of several brokers and with rows that a deletion vector takes away."""
    kept = both[0]
    if vectors:
        kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    kept.spark.sql(f"OPTIMIZE {kept.sql}")
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {kept.offsets[3]}")
    row = kept.spark.table(kept.sql).limit(1).withColumn("broker", sf.lit(HOSTILE))
    row.write.format("delta").mode("append").save(str(kept.path))
    told = json.loads(run("describe", "--table", str(kept.path), "--json"))
    brokers = {each["broker"]: each for each in told["brokers"]}
    counts = kept.spark.table(kept.sql).groupBy("broker").count().collect()
    assert {name: each["rows"] for name, each in brokers.items()} == {row.broker: row["count"] for row in counts}
    assert told["rows"] == kept.spark.table(kept.sql).count() < 60 + 33 + 1
    assert [brokers[name]["end"] for name in ("b", SECOND, HOSTILE)] == [kept.offsets[60], both[1].offsets[33], None]
    assert brokers["b"]["last_range"] == [kept.offsets[56], kept.offsets[60]]
    assert (told["writer_version"], "deletionVectors" in told["features"]) == ((7, True) if vectors else (2, False))
    sizes = [Path(path).stat().st_size for path in files_of(kept)]
    assert (told["files"], told["bytes"]) == (len(sizes), sum(sizes))
    times = kept.spark.sql(f"SELECT min(unix_millis(store_time)), max(unix_millis(store_time)) FROM {kept.sql}").first()
    state = TableState(kept.path)
    assert state.store_times is not None
    assert times is not None
    assert [round(each.timestamp() * 1000) for each in state.store_times] == list(times)
    text = run("describe", "--table", str(kept.path))
    assert "broker x\\x1b]0;x\\x07\\u202e: 1 row, without a transaction" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


def files_of(kept: KeptTable) -> list[str]:
    return [uri.removeprefix("file://") for uri in deltalake.DeltaTable(str(kept.path)).file_uris()]


def test_history(both: list[KeptTable]) -> None:
    """Newest first, others' commits among them; what a commit cannot tell is left out."""
    kept = both[0]
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {kept.offsets[3]}")
    told = [json.loads(line) for line in run("history", "--table", str(kept.path), "--json").splitlines()]
    assert [each["operation"] for each in told] == kept.history()[::-1]
    assert (told[0]["operation"], told[0]["what"], told[0]["files_removed"]) == ("DELETE", None, 2)
    newest = next(each for each in told if each["broker"] == "b")
    assert (newest["start"], newest["end"], newest["rows"]) == (kept.offsets[56], kept.offsets[60], 4)
    assert sum(each["rows"] for each in told if each["what"] == "dispatched") == 60 + 33
    lines = run("history", "--table", str(kept.path), "--limit", "3").splitlines()
    assert [line.split()[0] for line in lines[1:]] == [str(each["version"]) for each in told[:3]]
    assert "\x1b" not in "".join(lines)
    assert [entry.version for entry in log_entries(table_storage(kept.path), 7, 3)] == [7, 6, 5]


def test_optimize(spark: SparkSession, both: list[KeptTable]) -> None:
    """Every broker's files until nothing is due; or one's. A second time there is nothing to do."""
    kept = both[0]
    with pytest.raises(OptionError, match="--broker c"):
        optimize(kept.path, "c")
    done = optimize(kept.path, SECOND)
    assert (done.brokers, done.merges, done.files_before - done.files_after) == ((SECOND,), 1, 11)
    done = optimize(kept.path, None)
    assert done.brokers == ("b", SECOND)
    assert done.files_after == len(files_of(kept)) < done.files_before or not done.merges
    version = kept.open().delta.version
    assert not optimize(kept.path, None).merges
    assert kept.open().delta.version == version
    assert [each.found() for each in both] == [kept.expected(0, 60), both[1].expected(0, 33)]


@pytest.mark.slow
def test_optimize_refuses(spark: SparkSession, both: list[KeptTable], tmp_path: Path) -> None:
    """In one line, and nothing is created where no table is."""
    kept = both[0]
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    with pytest.raises(OutputError, match="enableRowTracking"):
        optimize(kept.path, None)
    with pytest.raises(OutputError, match="does not exist"):
        optimize(tmp_path / "none", None)
    assert not (tmp_path / "none").exists()


def put(path: Path, hours: float) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"PAR1")
    os.utime(path, (0, time.time() - hours * 3600))
    return path


def test_vacuum_removes_orphans(both: list[KeptTable]) -> None:
    """Those of reput, old ones, with their keys; a writer at work loses nothing, and others' files stay."""
    kept = both[0]
    names = [f"{kind}-{0:020d}-{9:020d}-{uuid.uuid4()}.zstd.parquet" for kind in ("part", "merged")]
    names.append(f"part-rest-{uuid.uuid4()}.zstd.parquet")
    old = [put(kept.path / name, 3) for name in (*names, f".{names[0]}.tmp")]
    old.append(put(kept.path / "_keys" / f"{names[0]}.bloom", 3))
    mine = put(kept.path / "_keys" / f"{Path(files_of(kept)[0]).name}.bloom", 3)
    others = put(kept.path / "part-00000-x.snappy.parquet", 3)
    for path in files_of(kept):
        os.utime(path, (0, time.time() - 7200))
    found = vacuum(kept.path, 1000, dry_run=True)
    assert (found.orphans, found.commits, found.data_files, found.size_bytes) == (5, 0, 0, 20)
    assert all(path.exists() for path in old)
    young = put(kept.path / names[0].replace("part", "merged"), 0.1)
    near = put(kept.path / names[0].replace("0", "1"), 0.9)
    assert vacuum(kept.path, 1000, dry_run=False).orphans == 5
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (young, near, mine, others))
    assert [each.found() for each in both] == [kept.expected(0, 60), both[1].expected(0, 33)]
    assert vacuum(kept.path, 1000, dry_run=False).orphans == 0


@pytest.mark.slow
def test_vacuum_cuts_the_log(both: list[KeptTable], monkeypatch: pytest.MonkeyPatch) -> None:
    """At a checkpoint; every kept version can be read, a tail continues, an owner's retention is respected."""
    monkeypatch.setattr(cleaning, "READ_FOR_S", 0)
    kept = both[0]
    table = kept.open()
    assert vacuum(kept.path, 5, dry_run=False).commits == 0
    assert table.delta.write_checkpoint() == table.delta.version
    first = table.delta.version
    other = both[1].open()
    both[1].fill(other, range(36, 58, 3))
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')")
    assert vacuum(kept.path, 5, dry_run=False).keeps_log
    kept.spark.sql(f"ALTER TABLE {kept.sql} UNSET TBLPROPERTIES ('delta.logRetentionDuration')")
    before = files(kept)
    planned = vacuum(kept.path, 5, dry_run=True)
    assert files(kept) == before
    done = vacuum(kept.path, 5, dry_run=False)
    assert done == planned
    assert done.data_files > 10
    assert (done.commits, done.data_files) == (first, len(before) - len(files(kept)))
    last = TableState(kept.path).version
    left = [entry.version for entry in log_entries(table_storage(kept.path), last, 999)]
    assert left == list(range(last, first - 1, -1))
    needed = set()
    for version in left:
        at_version = deltalake.DeltaTable(str(kept.path), version=version)
        needed |= {Path(uri).name for uri in at_version.file_uris()}
        kept.spark.read.option("versionAsOf", version).format("delta").load(str(kept.path)).collect()
    assert files(kept) == needed
    both[1].fill(other, [60])
    assert [each.found() for each in both] == [kept.expected(0, 60), both[1].expected(0, 60)]
    assert kept.open().end_offset == kept.offsets[60]
