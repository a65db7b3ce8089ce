"""Rows that have expired by tableRetention: they go, all others stay, and no check takes that for a loss."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from faults.fault_files import Stopped
from pyspark.sql import Row, SparkSession
from spark.test_upkeep_crashes import copy_of, counting
from support.command_line import invoke
from support.kept_table import KeptTable
from support.other_writer import in_the_moment_of_a_commit
from support.proof_counts import Proof
from support.record_writer import Message

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.table import upkeep as expiry
from reput.sinks.table.message_table import MessageTable
from reput.sinks.table.retention import DAY_MS, RowRetention
from reput.sinks.table.upkeep import TableUpkeep
from reput.sinks.table.watch import RowLedger
from reput.streaming.tail import tail as tail_module
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification
from reput.streaming.verify.verify import verify_table

pytestmark = pytest.mark.spark

LONG = 60.0
# A record's day before today by its number: of forty, the first of each topic are the oldest.
AGES = [40 - number for number in range(40)]
RETENTION = "A=20d, B=forever, *=30d"


def topic_of(number: int) -> str:
    return "ABC"[number % 3]


def content() -> list[Message]:
    today = int(time.time() * 1000) // DAY_MS * DAY_MS
    return [
        Message(topic_of(n), store_timestamp=today - age * DAY_MS + n, properties={"KEYS": f"k{n}"})
        for n, age in enumerate(AGES)
    ]


def kept_numbers(days_ago: int = 0) -> list[int]:
    """By the rules in words: 20 days of A, all of B, 30 days of C."""
    days = {"A": 20, "B": 10**6, "C": 30}
    return [number for number, age in enumerate(AGES) if age - days_ago <= days[topic_of(number)]]


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path) -> KeptTable:
    kept = KeptTable(spark, tmp_path / "first", count=0)
    kept.write_log(content())
    return kept


def expiring(table: MessageTable, text: str = RETENTION) -> TableUpkeep:
    return TableUpkeep(table.delta, "b", 50, RowRetention.parse(text))


def verified(kept: KeptTable, *options: str) -> StoreSection:
    config = kept.config("consumeQueueEnable=false", "messageIndexEnable=false", *options)
    verification = StoreVerification(config, kept.out, sums=True)
    verification.run(SerialTasks())
    return verify_table(kept.path, "b", verification, SerialTasks(), lambda: kept.spark)


def differences(kept: KeptTable, *options: str) -> int:
    return verified(kept, *options).findings.differences


def ledger(kept: KeptTable) -> RowLedger:
    record = ProgressFile(DurableFiles(kept.out), MessageTable.name).load()
    assert record is not None
    found = RowLedger.from_state(record.state)
    assert found is not None
    return found


def test_expired_rows_go_and_nobody_misses_them(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """In the same run, at the next start, for verify and for rebuild; the history says what was done."""
    table = kept.open()
    kept.fill(table, range(4, 33, 4))
    upkeep = expiring(table)
    wanted = [kept.offsets[number] for number in kept_numbers() if number < 32]
    done = upkeep.step(LONG)
    assert (done.expired.rows, kept.found()) == (32 - len(wanted), wanted)
    assert upkeep.step(LONG).expired.rows == 0
    with caplog.at_level(logging.WARNING):
        kept.fill(table, [36])
        again = kept.open()
        kept.fill(again, [40])
    assert caplog.text == ""
    everything = [kept.offsets[number] for number in kept_numbers()]
    assert kept.found() == everything
    known = ledger(kept)
    assert known.rows == len(everything)
    assert known.gaps([sum(row < offset for row in everything) for offset in known.offsets]) == []
    option = f"tableRetention={RETENTION}"
    assert differences(kept, option) == 0
    without = verified(kept)
    assert without.findings.differences == 40 - len(everything)
    assert without.advice is not None
    assert f"expired by {option}: with that option they are not missed" in without.advice
    kept.repair(option)
    assert kept.found() == everything
    last = next(row for row in kept.spark.sql(f"DESCRIBE HISTORY {kept.sql}").collect() if row.operation == "DELETE")
    assert last.operationMetrics["numDeletedRows"] == str(done.expired.rows)
    told = json.loads(last.userMetadata)
    assert (told["what"], told["broker"], told["retention"]) == ("expired", "b", RETENTION)


def test_rows_do_not_expire_under_a_merge(kept: KeptTable) -> None:
    """While files are written again, no rows are removed from them; after that they go."""
    long_ago = int(time.time() * 1000) // DAY_MS * DAY_MS - 25 * DAY_MS
    kept.write_log([Message("AB"[n % 2], store_timestamp=long_ago + n) for n in range(20)])
    table = kept.open()
    kept.fill(table, range(1, 21))
    upkeep, may_write = expiring(table), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(may_write.wait, LONG / 3)
        done = [upkeep.step(LONG, beside=pool) for _ in range(2)]
        assert [(each.merges, each.expired.rows) for each in done] == [(0, 0)] * 2
        may_write.set()
        pool.submit(int).result(LONG)  # behind the merge
        last = upkeep.step(LONG, beside=pool)
    assert (last.merges, last.expired.rows) == (1, 10)
    assert kept.found() == kept.offsets[1:20:2]


@pytest.mark.slow
def test_a_change_of_the_rule_is_followed(kept: KeptTable) -> None:
    """Rows of a longer rule come back by a rebuild while the log has them; a shorter rule removes more."""
    table = kept.open()
    kept.fill(table, [40])
    expiring(table, "*=10d").step(LONG)
    assert len(kept.found()) == 10
    kept.repair("tableRetention=*=30d")
    assert set(kept.found()) >= set(kept.expected(10, 40))
    table = kept.open()
    expiring(table, "*=5d").step(LONG)
    assert kept.found() == kept.expected(35, 40)


def test_a_row_missing_among_expired_ones_is_found(kept: KeptTable) -> None:
    """A file of which all rows but one have expired is compared all the same."""
    table = kept.open()
    kept.fill(table, [40])
    expiring(table).step(LONG)
    young = kept.offsets[37]
    kept.spark.sql(f"DELETE FROM {kept.sql} WHERE physical_offset = {young}")
    assert differences(kept, f"tableRetention={RETENTION}") == 1
    kept.repair(f"tableRetention={RETENTION}")
    assert young in kept.found()


def test_rows_of_others_and_removed_ones_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Two brokers' rows in one file, and rows that a deletion vector takes away."""
    both = [KeptTable(spark, tmp_path / "both", count=0, broker=broker) for broker in ("b", "c")]
    tables = []
    for kept in both:
        kept.write_log(content())
        tables.append(kept.open())
        kept.fill(tables[-1], [20, 40])
    mine, other = both
    deltalake.DeltaTable(str(mine.path)).optimize.compact()
    spark.sql(f"ALTER TABLE {mine.sql} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    gone = [mine.offsets[1], mine.offsets[39]]
    spark.sql(f"DELETE FROM {mine.sql} WHERE broker = 'b' AND physical_offset IN ({gone[0]}, {gone[1]})")
    table = mine.open()
    upkeep = expiring(table)
    assert upkeep.step(LONG).expired.rows == 40 - len(kept_numbers())
    wanted = [mine.offsets[number] for number in kept_numbers() if mine.offsets[number] not in gone]
    assert (mine.found(), other.found()) == (wanted, other.expected(0, 40))
    for each in both:
        each.open()


@pytest.mark.slow
def test_files_without_statistics(kept: KeptTable, caplog: pytest.LogCaptureFixture) -> None:
    """Rows of a file with unknown bounds also expire; they are counted then."""
    table = kept.open()
    kept.fill(table, [20, 40])
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'tags')")
    kept.spark.sql(f"OPTIMIZE {kept.sql}")
    table = kept.open()
    expiring(table).step(LONG)
    wanted = [kept.offsets[number] for number in kept_numbers()]
    assert kept.found() == wanted
    with caplog.at_level(logging.WARNING):
        kept.open()
    assert f"{40 - len(wanted)} rows fewer" in caplog.text
    assert ledger(kept).rows == len(wanted)


@pytest.mark.parametrize("other", [pytest.param("OPTIMIZE", marks=pytest.mark.slow), "DELETE"])
def test_another_writer_in_the_moment_of_it(other: str, kept: KeptTable) -> None:
    """The other's commit stays, and the rows go at this step or the next one."""
    table = kept.open()
    kept.fill(table, [10, 20, 30, 40])
    young = kept.offsets[39]
    statements = {
        "OPTIMIZE": f"OPTIMIZE {kept.sql}",
        "DELETE": f"DELETE FROM {kept.sql} WHERE physical_offset = {young}",
    }
    upkeep = expiring(table)
    with in_the_moment_of_a_commit(lambda: kept.spark.sql(statements[other])):
        upkeep.step(LONG)
    upkeep.step(LONG)
    wanted = [kept.offsets[number] for number in kept_numbers()]
    assert kept.found() == [each for each in wanted if other == "OPTIMIZE" or each != young]
    kept.open()


@pytest.mark.parametrize("share", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_it_dies_anywhere(share: int, kept: KeptTable, proof: Proof, caplog: pytest.LogCaptureFixture) -> None:
    """The rows are all gone or all kept, the others stay; the next start misses nothing, and upkeep does the rest."""
    table = kept.open()
    kept.fill(table, [20, 40])
    counted = copy_of(kept, "counted")
    with counting(-1, Stopped, for_ever=False) as counter:
        assert expiring(counted.open()).step(LONG).expired.rows
    wanted = [kept.offsets[number] for number in kept_numbers()]
    for number in range(1, counter.calls + 1, share):
        other = copy_of(kept, f"died{number}")
        upkeep = expiring(other.open())
        with counting(number, Stopped, for_ever=True) as dying, suppress(Stopped):
            upkeep.step(LONG)
            assert dying.calls < number, "it went on"
        caplog.clear()
        again = other.open()
        assert caplog.text == ""
        assert other.found() in (kept.expected(0, 40), wanted)
        expiring(again).step(LONG)
        assert other.found() == wanted
        assert differences(other, f"tableRetention={RETENTION}") == 0
        proof("G1 deaths inside the expiry of rows")


def test_rows_of_a_silent_broker_expire(kept: KeptTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running tail to which nothing comes: two days pass, and their rows go."""
    clock = [time.time() - 2 * DAY_MS / 1000]
    monkeypatch.setattr(expiry, "time", SimpleNamespace(time=lambda: clock[0], monotonic=time.monotonic))
    monkeypatch.setattr(tail_module, "_TIDIED_AFTER_S", 0.1)
    before, wanted = ([kept.offsets[number] for number in kept_numbers(ago)] for ago in (2, 0))
    assert len(before) > len(wanted)
    with kept.followed(f"tableRetention={RETENTION}", "tableTriggerMs=100") as wait_until:
        wait_until(lambda: is_delta(kept) and found_now(kept) == before)
        clock[0] = time.time()
        wait_until(lambda: found_now(kept) == wanted)
    assert ledger(kept).rows == 40  # nothing has been committed after it
    table = kept.open()
    assert ledger(kept).rows == len(wanted)
    assert table.end_offset == kept.offsets[40]


def is_delta(kept: KeptTable) -> bool:
    return any((kept.path / "_delta_log").glob("*.json"))


def found_now(kept: KeptTable) -> list[int]:
    rows = deltalake.DeltaTable(str(kept.path)).to_pyarrow_table(columns=["physical_offset"])
    return sorted(rows["physical_offset"].to_pylist())


TOPICS = ["a", "a%b", "axb", "a_b", "a!b", "%RETRY%g", "a'b", "a\\b", "a\\\\b", "", "订单", "A", "a\nb", None]
PATTERNS = ["a", "a%*", "a_b", "a!b", "%RETRY%*", "*'b", "a\\b", "*\\\\*", "订*", "*a*", "*"]


def test_spark_and_reput_agree_on_what_has_expired(spark: SparkSession) -> None:
    """Whatever a topic or a pattern looks like: the condition in SQL, and the mask."""
    limits = RowRetention.parse("a=2d").limits(20 * DAY_MS / 1000)
    times = [5 * DAY_MS, 18 * DAY_MS - 1, 18 * DAY_MS]
    rows = [(topic, time_ms) for topic in TOPICS for time_ms in times]
    frame = spark.createDataFrame([Row(topic=topic, ms=ms) for topic, ms in rows], "topic string, ms bigint")
    frame = frame.selectExpr("topic", "ms", "timestamp_millis(ms) AS store_time")
    names = pa.array([topic for topic, _ in rows]).dictionary_encode()
    codes = names.indices.fill_null(-1).to_numpy()
    stored = np.array([ms for _, ms in rows])
    expired = 0
    for rules in [*(f"{pattern}=2d" for pattern in PATTERNS), "a*=forever, *b=10d, *=2d"]:
        limits = RowRetention.parse(rules).limits(20 * DAY_MS / 1000)
        found = [row.expired for row in frame.selectExpr(f"{limits.condition()} AS expired").collect()]
        assert found == limits.mask(codes, names.dictionary.to_pylist(), stored).tolist(), rules
        expired += sum(found)
    assert expired > len(PATTERNS)


def reput(*arguments: str) -> tuple[int, str]:
    result = invoke(["table", "expire", *arguments])
    return result.exit_code, result.output


def test_the_plan_and_the_command(kept: KeptTable) -> None:
    """The command does what --dry-run prints; it names the rule, and asks for one if it has none."""
    table = kept.open()
    kept.fill(table, [20, 40])
    at = ("--table", str(kept.path))
    code, said = reput(*at)
    assert (code, "no row ever expires" in said) == (2, True)
    code, said = reput(*at, "--option", f"tableRetention={RETENTION}", "--broker", "other")
    assert (code, "has no rows of that broker" in said) == (2, True)
    code, said = reput(*at, "--option", f"tableRetention={RETENTION}", "--dry-run")
    rows = 40 - len(kept_numbers())
    assert (code, said.splitlines()) == (
        0,
        [f"broker b: would remove {rows} rows from 1 file", f"tableRetention: {RETENTION}"],
    )
    assert kept.found() == kept.expected(0, 40)
    code, said = reput(*at, "--option", f"tableRetention={RETENTION}", "--json")
    assert code == 0
    assert json.loads(said.splitlines()[-1]) == {
        "retention": RETENTION,
        "brokers": {"b": {"rows": rows, "files": 1}},
        "consumption": {},
    }
    assert kept.found() == [kept.offsets[number] for number in kept_numbers()]
    kept.open()
