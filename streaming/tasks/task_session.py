"""Sessions for `rebuild` and `verify`: processes of this machine, or a Spark cluster; and Spark for the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from reput.sinks.table.location import TableLocation
from reput.source.system import SPARK, check_limits
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.run_options import processes_of
from reput.streaming.spark.job import start_workers
from reput.streaming.spark.kernels import prepare_kernels
from reput.streaming.spark.session import TAIL_SETTINGS, end_session, start_session
from reput.streaming.tasks.executors import check_executors
from reput.streaming.tasks.tasks import ProcessTasks, SerialTasks, SparkTasks, Tasks


@dataclass(frozen=True)
class TaskSession:
    """Runs tasks; `spark` returns the session for the table, and starts it unless tasks run in it already."""

    tasks: Tasks
    spark: Callable[[], SparkSession]


@contextmanager
def task_session(
    config: PipelineConfig,
    name: str,
    *,
    table_master: str | None,
    spark_log: Path | None,
    alone: bool = False,
    with_rows: bool = True,
    table: TableLocation | None = None,
    read: Sequence[Path] = (),
    written: Sequence[Path] = (),
) -> Iterator[TaskSession]:
    """Start what ``sparkMaster`` asks for: processes of this machine for ``local[N]``, else tasks of that cluster.

    Parameters
    ----------
    table_master
        Spark's master for the table, if reput's own processes do the rest; None if no table is read or written.
    spark_log
        The file of Spark's own messages; None for the terminal.
    alone
        Start no further processes on this machine; a cluster is used nevertheless.
    with_rows
        Whether tasks make Arrow rows; see ``compile_kernels``.
    table
        The table that is read or written.
    read, written
        Files that tasks read, and existing directories into which they write; they also write into the table. See
        ``check_executors``.

    Raises
    ------
    EnvironmentSetupError
        Java is missing or too old, Spark does not start, a limit of this process is below what it needs, or a cluster's
        executors have another reput.
    MayPassError
        A cluster's executors do not share what they must.
    """
    processes = processes_of(config.spark.master)
    with ExitStack() as cleanup:
        tasks: Tasks | None = None
        if processes is not None and alone:
            tasks = SerialTasks()
        elif processes is not None:
            # In this thread: a process with another thread, even one that has just ended, is not forked.
            prepare_kernels(with_rows=with_rows)
            tasks = cleanup.enter_context(ProcessTasks(processes))

        @cache
        def start_spark() -> SparkSession:
            master = config.spark.master if processes is None else table_master
            assert master is not None, "Spark was not asked for"
            check_limits(SPARK)
            spark = start_session(
                name,
                master=master,
                driver_memory=config.spark.driver_memory,
                log_file=spark_log,
                settings=TAIL_SETTINGS,
                with_delta=table_master is not None,
                table=table if table_master is not None else None,
                log_max_bytes=config.spark.log_max_bytes,
            )
            cleanup.callback(end_session, spark)
            return spark

        if tasks is None:
            check_executors(start_spark(), read, written, table if written else None)
            start_workers(start_spark())
            tasks = SparkTasks(start_spark())
        yield TaskSession(tasks, start_spark)
