"""A tail in this process: one that is only opened, one that runs to the end of the log, one that runs beside a test."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from support.delta_rows import offsets

from reput.sinks.table.location import TableLocation
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.tail import Tail

LIMIT_S = 240


def quiet_reporter() -> ProgressReporter:
    """Return a reporter that prints into memory."""
    return ProgressReporter(Console(file=io.StringIO()))


def tail_of(
    config: PipelineConfig, output: Path, table: TableLocation | None = None, reporter: ProgressReporter | None = None
) -> Tail:
    """Return a tail that is not opened yet; by default its reporter prints into memory."""
    return Tail(config, OutputPaths(output, table), reporter or quiet_reporter())


def run_tail(
    spark: SparkSession,
    store: Path,
    output: Path,
    *options: str,
    table: TableLocation | None = None,
    conf: Path | None = None,
) -> ProgressReporter:
    """Run `reput tail --available-now` in this process."""
    config = load_config(store, broker_conf=conf, overrides=("tailGuardMs=20", *options))
    reporter = quiet_reporter()
    with tail_of(config, output, table, reporter) as tail:
        tail.run(spark, available_now=True)
    return reporter


@dataclass(frozen=True)
class TailBeside:
    """A tail that runs in a thread beside a test: what it reports, its thread, and with what it failed."""

    reporter: ProgressReporter
    thread: threading.Thread
    failed: list[BaseException]

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until something is done, as long as the tail runs."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            assert self.thread.is_alive(), self.failed
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait_for_messages(self, count: int, *queries: str) -> None:
        """Wait until each of these queries has reported `count` messages."""
        self.wait_until(lambda: all(self.reporter.messages(query) == count for query in queries))


@contextmanager
def tail_beside(
    spark: SparkSession, config: PipelineConfig, output: Path, table: TableLocation | None = None
) -> Iterator[TailBeside]:
    """Run `reput tail` in a thread until the block ends."""
    reporter, failed = quiet_reporter(), list[BaseException]()

    def run(tail: Tail) -> None:
        try:
            tail.run(spark, available_now=False)
        except BaseException as error:  # noqa: BLE001  the test looks at it
            failed.append(error)

    with tail_of(config, output, table, reporter) as tail:
        thread = threading.Thread(target=run, args=(tail,))
        thread.start()
        try:
            yield TailBeside(reporter, thread, failed)
        finally:
            tail.stop()
            thread.join()


def rows(spark: SparkSession, table: TableLocation) -> int:
    """Count the rows of the message table."""
    return len(offsets(spark, table))
