"""`reput verify` on Spark: the same findings as in one process, and the message table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyspark.sql import SparkSession
from spark.test_tail import run_tail

from reput.streaming.config import load_config
from reput.streaming.verify import Part, StoreVerification
from reput.streaming.verify_table import verify_table
from reput.streaming.verify_tasks import LocalRunner, SparkRunner

pytestmark = pytest.mark.spark

NAME = "v4-tx-delay-retry"


@pytest.fixture(scope="module")
def made(
    spark: SparkSession, broker_store: Callable[[str], BrokerStore], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BrokerStore, Path]]:
    """A real broker's store, and what reput made of it: out/ and table/."""
    store, root = broker_store(NAME), tmp_path_factory.mktemp("verify")
    run_tail(spark, store.root, root / "out", table=root / "table", conf=store.broker_conf)
    yield store, root
    shutil.rmtree(root)


def verification_of(store: BrokerStore, output: Path) -> tuple[StoreVerification, SparkSession | None, object]:
    config = load_config(
        store.root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0", "maxBytesPerPartition=200k"]
    )
    return StoreVerification(config, output, sums=True), None, config


def seen(parts: list[Part]) -> list[object]:
    return [(part.name, part.compared, part.findings.as_dict()) for part in parts]


def test_as_in_one_process(spark: SparkSession, made: tuple[BrokerStore, Path], tmp_path: Path) -> None:
    """On a sound output and on one with a changed byte in a queue and in the index."""
    store, root = made
    shutil.copytree(root / "out", tmp_path / "out", ignore=shutil.ignore_patterns("spark-*"))
    for spoilt in (False, True):
        if spoilt:
            for path in (tmp_path / "out" / "consumequeue" / "TxTopic" / "2", tmp_path / "out" / "index"):
                file = min(path.iterdir())
                data = bytearray(file.read_bytes())
                data[7] ^= 1
                file.write_bytes(data)
        verification, _, config = verification_of(store, tmp_path / "out")
        local = verification.run(LocalRunner(verification.log))
        again, _, _ = verification_of(store, tmp_path / "out")
        assert seen(again.run(SparkRunner(spark, config))) == seen(local)  # type: ignore[arg-type]
        assert again.results == verification.results
        assert len(again.results) > 3
        assert sum(part.findings.differences for part in local) == (2 if spoilt else 0)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("", None),
        ("INSERT INTO t SELECT * FROM t WHERE physical_offset = {place}", "row_twice"),
        ("DELETE FROM t WHERE physical_offset = {place}", "row_missing"),
        ("UPDATE t SET body_crc = body_crc + 1 WHERE physical_offset = {place}", "row_changed"),
        (
            "UPDATE t SET store_time = store_time + INTERVAL 1 MILLISECOND WHERE physical_offset = {place}",
            "row_changed",
        ),
        ("UPDATE t SET physical_offset = physical_offset + 1 WHERE physical_offset = {place}", "row_without_record"),
    ],
)
def test_the_table(
    change: str, kind: str | None, spark: SparkSession, made: tuple[BrokerStore, Path], tmp_path: Path
) -> None:
    store, root = made
    shutil.copytree(root / "table", tmp_path / "table")
    verification, _, config = verification_of(store, root / "out")
    verification.run(LocalRunner(verification.log))
    rows = spark.read.format("delta").load(str(tmp_path / "table"))
    place = rows.orderBy("physical_offset").offset(1000).first()["physical_offset"]
    if change:
        rows.createOrReplaceTempView("t")
        spark.sql(change.format(place=place).replace(" t ", f" delta.`{tmp_path}/table` "))
    part = verify_table(spark, tmp_path / "table", config["broker"], verification)  # type: ignore[index]
    if kind is None:
        assert part.findings.as_dict() == {"counts": {}, "differences": [], "notes": {}}
        assert part.compared == {"rows": store.facts["totalMessages"]}
        return
    assert part.findings.counts[kind] == 1
    told = {difference.kind: difference for difference in part.findings.first}
    assert str(place) in told[kind].text or str(place + 1) in told[kind].text
