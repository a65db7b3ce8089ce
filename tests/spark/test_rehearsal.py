"""The work before the first micro-batch succeeds, and leaves nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.source.log.range_reader import DecodeOptions
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.process.environment import run_directory
from reput.streaming.tail import opening

pytestmark = pytest.mark.spark
read_ranges = opening.read_ranges


@pytest.mark.parametrize("needs", [LogicNeeds(), None], ids=["queues and index", "table alone"])
@pytest.mark.parametrize("with_table", [False, True])
def test_every_core_reads_a_record(
    needs: LogicNeeds | None, with_table: bool, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks read a log as those of a micro-batch do; an error would otherwise not appear."""
    read: list[RangeEffects] = []

    def reading(*given: Any) -> list[RangeEffects]:
        read.extend(read_ranges(*given))
        return read

    monkeypatch.setattr(opening, "read_ranges", reading)
    task = RangeTask(DecodeOptions(check_crc=True), needs)
    opening.rehearse(spark, task, "a broker", with_table=with_table, is_far_behind=with_table)
    assert len(read) == 2 * spark.sparkContext.defaultParallelism
    assert all(each.pieces for each in read) == (needs is not None)
    assert all(each.table_files and each.table_files[0]["messages"] == 1 for each in read) == with_table
    assert not list(run_directory().glob("rehearsal-*"))
