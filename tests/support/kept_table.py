"""A small log and a message table that is kept from it, a commit a range, without streaming; and the table's judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from support.delta_rows import offsets, operations
from support.rebuild_runner import LocalTasks
from support.record_writer import Message, StoredRecord, write_log
from support.sink_runner import record_bounds
from support.tail_runs import tail_beside

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.message_file import TABLE_FILE_SCHEMA
from reput.sinks.table.message_table import MessageTable, TableBatch
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.output.logic_sinks import recover_sinks
from reput.streaming.rebuild.pipeline import RebuildProgress
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild

# How a test waits for something that a running tail does.
WaitUntil = Callable[[Callable[[], bool]], None]


def messages(count: int, first: int = 0) -> list[Message]:
    return [
        Message("AB"[n % 2], body=b"x" * (n % 5), store_timestamp=1_700_000_000_000 + n, properties={"KEYS": f"k{n}"})
        for n in range(first, first + count)
    ]


class KeptTable:
    """Below `root`: store, out, table."""

    def __init__(self, spark: SparkSession | None, root: Path, count: int = 60, broker: str = "b") -> None:
        self._spark = spark
        self.root = root
        self.store, self.out, self.path = root / f"store-{broker}", root / f"out-{broker}", root / "table"
        self.broker = broker
        self.write_log(messages(count))

    def write_log(self, content: Iterable[Message]) -> None:
        for path in (self.store / "commitlog").glob("*"):
            path.unlink()
        self.records: list[StoredRecord] = write_log(self.store / "commitlog", content)
        self.offsets = [record.physical_offset for record in self.records]
        self.offsets += record_bounds(self.records)[-1:]

    @property
    def spark(self) -> SparkSession:
        """The session with which others change the table; not all tests need one."""
        assert self._spark is not None
        return self._spark

    @property
    def sql(self) -> str:
        return f"delta.`{self.path}`"

    def config(self, *options: str) -> PipelineConfig:
        overrides = ("tailGuardMs=0", f"broker={self.broker}", "tableMaxBytesPerPartition=700", *options)
        return load_config(self.store, overrides=overrides)

    def open(self, *options: str) -> MessageTable:
        """As `reput tail` does at its start."""
        config = self.config(*options)
        log = LogReader(SourceOptions.parse(config.source_options()))
        fails = config.source.fail_on_data_loss
        begin, files = log.queue().min_offset, DurableFiles(self.out)
        table = MessageTable(
            self.path,
            self.broker,
            files,
            log_begin=begin,
            accepts_loss=not fails,
            body_bytes_max=config.table.body_limit,
        )
        recover_sinks([table], log, fail_on_data_loss=fails)
        return table

    def fill(self, table: MessageTable, ends: Iterable[int]) -> None:
        """Commit the records before each of the numbers `ends`, a commit each."""
        for number in ends:
            start = table.end_offset
            self.commit(table, start, self.offsets[number])

    def commit(self, table: MessageTable, start: int, end: int) -> None:
        log = LogReader(SourceOptions.parse(self.config().source_options()))
        writer = table.file_writer(0, log.decode_options)
        rows = [writer.write(span).to_pylist()[0] for span in log.split(start, end)]
        table.commit(TableBatch.merge(pa.Table.from_pylist(rows, TABLE_FILE_SCHEMA)))

    @contextmanager
    def followed(self, *options: str) -> Iterator[WaitUntil]:
        """A tail of log and table runs in a thread until the block ends; yields what waits for something meanwhile.

        A tail that ends by itself, or with an error, fails.
        """
        with tail_beside(self.spark, self.config(*options), self.out, self.path) as tail:
            yield tail.wait_until
        assert tail.failed == []

    def repair(
        self, *options: str, start: int | None = None, end: int | None = None, restore_forgotten: bool = False
    ) -> None:
        """`reput rebuild --only table`."""
        request = RebuildRequest(
            self.out, self.path, only="table", start=start, end=end, restore_forgotten=restore_forgotten
        )
        with Rebuild(self.config(*options), request, RebuildProgress()) as job:
            job.run(LocalTasks(), lambda: self.spark)

    def found(self) -> list[int]:
        """The broker's rows, by offset."""
        return offsets(self._spark, self.path, self.broker)

    def expected(self, first: int = 0, last: int | None = None) -> list[int]:
        """Return the rows that the log demands: those of records `[first, last)` by number."""
        return [record.physical_offset for record in self.records[first:last]]

    def history(self) -> list[str]:
        assert isinstance(self.path, Path)
        return operations(self.path)
