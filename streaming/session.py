"""The SparkSession: Delta, this very Python for the workers, compiled kernels at hand, no noise on the terminal."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from reput.source.errors import EnvironmentSetupError
from reput.streaming.java import check_java
from reput.streaming.spark_classes import SparkClasses, user_cache

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # A task costs less over a local socket file than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # A micro-batch's entries come to the driver in one piece; maxBytesPerTrigger bounds them.
    "spark.driver.maxResultSize": "0",
    # The offset log needs no more than the last batch, and a poll for new data is a listing of one directory.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.pollingDelay": "10ms",
    # Without data nothing is done; an empty batch would only write to the checkpoint.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta reads its snapshot with 50 tasks by default: too many for a table of one machine.
    "spark.databricks.delta.snapshotPartitions": "2",
}

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# JVMs only plan and pass on; their optimising compiler would take the cores from the decoders.
_NO_OPTIMIZER = "-XX:TieredStopAtLevel=1"
TAIL_SETTINGS = {
    JAVA_OPTIONS: _NO_OPTIMIZER,
    "spark.executor.defaultJavaOptions": _NO_OPTIMIZER,  # Spark puts a user's extraJavaOptions behind them
    # Hadoop starts a `chmod` for each file that it makes, 45 ms on two busy cores. So no file of checksums beside each
    # one of Spark's checkpoint: what is in the outputs says how far they are, not the checkpoint.
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.python.daemon.module": "reput.streaming.worker_daemon",
}


def start_session(
    name: str,
    *,
    master: str,
    driver_memory: str,
    log_file: Path | None,
    settings: Mapping[str, str] | None = None,
    with_delta: bool = True,
) -> SparkSession:
    """Start Spark, with Delta unless that is not needed; its own messages go to `log_file` (None: the terminal).

    On this machine it starts with what ``spark_classes`` has, if that is there.

    Raises
    ------
    EnvironmentSetupError
        Java is missing or too old, or Spark does not start; the message names the log.
    """
    java = check_java()
    prepare_kernels()
    # The workers must be this Python, with this package, and not the first python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a host name need not resolve
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", driver_memory)
    # The executors of a cluster get Delta's jars only as Spark's packages.
    prepared = SparkClasses.of(java).settings() if master.startswith("local") else {}
    given = {**_SETTINGS, **(_DELTA_SETTINGS if with_delta else {}), **(settings or {})}
    options = [each[JAVA_OPTIONS] for each in (given, prepared) if JAVA_OPTIONS in each]
    for key, value in {**prepared, **given, **({JAVA_OPTIONS: " ".join(options)} if options else {})}.items():
        builder = builder.config(key, value)
    with _standard_error_to(log_file):
        try:
            if with_delta and not prepared:
                from delta import configure_spark_with_delta_pip  # noqa: PLC0415  its import starts reading jars

                builder = configure_spark_with_delta_pip(builder)
            session: SparkSession = builder.getOrCreate()
        except Exception as error:
            where = f"; see {log_file}" if log_file else ""
            msg = f"Spark does not start: {str(error).splitlines()[0]}{where}"
            raise EnvironmentSetupError(msg) from error
    session.sparkContext.setLogLevel("ERROR")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    return session


def prepare_kernels(*, with_rows: bool = True) -> None:
    """Compile the kernels once, to a directory that can be written, before any worker would do it itself.

    `with_rows` as in ``compile_kernels``.
    """
    package = Path(__file__).resolve().parent.parent
    if "NUMBA_CACHE_DIR" not in os.environ and not os.access(package, os.W_OK):
        os.environ["NUMBA_CACHE_DIR"] = str(user_cache() / "numba")
    from reput.streaming.warm_up import compile_kernels  # noqa: PLC0415  numba reads its cache directory at import

    compile_kernels(with_rows=with_rows)


@contextmanager
def _standard_error_to(log_file: Path | None) -> Iterator[None]:
    """Give a child process started meanwhile `log_file` as its standard error."""
    if log_file is None:
        yield
        return
    log_file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with log_file.open("ab") as target:
        os.dup2(target.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)


def temporary_log_file() -> Path:
    """A file for Spark's messages where the command has no output directory."""
    descriptor, path = tempfile.mkstemp(prefix="reput-spark-", suffix=".log")
    os.close(descriptor)
    return Path(path)
