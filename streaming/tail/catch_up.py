"""Bringing sinks that are behind Spark's checkpoint up to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from reput.source.errors import CommitLogRewoundError
from reput.source.log.log_reader import LogReader
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.spark_checkpoint import spark_offset
from reput.streaming.output.startup import aligned
from reput.streaming.tail.batch_sizes import BatchSizes
from reput.streaming.tail.micro_batch import Dispatch
from reput.streaming.tail.ranges import ranges_between

_log = logging.getLogger("reput")


def catch_up(
    spark: SparkSession,
    config: PipelineConfig,
    dispatch: Dispatch,
    checkpoint: Path,
    log: LogReader,
    is_stopped: Callable[[], bool],
) -> None:
    """Bring a query's sinks up to Spark's checkpoint, reading the log in batches of the query's size.

    It ends earlier, between two batches, when `is_stopped`.
    """
    target, sizes = spark_offset(checkpoint), BatchSizes.of(config, dispatch.names)
    while target is not None and dispatch.end_offset < target and not is_stopped():
        start = aligned(log, dispatch.end_offset)
        end = log.limit(start, target, sizes.bytes_a_batch, sizes.messages_a_batch)
        _log.info("%s: bringing the sinks from %d to %d, where Spark's checkpoint is", dispatch.names[0], start, end)
        options = config.source_options(
            startingOffset=start,
            endingOffset=end,
            maxBytesPerPartition=sizes.bytes_a_range,
        )
        before = dispatch.end_offset
        dispatch(ranges_between(spark, options), -1)
        dispatch.settle()
        if dispatch.end_offset <= before:
            raise CommitLogRewoundError(
                f"Spark's checkpoint {checkpoint} is at offset {target}, and the log has nothing behind {before}: it "
                "was cut, or the checkpoint is another log's",
                advice="'reput recover' brings queues and index back to the log and forgets their checkpoint; 'reput "
                "rebuild --only table' does so for the table",
                file=checkpoint,
                physical_offset=before,
            )
