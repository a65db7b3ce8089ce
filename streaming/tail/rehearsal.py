"""Work that the first micro-batch would otherwise wait for, done while Spark starts its query.

The first job of a session takes half a second longer than later ones: Spark loads and compiles what such jobs need,
and every core starts its workers. A first micro-batch that needs no job waits for none of that, and a start has no
processor to spare: then only what plans it is started.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.storage import table_storage
from reput.source.system import take_memory
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.process.environment import run_directory
from reput.streaming.spark.warm_up import small_record, write_small_log
from reput.streaming.tail.batch_reading import read_ranges
from reput.streaming.tail.ranges import no_ranges, ranges_between

_SEGMENT_BYTES = 64 * 1024
# What a range of 256 MiB with small records takes, see `take_memory`.
_BLOCKS, _BLOCKS_WITH_TABLE = 1, 3


def rehearse_planning(spark: SparkSession) -> None:
    """Have Spark start the Python processes with which it plans a read; no job runs."""
    no_ranges(spark).rdd.getNumPartitions()


def rehearse(spark: SparkSession, task: RangeTask, broker: str, *, with_table: bool, is_far_behind: bool) -> None:
    """Read a log of one record per core with `task`, and `with_table` write files of a table from it.

    If the first batch `is_far_behind` the log's end, the workers also take the memory that full ranges need. All files
    are in this run's directory, which only the processes of this machine see, and are gone on return.
    """
    decode = replace(task.decode, check_crc=False)
    with _small_log(spark.sparkContext.defaultParallelism) as options:
        writer = None
        if with_table:
            table = Path(options["path"]).with_name("messages")
            writer = TableFileWriter(table_storage(table), broker, 0, decode)
        task = replace(task, decode=decode, file_writer=writer)
        prepare = partial(take_memory, _BLOCKS_WITH_TABLE if with_table else _BLOCKS) if is_far_behind else None
        ranges = ranges_between(spark, options)
        # A core has two workers, one that gives a task its range and one that reads it, and they take turns.
        for _ in range(2):
            read_ranges(ranges, task, prepare)


@contextmanager
def _small_log(records: int) -> Iterator[dict[str, Any]]:
    """A log in this run's directory for the length of a ``with`` block, as the source's options: a range a record."""
    with tempfile.TemporaryDirectory(dir=run_directory(), prefix="rehearsal-") as directory:
        commit_log = Path(directory, "commitlog")
        write_small_log(commit_log, _SEGMENT_BYTES, records)
        yield {
            "path": commit_log,
            "mappedFileSizeCommitLog": _SEGMENT_BYTES,
            "maxBytesPerPartition": len(small_record()),
            "tailGuardMs": 0,
        }
