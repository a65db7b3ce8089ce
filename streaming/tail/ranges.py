"""The ranges of a log as rows of Spark: those of a stream, those between two offsets, and none at all.

Spark's Python processes that plan a read import this module, so it loads no compiled code.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from reput.source.data_source import NAME, CommitLogDataSource

# The source is registered again for each DataFrame: otherwise they would share one Java map of the workers'
# environment, which two jobs that start at once corrupt for good (OptionalDataException when a task is read, Spark
# 4.2.0). The lock keeps other registrations out between a registration and its loading.
_registration = threading.Lock()


def stream_ranges(spark: SparkSession, options: dict[str, Any]) -> DataFrame:
    """Return the ranges of the log's next micro-batches; `options` are the source's."""
    with _registration:
        spark.dataSource.register(CommitLogDataSource)
        return spark.readStream.format(NAME).options(rows="ranges", **options).load()


def ranges_between(spark: SparkSession, options: dict[str, Any]) -> DataFrame:
    """Return the ranges of the log within `options` (`startingOffset`, `endingOffset`)."""
    with _registration:
        spark.dataSource.register(CommitLogDataSource)
        return spark.read.format(NAME).options(rows="ranges", **options).load()


def no_ranges(spark: SparkSession) -> DataFrame:
    """Return a read without a range and without a log: its plan takes the processes of any read, but no kernels."""
    spark.dataSource.register(_NoRanges)
    return spark.read.format(_NoRanges.name()).load()


class _NoRanges(DataSource):
    @classmethod
    def name(cls) -> str:
        return "reput-no-ranges"

    def schema(self) -> str:
        return "start bigint"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  Spark's signature
        return _NoRangesReader()


class _NoRangesReader(DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002
        return iter(())


def plan_without_code(ranges: DataFrame) -> None:
    """Have Spark make no Java code for the plans of this query's further micro-batches.

    Such a plan has two nodes and a row for each range, and if the driver reads the ranges, nothing runs the code. A
    query has a session of its own, so the questions of others to a table are not affected.
    """
    ranges.sparkSession.conf.set("spark.sql.codegen.wholeStage", "false")
