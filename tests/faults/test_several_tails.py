"""Processes of `reput tail` for several brokers on one table, at the same moment: each message once, none ends.

In full: ``REPUT_PROOF_MINUTES=30 pytest -m slow tests/faults/test_several_tails.py``.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import deltalake
import pytest
from faults import hasty_tail
from faults.tail_process import LogWriter, TailProcess
from pyspark.sql import SparkSession
from support.logs import put_bytes
from support.proof_counts import Proof
from support.record_writer import Message, write_log

from reput.streaming.config.pipeline import load_config
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification
from reput.streaming.verify.verify import verify_table

pytestmark = pytest.mark.spark

MINUTES = float(os.environ.get("REPUT_PROOF_MINUTES", "4"))
SEED = int(os.environ.get("REPUT_PROOF_SEED", "4"))
START_SECONDS = 300.0
HASTY = (sys.executable, hasty_tail.__file__)
CASES = "messages of several brokers in one table"


def option(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--option", setting)]


@contextmanager
def tails(*started: TailProcess) -> Iterator[None]:
    """End them whatever happens."""
    try:
        yield
    finally:
        for each in started:
            each.end()


def rows_of(table: Path) -> dict[str, list[int]]:
    """The physical offsets of each broker's rows, as deltalake reads them."""
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["broker", "physical_offset"])
    found: dict[str, list[int]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["broker"], []).append(row["physical_offset"])
    return {broker: sorted(offsets) for broker, offsets in found.items()}


def verified(spark: SparkSession, root: Path, table: Path, *options: str) -> int:
    """Have `reput verify --table` compare a broker's rows with its log; their number, or what differs."""
    config = load_config(root / "store", overrides=("tailGuardMs=0", f"broker={root.name}", *options))
    verification = StoreVerification(config, root / "out", sums=True)
    verification.run(SerialTasks())
    section = verify_table(table, root.name, verification, SerialTasks(), lambda: spark)
    assert section.findings.differences == 0, section.findings.as_dict()
    return int(section.compared["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_tables_that_nobody_had_made(count: int, spark: SparkSession, tmp_path: Path, proof: Proof) -> None:
    """All find nothing at the table's path nor at the quarantine's, and commit dozens of batches side by side."""
    roots, table = [tmp_path / f"b{number}" for number in range(count)], tmp_path / "table"
    expected, started = {}, []
    for number, root in enumerate(roots):
        content = [Message("AB"[n % 2], body=b"x" * (n % 50), properties={"KEYS": f"k{n}"}) for n in range(400)]
        records = write_log(root / "store" / "commitlog", content)
        damaged = records[20 + number]
        put_bytes(
            root / "store" / "commitlog" / f"{damaged.physical_offset // 2000 * 2000:020d}",
            damaged.physical_offset % 2000 + 4,
            b"\x55",
        )
        expected[root.name] = [record.physical_offset for record in records if record != damaged]
        size = (records[-1].physical_offset // 10,) * 2
        batches = ("maxBytesPerTrigger={}", "tableMaxBytesPerTrigger={}")
        settings = (*(text.format(each) for text, each in zip(batches, size, strict=True)), "onDamage=quarantine")
        words = option(f"broker={root.name}", *settings)
        started.append(TailProcess(root, "--available-now", *words, table=table))
    with tails(*started):
        for each in started:
            assert each.process.wait(300) == 0, each.last_words()
    assert rows_of(table) == expected
    quarantined = rows_of(table.with_name("table-quarantine"))
    assert {broker: len(offsets) for broker, offsets in quarantined.items()} == {root.name: 1 for root in roots}
    for root in roots:
        assert verified(spark, root, table, "onDamage=quarantine") == len(expected[root.name])
    assert [row.operation for row in spark.sql(f"DESCRIBE HISTORY delta.`{table}`").where("version = 0").collect()] == [
        "CREATE TABLE"
    ]
    proof(CASES, sum(map(len, expected.values())))


@pytest.mark.slow
def test_live_logs_beside_each_other(spark: SparkSession, tmp_path: Path, proof: Proof) -> None:
    """Three tails at twice a second, merges and clean-ups among them; kills, starts, and a table that is changed."""
    rng = random.Random(SEED)
    roots, table = [tmp_path / f"b{number}" for number in range(3)], tmp_path / "table"
    settings = ("tableVersionsKept=20", "sparkMaster=local[1]")  # three share the machine

    def start(root: Path) -> TailProcess:
        return TailProcess(root, *option(f"broker={root.name}", *settings), table=table, program=HASTY)

    with ExitStack() as stack:
        writers = [LogWriter(root / "store" / "commitlog", 40.0) for root in roots]
        for writer in writers:
            stack.callback(writer.end)
        running = [start(root) for root in roots]
        stack.callback(lambda: [each.end() for each in running])
        for each in running:
            each.wait_beyond(0, START_SECONDS)
        name, deadline = f"delta.`{table}`", time.monotonic() + 60 * MINUTES
        for number in range(1_000_000):
            killed = rng.randrange(len(roots))
            running[killed].kill(all_at_once=rng.random() < 0.5)
            running[killed].end()
            running[killed] = start(roots[killed])
            if number == 0:  # while it starts, the others and an operator continue
                spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.checkpointInterval' = '10')")
            if number == 1:
                spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
            for each in running:
                each.wait_beyond(each.end_offset(), START_SECONDS)
            time.sleep(rng.uniform(2, 10))
            if time.monotonic() > deadline and number > 1:
                break
        assert [each.process.poll() for each in running] == [None] * 3
        versions = [int(path.stem) for path in (table / "_delta_log").glob("*.json")]
        for each in running:
            each.process.send_signal(signal.SIGTERM)
            assert each.process.wait(60) == 0, each.last_words()
        written = [writer.end() for writer in writers]
        stack.pop_all()
    last = [TailProcess(root, "--available-now", *option(f"broker={root.name}"), table=table) for root in roots]
    with tails(*last):
        for each in last:
            assert each.process.wait(300) == 0, each.last_words()
    history = [json.loads(commit.read_text().splitlines()[0]) for commit in (table / "_delta_log").glob("*.json")]
    assert any(each["commitInfo"]["operation"] == "OPTIMIZE" for each in history)
    assert min(versions) > 0
    found = rows_by_spark(spark, table)
    for root, messages in zip(roots, written, strict=True):
        assert len(found[root.name]) == len(set(found[root.name])) == messages
        assert verified(spark, root, table) == messages
    proof(CASES, sum(written))


def rows_by_spark(spark: SparkSession, table: Path) -> dict[str, list[int]]:
    """The same as Spark reads it, which knows deletion vectors."""
    rows = spark.read.format("delta").load(str(table)).select("broker", "physical_offset").collect()
    found: dict[str, list[int]] = {}
    for broker, offset in rows:
        found.setdefault(broker, []).append(offset)
    return found


@pytest.mark.slow
def test_two_tails_with_one_name(tmp_path: Path) -> None:
    """A broker's master and slave, say: one of them ends with one clear line, and no row appears twice."""
    table = tmp_path / "table"
    content = [Message("AB"[n % 2], body=b"x" * (n % 50), store_timestamp=1_700_000_000_000 + n) for n in range(400)]
    roots = [tmp_path / "master", tmp_path / "slave"]
    started = []
    for root in roots:
        records = write_log(root / "store" / "commitlog", content)
        size = records[-1].physical_offset // 20
        words = option("broker=b", f"maxBytesPerTrigger={size}", f"tableMaxBytesPerTrigger={size}")
        started.append(TailProcess(root, "--available-now", *words, table=table))
    with tails(*started):
        codes = sorted(each.process.wait(300) for each in started)
    assert rows_of(table) == {"b": [record.physical_offset for record in records]}
    assert codes in ([0, 1], [0, 0]), [each.last_words() for each in started]  # the second may begin after the first
    said = [line for each in started for line in each.last_words().splitlines() if "another reput" in line]
    assert len(said) == sum(codes)
    assert all("another reput has committed rows of broker 'b'" in line for line in said)
