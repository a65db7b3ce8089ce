"""The SparkSession: Delta, this very Python for the workers, compiled kernels at hand, no noise on the terminal."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from reput.source.errors import EnvironmentSetupError, TransientError
from reput.streaming.process.failures import first_line, is_passing
from reput.streaming.process.interruption import before_interruption
from reput.streaming.process.jvm import Jvm, kill_jvm, last_jvm
from reput.streaming.process.run_directory import run_directory
from reput.streaming.spark.class_archive import SparkClasses, user_cache
from reput.streaming.spark.java import check_java

_log = logging.getLogger("reput")
_Result = TypeVar("_Result")
_PAUSES_S = (1, 4)
_SIGNALS_SEEN_WITHIN_S = 0.1
# A socket's path has at most 107 bytes, and Spark's names of them have 42.
_SOCKET_DIRECTORY_LENGTH_MAX = 64

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
    "spark.python.daemon.module": "reput.streaming.tail.worker_daemon",
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

    On this machine it starts with what ``class_archive`` has, if that is there. A start that fails for a reason that
    may pass is tried again, twice at the most. ``end_session`` ends what is started here.

    Raises
    ------
    EnvironmentSetupError
        Java is missing or too old, or Spark refuses its settings; the message names the log.
    TransientError
        Spark did not start for a reason that may pass.
    """
    java = check_java()
    prepare_kernels()
    # The workers must be this Python, with this package, and not the first python3 of the PATH.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a host name need not resolve
    # The executors of a cluster get Delta's jars only as Spark's packages.
    prepared = SparkClasses.of(java).settings() if master.startswith("local") else {}
    given = {**_SETTINGS, **(_DELTA_SETTINGS if with_delta else {})}
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", driver_memory)
    for key, value in _merged(prepared, given, _scratch_settings(master), settings or {}).items():
        builder = builder.config(key, value)
    if with_delta and not prepared:
        from delta import configure_spark_with_delta_pip  # noqa: PLC0415  its import starts reading jars

        builder = configure_spark_with_delta_pip(builder)
    before_interruption(kill_jvm)
    # py4j would print a traceback of its own for each call that a JVM which died does not answer.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addHandler(logging.NullHandler())  # it uses the root, too, and that would print
    session = _started(builder, log_file)
    session.sparkContext.setLogLevel("ERROR")
    # A thread of pyspark's, which would print a traceback when the JVM at its other end dies.
    accumulators: Any = session.sparkContext._accumulatorServer  # noqa: SLF001
    accumulators.handle_error = lambda *_: None
    return session


def _merged(*each: Mapping[str, str]) -> dict[str, str]:
    """All settings, a later one before an earlier one; the JVM's options of all are joined."""
    options = [settings[JAVA_OPTIONS] for settings in each if JAVA_OPTIONS in settings]
    merged = {key: value for settings in each for key, value in settings.items()}
    return merged | ({JAVA_OPTIONS: " ".join(options)} if options else {})


def _scratch_settings(master: str) -> dict[str, str]:
    """Have Spark keep what it needs for a while in this run's directory; a cluster's executors have their own."""
    directory = run_directory()
    settings = {
        "spark.sql.warehouse.dir": f"{directory}/spark-warehouse",
        # Workers have their sockets there, too. UsePerfData would leave a file in /tmp when the JVM is killed.
        JAVA_OPTIONS: f"-Djava.io.tmpdir={directory} -XX:-UsePerfData",
    }
    if master.startswith("local"):
        settings["spark.local.dir"] = str(directory)
    if len(str(directory)) > _SOCKET_DIRECTORY_LENGTH_MAX:
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    return settings


def _started(builder: SparkSession.Builder, log_file: Path | None) -> SparkSession:
    for pause in (*_PAUSES_S, None):
        try:
            return _start_once(builder, log_file)
        except Exception as error:
            words = first_line(error)
            if pause is None or not is_passing(error):
                failure = TransientError if is_passing(error) else EnvironmentSetupError
                kept = _kept(log_file)
                advice = None if kept is None else f"see {kept}"
                raise failure(f"Spark does not start: {words}", advice=advice, file=kept) from error
            _log.warning("Spark does not start: %s; trying again in %d s", words, pause)
            time.sleep(pause)
    raise AssertionError


def _start_once(builder: SparkSession.Builder, log_file: Path | None) -> SparkSession:
    """Start a JVM unless this process has one, and a session in it."""
    options: dict[str, str] = builder._options  # noqa: SLF001  what the builder would hand to a JVM of its own
    jvm = None
    if SparkContext._gateway is None:  # noqa: SLF001
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        jvm = Jvm(options, run_directory(), log_file)
    try:
        return _beside_the_main_thread(lambda: _connected(builder, jvm))
    except BaseException:
        if jvm is not None:
            _forget_gateway()
            jvm.end()
        raise


def _connected(builder: SparkSession.Builder, jvm: Jvm | None) -> SparkSession:
    if jvm is not None:
        gateway = jvm.connect()
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm  # noqa: SLF001
    session: SparkSession = builder.getOrCreate()
    return session


def _beside_the_main_thread(action: Callable[[], _Result]) -> _Result:
    """Have a thread do it: a signal interrupts the wait for it, and Spark's context only takes SIGINT in the main one.

    It is no thread of a pool: a command that is interrupted does not wait for it.
    """
    done: Future[_Result] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, name="spark-start", daemon=True).start()
    while not done.done():
        wait([done], timeout=_SIGNALS_SEEN_WITHIN_S)
    return done.result()


def end_session(session: SparkSession, *, jvm_within_s: float = 0.0) -> None:
    """End Spark and its JVM, if reput started it; a JVM that has died is no error here.

    All that is to stay was made durable before, so the JVM gets no time of its own unless `jvm_within_s` says so.
    """
    jvm = last_jvm()
    if jvm is None:
        session.stop()
        return
    if jvm.is_alive:
        with suppress(Exception), warnings.catch_warnings():
            # It may die meanwhile, after a stop that was asked for; pyspark warns of that.
            warnings.simplefilter("ignore", RuntimeWarning)
            session.stop()
    _forget_gateway()
    jvm.end(within_s=jvm_within_s)


def _forget_gateway() -> None:
    """Let the next session of this process begin with a JVM of its own."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _kept(log_file: Path | None) -> Path | None:
    """Where Spark's own messages are; what would go with this run's directory is kept."""
    if log_file is not None and run_directory() in log_file.parents:
        kept = user_cache() / log_file.name
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log_file, kept)
        except OSError:
            return None
        return kept
    return log_file


def prepare_kernels(*, with_rows: bool = True) -> None:
    """Compile the kernels once, to a directory that can be written, before any worker would do it itself.

    `with_rows` as in ``compile_kernels``.
    """
    package = Path(__file__).resolve().parents[2]
    if "NUMBA_CACHE_DIR" not in os.environ and not os.access(package, os.W_OK):
        os.environ["NUMBA_CACHE_DIR"] = str(user_cache() / "numba")
    from reput.streaming.spark.warm_up import compile_kernels  # noqa: PLC0415  numba reads its cache directory at import

    compile_kernels(with_rows=with_rows)


def temporary_log_file() -> Path:
    """A file for Spark's messages where the command has no output directory; it goes with this run's directory."""
    return run_directory() / "spark.log"
