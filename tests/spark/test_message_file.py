"""The table's Parquet files as Spark's readers see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from unit.sinks.table.test_message_file import LOGS, written

from reput.sinks.table import message_file

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled")]


@pytest.mark.parametrize("vectorized", [True, False])
def test_spark_reads_what_was_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectorized: bool
) -> None:
    """The encodings are ones that both of Spark's readers know, over several row groups and windows."""
    monkeypatch.setattr(message_file, "WINDOW_BYTES", 2000)
    monkeypatch.setattr(message_file, "_ROWS_A_GROUP", 60)
    row, expected = written(tmp_path / "log", tmp_path / "table", LOGS["all shapes"])
    key = "spark.sql.parquet.enableVectorizedReader"
    before = spark.conf.get(key)
    spark.conf.set(key, str(vectorized).lower())
    try:
        frame = spark.read.parquet(str(tmp_path / "table" / row["path"]))
        assert vectorized == ("Batched: true" in frame._jdf.queryExecution().toString())
        found = frame.toArrow()
    finally:
        spark.conf.set(key, before)
    # Spark's times have Spark's time zone; the instants are equal.
    assert expected.cast(found.schema).to_pylist() == found.to_pylist()
