"""What a rebuild runs on: processes of this machine, or a Spark cluster; and Spark for the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from reput.streaming.config import PipelineConfig
from reput.streaming.process_tasks import ProcessTasks, processes_of
from reput.streaming.rebuild_tasks import SparkTasks, Tasks
from reput.streaming.session import TAIL_SETTINGS, prepare_kernels, start_session

# Where reput's own processes read the log, Spark only commits what they wrote to the table.
_COMMITTER = "local[1]"


@dataclass(frozen=True)
class RebuildSession:
    """Where the pieces of a rebuild run; `spark` is None unless they run there or a table is made."""

    tasks: Tasks
    spark: SparkSession | None


@contextmanager
def rebuild_session(config: PipelineConfig, *, needs_spark: bool, spark_log: Path | None) -> Iterator[RebuildSession]:
    """Start what ``sparkMaster`` says: processes of this machine for ``local[N]``, else tasks of that cluster.

    Spark itself is started for a cluster, or if it is needed; its own messages go to `spark_log` (None: the terminal).

    Raises
    ------
    EnvironmentSetupError
        Java is missing or too old, or Spark does not start.
    """
    master: str = config["sparkMaster"]
    processes = processes_of(master)
    with ExitStack() as cleanup:
        tasks: Tasks | None = None
        if processes is not None:
            prepare_kernels()
            tasks = cleanup.enter_context(ProcessTasks(processes))
        spark = None
        if tasks is None or needs_spark:
            spark = start_session(
                "reput rebuild",
                master=master if tasks is None else _COMMITTER,
                driver_memory=config["sparkDriverMemory"],
                log_file=spark_log,
                settings=TAIL_SETTINGS,
                with_delta=needs_spark,
            )
            cleanup.callback(spark.stop)
        if tasks is None:
            assert spark is not None
            tasks = SparkTasks(spark)
            tasks.start_workers()
        yield RebuildSession(tasks, spark)
