"""Rows that are forgotten: gone from every version and file; the others stay, and a tail continues after it."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pyarrow.parquet as pq
import pytest
from faults.fault_files import Stopped
from pyspark.sql import SparkSession
from spark.test_upkeep_crashes import copy_of, counting
from support.command_line import invoke, run_reput
from support.kept_table import KeptTable
from support.proof_counts import Proof
from support.record_writer import Message

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.table import upkeep as upkeep_module
from reput.sinks.table.data_file import DataFile
from reput.sinks.table.forget import ForgetRequest, Forgetting, Forgotten
from reput.sinks.table.forgotten_rows import forgotten_rows
from reput.sinks.table.storage import TableStorage, table_storage
from reput.sinks.table.upkeep import TableUpkeep, merged_files
from reput.sinks.table.watch import RowLedger
from reput.source.errors import OutputError, RowsLostError
from reput.streaming.table.commands import message_table
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification
from reput.streaming.verify.verify import verify_table

pytestmark = [pytest.mark.spark, pytest.mark.long]

SECRET, KEY = "a-secret-topic", "a-secret-key"
# By number of the record: of the topic, and with the key.
OF_TOPIC, WITH_KEY = set(range(0, 24, 3)), {4, 5, 13}


def content() -> list[Message]:
    def one(number: int) -> Message:
        properties = {"KEYS": f"k{number} {KEY}" if number in WITH_KEY else f"k{number}"}
        topic = SECRET if number in OF_TOPIC else "z-other"
        return Message(topic, store_timestamp=1_700_000_000_000 + number, properties=properties)

    return [one(number) for number in range(24)]


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> KeptTable:
    """A merged file, whose parts older versions have, and three small ones after it."""
    kept = KeptTable(spark, tmp_path / "first", count=0)
    kept.write_log(content())
    table = kept.open()
    kept.fill(table, range(2, 17, 2))
    assert TableUpkeep(table.delta, "b", 50).step(60).merges == 1
    kept.fill(table, range(18, 23, 2))
    return kept


def forget(kept: KeptTable, **wanted: Any) -> Forgotten:
    table = message_table(kept.path).opened()
    return Forgetting(table, ForgetRequest(**wanted)).run()


def without(kept: KeptTable, gone: Iterable[int], end: int = 22) -> list[int]:
    return [kept.offsets[number] for number in range(end) if number not in set(gone)]


def texts_below(root: Path) -> str:
    """Everything below a table: Parquet files as their rows, other files as their bytes."""
    found = []
    for path in root.rglob("*"):
        if path.name.endswith(".parquet"):
            found.append(str(pq.read_table(path).to_pylist()))
        elif path.is_file():
            found.append(path.read_bytes().decode(errors="replace"))
    return "\n".join(found)


def ledger_of(kept: KeptTable) -> RowLedger:
    record = ProgressFile(DurableFiles(kept.out), "messages").load()
    assert record is not None
    ledger = RowLedger.from_state(record.state)
    assert ledger is not None
    return ledger


REQUESTS: list[tuple[dict[str, Any], set[int], str]] = [
    ({"topics": [SECRET]}, OF_TOPIC, SECRET),
    ({"keys": [KEY]}, WITH_KEY, KEY),
]


@pytest.mark.parametrize(
    ("wanted", "gone", "text"),
    [pytest.param(*REQUESTS[0], marks=pytest.mark.slow, id="topic"), pytest.param(*REQUESTS[1], id="key")],
)
def test_nothing_is_left(wanted: dict[str, Any], gone: set[int], text: str, kept: KeptTable) -> None:
    """In no file below the table; other rows are unchanged, in one commit without the texts; a tail continues."""
    running = kept.open()
    upkeep = TableUpkeep(running.delta, "b", 50)
    upkeep.step(60)
    before = {row.physical_offset: row for row in kept.spark.table(kept.sql).collect()}
    assert text in texts_below(kept.path)
    (kept.path / "_keys").mkdir(exist_ok=True)
    old = {path.name for path in kept.path.glob("*.parquet")}
    for name in old:
        (kept.path / "_keys" / f"{name}.bloom").write_bytes(b"x")
    done = forget(kept, **wanted)
    assert text not in texts_below(kept.path)
    assert done.left.is_clean
    assert (done.rows, done.version) == (len(gone & set(range(22))), running.delta.version)
    assert done.left.files == len(list(kept.path.glob("*.parquet")))
    assert done.files_removed == len(old) - len(old & {path.name for path in kept.path.glob("*.parquet")})
    assert {path.stem for path in (kept.path / "_keys").iterdir()} == old & {path.name for path in kept.path.iterdir()}
    assert kept.found() == without(kept, gone)
    assert {row.physical_offset: row for row in kept.spark.table(kept.sql).collect()} == {
        offset: row for offset, row in before.items() if offset in kept.found()
    }
    (last,) = kept.spark.sql(f"DESCRIBE HISTORY {kept.sql}").collect()
    assert (last.operation, last.operationMetrics["numDeletedRows"]) == ("DELETE", str(done.rows))
    assert json.loads(last.userMetadata)["by"] == next(iter(wanted)).removesuffix("s")
    log = [
        json.loads(line)
        for line in (running.path / "_delta_log" / f"{done.version:020d}.json").read_text().splitlines()
    ]
    assert all(action[kind]["dataChange"] for action in log for kind in ("add", "remove") if kind in action)
    assert forget(kept, **wanted).version is None
    # the run that was at work meanwhile, and the next one
    kept.fill(running, [24])
    assert kept.found() == without(kept, gone, 22) + kept.offsets[22:24]
    upkeep.step(60)
    assert not upkeep._refused
    assert ledger_of(kept).rows == len(kept.found())
    kept.open()
    assert kept.found() == without(kept, gone, 22) + kept.offsets[22:24]


def test_in_the_moment_of_a_merge(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """The files that were to be merged are gone: the running upkeep looks again, and merges what there is then."""
    running = kept.open()
    kept.fill(running, [24])
    upkeep = TableUpkeep(running.delta, "b", 50)

    def after_forgetting(storage: TableStorage, files: Sequence[DataFile]) -> list[DataFile]:
        forget(kept, keys=[KEY])
        return merged_files(storage, files)

    with mock.patch.multiple(upkeep_module, merged_files=after_forgetting, _MERGED_MIN=2):
        assert upkeep.step(60).merges == 0
    with mock.patch.object(upkeep_module, "_MERGED_MIN", 2):
        assert upkeep.step(60).merges >= 1
    assert not [each for each in caplog.records if "not tidied" in each.message]
    assert kept.found() == without(kept, WITH_KEY, 24)


def crash_before_the_record(kept: KeptTable) -> None:
    """As a tail that dies between a commit and the record of it."""
    progress = kept.out / "reput" / "progress" / "messages.json"
    record = progress.read_bytes()
    kept.fill(kept.open(), [24])
    progress.write_bytes(record)


def people_delete(kept: KeptTable) -> None:
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {kept.offsets[1]}")


def twice(kept: KeptTable) -> None:
    forget(kept, keys=[KEY])


def an_empty_commit(kept: KeptTable) -> None:
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('a' = 'b')")


AWAY: list[tuple[Callable[[KeptTable], None], set[int], int, str]] = [
    (an_empty_commit, set(), 22, "8 rows fewer"),
    (crash_before_the_record, set(), 24, "8 rows fewer"),
    (people_delete, {1}, 22, "9 rows of broker 'b' were removed on purpose"),
    (twice, WITH_KEY, 22, "removed on purpose"),
]


@pytest.mark.parametrize(
    ("event", "more", "end", "said"),
    [AWAY[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in AWAY[1:])],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_tail_that_was_away(
    event: Callable[[KeptTable], None],
    more: set[int],
    end: int,
    said: str,
    kept: KeptTable,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The commits that it has not seen are gone: the one that took the rows away tells what they would have told."""
    event(kept)
    forget(kept, topics=[SECRET])
    with caplog.at_level(logging.WARNING, "reput"):
        table = kept.open()
    assert said in caplog.text
    assert table.end_offset == kept.offsets[end]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "reput"):
        kept.fill(kept.open(), [24] if end < 24 else [])
    assert caplog.text == ""
    assert kept.found() == without(kept, OF_TOPIC | more, 24)
    assert ledger_of(kept).rows == len(kept.found())


@pytest.mark.slow
def test_rows_that_were_lost_before_are_still_missed(kept: KeptTable) -> None:
    """A RESTORE, then a request: that it took rows away is not covered by what was forgotten."""
    version = kept.open().delta.version
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF {version - 1}")
    forget(kept, topics=[SECRET])
    with pytest.raises(RowsLostError):
        kept.open()


@pytest.mark.slow
def test_another_broker_and_deletion_vectors(spark: SparkSession, kept: KeptTable) -> None:
    """Rows that a deletion vector took away are in the files, and go; those of another broker stay; columns, too."""
    other = KeptTable(spark, kept.root, count=0, broker="c")
    other.write_log(content())
    other.fill(other.open(), [12, 24])
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    kept.spark.sql(f"ALTER TABLE {kept.sql} ADD COLUMN note STRING")
    kept.spark.sql(f"UPDATE {kept.sql} SET note = 'seen' WHERE physical_offset = {kept.offsets[5]}")
    kept.spark.sql(f"OPTIMIZE {kept.sql}")
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset IN ({kept.offsets[3]}, {kept.offsets[7]})")
    done = forget(kept, topics=[SECRET], broker="b")
    assert done.rows == len(OF_TOPIC & set(range(22))) - 1
    assert done.left.is_clean
    assert kept.found() == without(kept, OF_TOPIC | {7})
    assert set(other.found()) == set(other.expected(0, 24)) - {other.offsets[3], other.offsets[7]}
    assert kept.spark.table(kept.sql).where("note = 'seen'").count() == 2
    dead = [
        row for path in kept.path.glob("*.parquet") for row in pq.read_table(path).to_pylist() if row["broker"] == "b"
    ]
    assert not [row for row in dead if row["topic"] == SECRET]
    kept.fill(kept.open(), [24])
    other.open()


def test_what_cannot_be_proven_is_told(kept: KeptTable) -> None:
    """A file whose writer did not commit it stays, and is named; checkpoints of another kind are refused."""
    strange = kept.path / "strange.parquet"
    shutil.copy(next(kept.path.glob("merged-*")), strange)
    young = kept.path / f"part-rest-{'0' * 8}-0000-0000-0000-{'0' * 12}.zstd.parquet"
    shutil.copy(strange, young)
    done = forget(kept, keys=[KEY])
    assert done.left.rows == {strange.name: 3, young.name: 3}
    assert not done.left.is_clean
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')")
    with pytest.raises(OutputError, match="checkpointPolicy"):
        forget(kept, keys=[KEY])


def verified(kept: KeptTable) -> StoreSection:
    forgotten = forgotten_rows(table_storage(kept.path), kept.broker)
    verification = StoreVerification(kept.config(), kept.out, sums=True, forgotten=forgotten)
    verification.run(SerialTasks())
    return verify_table(kept.path, kept.broker, verification, SerialTasks(), lambda: kept.spark)


def test_verify_and_rebuild(kept: KeptTable) -> None:
    """The log still has the messages: verify says when they were forgotten; only one option brings them back."""
    day = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    forget(kept, keys=[KEY])
    kept.open()
    left = [offset for number, offset in enumerate(kept.expected(0, 24)) if number not in WITH_KEY]
    section = verified(kept)
    assert (section.findings.differences, section.advice) == (0, "")
    assert section.findings.remarks == [f"3 rows were forgotten on {day}"]
    ledger = b"".join(path.read_bytes() for path in (kept.path / "_forgotten").iterdir())
    assert KEY.encode() not in ledger
    kept.spark.sql(f"OPTIMIZE {kept.sql}")
    version = deltalake.DeltaTable(str(kept.path)).version()
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {left[3]}")
    kept.repair()  # of that stretch
    assert kept.found() == left
    kept.repair(start=0, end=kept.offsets[24])
    assert kept.found() == left
    assert verified(kept).findings.differences == 0
    kept.spark.sql(f"RESTORE TABLE {kept.sql} TO VERSION AS OF {version}")
    assert verified(kept).findings.remarks == [f"3 rows were forgotten on {day}"]
    kept.repair(restore_forgotten=True)
    assert kept.found() == kept.expected(0, 24)
    section = verified(kept)
    assert (section.findings.differences, section.findings.remarks) == (0, [])
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {left[3]}")
    assert verified(kept).findings.counts == {"row_missing": 1}


@pytest.mark.slow
def test_the_command(kept: KeptTable) -> None:
    """Without --yes nothing is changed, and Spark is not asked."""
    before = {path: path.stat().st_mtime_ns for path in kept.path.rglob("*")}
    words = ["table", "forget", "--table", str(kept.path), "--key", KEY]
    result = run_reput(words)
    assert "3 rows in 1 file of the present version" in result.stdout
    assert "no older version of the table can be read" in result.stdout
    told = json.loads(invoke([*words, "--json"]).stdout)
    assert (told["rows"], told["files"], told["older_files"]) == (3, 1, 2)
    assert {path: path.stat().st_mtime_ns for path in kept.path.rglob("*")} == before
    assert invoke(words[:-2]).exit_code == 2


@pytest.mark.parametrize("share", [50, pytest.param(1, marks=pytest.mark.slow)])
def test_it_dies_anywhere(share: int, kept: KeptTable, proof: Proof) -> None:
    """The rows are all gone or all kept, and the others stay; the same command finishes, and a tail continues."""
    whole = kept.found()
    with counting(-1, Stopped, for_ever=False) as counter:
        forget(copy_of(kept, "counted"), topics=[SECRET])
    for number in range(1, counter.calls + 1, share):
        other = copy_of(kept, f"died{number}")
        with counting(number, Stopped, for_ever=True), suppress(Stopped):
            forget(other, topics=[SECRET])
            pytest.fail("it went on")
        assert other.found() in (whole, without(other, OF_TOPIC))
        forget(other, topics=[SECRET])
        left = [path for path in other.path.glob("part-rest-*") if path.stat().st_size]
        assert left
        assert SECRET not in texts_below(other.path)
        assert other.found() == without(other, OF_TOPIC)
        other.fill(other.open(), [24])
        assert other.found() == without(other, OF_TOPIC, 24)
        shutil.rmtree(other.root)
        proof("G1 deaths inside `reput table forget`")
