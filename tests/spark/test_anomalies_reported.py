"""A run over a disordered log reports it: in the line of the batch, and in the summary with the bytes at the end."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.anomaly_logs import SETTINGS, write_all_cases
from support.logs import end_of, put_bytes
from support.model import anomalies, index_file_contents
from support.sink_runner import expected_queue_files, index_contents, queue_files
from support.tail_runs import quiet_reporter

from reput.sinks.anomalies import AnomalyCounts
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.tail.tail import Tail

pytestmark = pytest.mark.spark


def test_anomalies_are_counted_through_the_pipeline(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over several micro-batches and ranges the counts are the model's; the damaged end is named beside them."""
    store, output = tmp_path / "store", tmp_path / "out"
    records = write_all_cases(store / "commitlog")
    end = end_of(records)
    last = max((store / "commitlog").iterdir())
    put_bytes(last, end - int(last.name), b"\1" * 40)
    options = [
        f"mappedFileSizeConsumeQueue={SETTINGS.mapped_file_size_consume_queue}",
        f"maxHashSlotNum={SETTINGS.max_hash_slot_num}",
        f"maxIndexNum={SETTINGS.max_index_num}",
        "maxBytesPerTrigger=8000",
        "maxBytesPerPartition=1000",
        "tailGuardMs=20",
        "queueRestart=replay",  # the model is a broker's replay
    ]
    reporter = quiet_reporter()
    tail = Tail(load_config(store, overrides=options), OutputPaths(output), reporter)
    with caplog.at_level(logging.INFO, "reput"), tail:
        tail.run(spark, available_now=True)
    expected = AnomalyCounts(**anomalies(records, SETTINGS))
    (summary,) = reporter.summary()
    assert summary.endswith(
        f"end offset {end}, 0 bytes and 0.0 s behind, anomalies: {expected + AnomalyCounts(bad_magic=1)}"
    )
    lines = [line for line in caplog.messages if line.startswith("logic: [")]
    assert len(lines) > 2
    assert all(", anomalies: " in line for line in lines if " 0 messages" not in line)
    assert queue_files(output) == expected_queue_files(records, SETTINGS)
    assert index_contents(output) == index_file_contents(records, SETTINGS)
