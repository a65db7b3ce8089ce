"""One broker's rows of a message table, in the form in which they are compared with the log."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from reput.sinks.table.location import TableLocation
from reput.sinks.table.record_digest import COMPARED, StretchSums, table_fields
from reput.sinks.table.row_retention import ExpiryLimits


def compared_rows(spark: SparkSession, path: TableLocation, broker: str, limits: ExpiryLimits) -> DataFrame:
    """The broker's rows that have not expired, with the columns of ``record_digest.COMPARED`` as int64."""
    table = spark.read.format("delta").load(str(path)).where(sf.col("broker") == broker)
    table = table.where(f"not {limits.condition()}")
    time = sf.unix_millis("store_time").alias("store_time")
    return table.select(*(time if name == "store_time" else sf.col(name).cast("bigint") for name in COMPARED))


def row_sums(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum rows up; yields rows of ``record_digest.SUM_DDL``."""
    sums = StretchSums()
    for batch in batches:
        sums.take(table_fields(batch))
    yield sums.to_batch()
