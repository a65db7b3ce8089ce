"""The SparkSession: Delta, this Python interpreter for the workers, compiled kernels, no noise on the terminal.

Before it starts, the Java that it needs is found, or an error says so. ``spark-submit`` brings a JVM with a master,
settings and packages of its own. `Sessions` are for a command that outlives its JVM.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from reput.sinks.table.location import S3Location, TableLocation
from reput.sinks.table.storage import S3Place
from reput.source.errors import EnvironmentSetupError, TransientError
from reput.source.system import show_pandas
from reput.streaming.process.environment import WARNINGS, clear_run_directory, run_directory, submit_gateway
from reput.streaming.process.failures import first_line, is_passing, jvm_death
from reput.streaming.process.interruption import before_interruption, beside_the_main_thread
from reput.streaming.process.jvm import Jvm, connected, has_jvm_died, kill_jvm, last_jvm, spark_home
from reput.streaming.process.process_log import LOG_BYTES_MAX
from reput.streaming.spark.class_archive import SparkClasses, user_cache
from reput.streaming.spark.kernels import choose_cache, prepare_kernels

_log = logging.getLogger("reput")
_PAUSES_S = (1, 4)
# A socket's path has at most 107 bytes, of which Spark's file name takes 42.
_SOCKET_DIRECTORY_LENGTH_MAX = 64

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    # A task costs less over a Unix domain socket than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # A micro-batch's entries come to the driver together; maxBytesPerTrigger bounds them.
    "spark.driver.maxResultSize": "0",
    # The offset log needs only the last batch, and a poll for new data only lists one directory.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.pollingDelay": "10ms",
    # An empty batch would only write to the checkpoint.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta reads its snapshot with 50 tasks by default, which is too many for a table on one machine.
    "spark.databricks.delta.snapshotPartitions": "2",
}

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# JVMs only plan and pass data on; their optimising compiler would take cores from the decoders. Without it the JVM
# reserves 48 MB for compiled code, which Spark fills, and a full one ends in VirtualMachineErrors: hence the usual 240.
NO_OPTIMIZER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
# A tail's JVM holds 50 MB of objects. G1 lets its heap grow and gives little of it back: a minute after 400,000
# messages the JVM took 630 MB with it, and 380 MB with these. With a smaller first size, a start had full collections.
_SMALL_HEAP = "-XX:+UseSerialGC -Xms96m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
TAIL_SETTINGS = {
    JAVA_OPTIONS: f"{NO_OPTIMIZER} {_SMALL_HEAP}",
    "spark.executor.defaultJavaOptions": NO_OPTIMIZER,  # a user's extraJavaOptions come after them
    # Hadoop starts a `chmod` for each file that it makes, and with Spark's usual manager of the checkpoint's files also
    # four `readlink`, two thirds of a small micro-batch. This manager starts no `readlink`. It would make directories
    # that are missing; `spark_checkpoint.path_for_spark` prevents that.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing"
    ".FileSystemBasedCheckpointFileManager",
    "spark.python.daemon.module": "reput.streaming.tail.worker_daemon",
}
# Each query gets its share of the cores: a broker that is far behind does not delay the others.
SEVERAL_BROKERS_SETTINGS = {**TAIL_SETTINGS, "spark.scheduler.mode": "FAIR"}


def start_session(
    name: str,
    *,
    master: str,
    driver_memory: str,
    log_file: Path | None,
    settings: Mapping[str, str] | None = None,
    with_delta: bool = True,
    table: TableLocation | None = None,
    log_max_bytes: int = LOG_BYTES_MAX,
) -> SparkSession:
    """Start Spark, by default with Delta; its own messages go to `log_file` (None: the terminal).

    At most four times `log_max_bytes` of the messages are kept (``process_log``).

    `table` is the table that is read or written; only one on S3 makes a difference: its jars are got once.

    On this machine it starts with the files of ``class_archive``, if they exist. A start that fails for a reason that
    may pass is tried again, at most twice. ``end_session`` ends a session that this function started. If
    ``spark-submit`` started this process the session is in its JVM, and its settings count (`builder_beside`).

    Raises
    ------
    EnvironmentSetupError
        Java is missing or too old, or Spark refuses its settings; the message names the log.
    TransientError
        Spark did not start for a reason that may pass.
    """
    show_pandas()
    java = check_java()
    choose_cache()
    is_submitted, is_local = submit_gateway() is not None, master.partition("[")[0] == "local"
    # The workers must run this Python, with this package, rather than the first python3 of the PATH; on the machines of
    # a cluster it may be elsewhere.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local or not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a host name need not resolve
    # The executors of a cluster get Delta's jars only as Spark's packages.
    classes, is_ours = SparkClasses.of(java), is_local and not is_submitted
    prepared = classes.settings() if is_ours else {}
    place = place_of(table)
    s3_jars = classes.s3_jars() if is_ours and place is not None else None
    packages = PACKAGES if place is not None and s3_jars is None else ()
    s3 = {} if place is None else s3_settings(place, run_directory(), with_packages=bool(packages))
    given = {**_SETTINGS, **(_DELTA_SETTINGS if with_delta else {})}
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", driver_memory)
    for key, value in _merged(prepared, given, _scratch_settings(master), s3, settings or {}).items():
        builder = builder.config(key, value)
    if with_delta and not prepared:
        from delta import configure_spark_with_delta_pip  # noqa: PLC0415  the import begins to read jars

        builder = configure_spark_with_delta_pip(builder, extra_packages=list(packages))
    elif packages:
        builder = builder.config("spark.jars.packages", ",".join(packages))
    if is_submitted:
        builder, log_file = builder_beside(builder), None
    before_interruption(kill_jvm)
    # py4j would print a traceback of its own for each call that a dead JVM does not answer.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())  # it also uses the root logger, which would print
    home = classes.home if prepared else spark_home()
    start_jvm = partial(
        Jvm,
        directory=run_directory(),
        log_file=log_file,
        home=home,
        class_path=s3_jars or (),
        log_max_bytes=log_max_bytes,
    )
    session = _started(builder, log_file, start_jvm)
    if packages and is_ours:
        classes.keep_s3_jars(resolved_jars(session))
    session.sparkContext.setLogLevel("ERROR")
    _write_no_checksum_files(session)
    # A thread of pyspark would print a traceback when the JVM at its other end dies.
    accumulators: Any = session.sparkContext._accumulatorServer  # noqa: SLF001
    accumulators.handle_error = lambda *_: None
    return session


def _merged(*each: Mapping[str, str]) -> dict[str, str]:
    """Merge all settings: a later value overrides an earlier one, but the JVM's options are joined."""
    options = [settings[JAVA_OPTIONS] for settings in each if JAVA_OPTIONS in settings]
    merged = {key: value for settings in each for key, value in settings.items()}
    return merged | ({JAVA_OPTIONS: " ".join(options)} if options else {})


def _scratch_settings(master: str) -> dict[str, str]:
    """Return settings for temporary files in this run's directory; a cluster's executors have their own."""
    directory = run_directory()
    settings = {
        "spark.sql.warehouse.dir": f"{directory}/spark-warehouse",
        # Workers also have their sockets there. UsePerfData would leave a file in /tmp when the JVM is killed.
        JAVA_OPTIONS: f"-Djava.io.tmpdir={directory} -XX:-UsePerfData",
    }
    if master.startswith("local"):
        settings["spark.local.dir"] = str(directory)
    if len(str(directory)) > _SOCKET_DIRECTORY_LENGTH_MAX:
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    return settings


def _started(builder: SparkSession.Builder, log_file: Path | None, start_jvm: Callable[..., Jvm]) -> SparkSession:
    for pause in (*_PAUSES_S, None):
        try:
            return _start_once(builder, log_file, start_jvm)
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


def _start_once(builder: SparkSession.Builder, log_file: Path | None, start_jvm: Callable[..., Jvm]) -> SparkSession:
    """Start a JVM unless this process has one, and a session in it."""
    options: dict[str, str] = builder._options  # noqa: SLF001  what the builder would pass to a JVM of its own
    jvm = None
    if SparkContext._gateway is None:  # noqa: SLF001
        if log_file is not None:
            log_file.parent.mkdir(parents=True, exist_ok=True)
        jvm = start_jvm(options)
    try:
        return beside_the_main_thread(lambda: _connected(builder, jvm), prepare_kernels)
    except BaseException as error:
        if jvm is not None:
            is_broken_off = jvm.is_asked_to_end
            _forget_gateway()
            jvm.end()
            if is_broken_off and isinstance(error, Exception):  # not to be tried again
                raise EnvironmentSetupError("its start was broken off") from error
        raise


def _connected(builder: SparkSession.Builder, jvm: Jvm | None) -> SparkSession:
    if jvm is not None:
        gateway = jvm.connect()
        SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm  # noqa: SLF001
    session: SparkSession = builder.getOrCreate()
    return session


def _write_no_checksum_files(session: SparkSession) -> None:
    """Have Hadoop make no checksum file beside each local file; it would start another `chmod` for it."""
    context: Any = session.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001
    files.getLocal(context._jsc.hadoopConfiguration()).setWriteChecksum(False)  # noqa: SLF001


def end_session(session: SparkSession, *, jvm_within_s: float = 0.0) -> None:
    """End Spark, and its JVM if reput started it; one that has died, or is ``spark-submit``'s, raises no error.

    Everything that must last is durable already, so the JVM is killed at once unless `jvm_within_s` grants it time.
    """
    jvm = last_jvm()
    if jvm is None:
        try:
            session.stop()
        except Py4JError:
            if submit_gateway() is None:
                raise
        return
    _end_accumulators(session.sparkContext)
    with suppress(Exception), warnings.catch_warnings():
        # The JVM may have died, or die meanwhile, after a stop was requested; pyspark warns of that.
        warnings.simplefilter("ignore", RuntimeWarning)
        session.stop()
    gateway: Any = SparkContext._gateway  # noqa: SLF001
    _forget_gateway()
    jvm.end(within_s=jvm_within_s)
    _close(gateway)


def _end_accumulators(context: Any) -> None:
    """End the server that gets accumulators' values from the JVM, without waiting for its threads.

    They check once a second whether to end, and a context that is stopped waits for them.
    """
    server, context._accumulatorServer = context._accumulatorServer, None  # noqa: SLF001
    if server is not None:
        server.server_shutdown = True
        if isinstance(server.server_address, str):
            Path(server.server_address).unlink(missing_ok=True)
        threading.Thread(target=server.shutdown, daemon=True).start()


def _forget_gateway() -> None:
    """Make the next session of this process begin with a JVM of its own."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001


def _close(gateway: Any) -> None:
    """Close py4j's side of a JVM that has ended: its sockets, and its threads, which would wait for ever."""
    if gateway is not None:
        gateway.shutdown()  # it ignores that a JVM that has ended does not answer
        gateway._gateway_client.close()  # noqa: SLF001


def resolved_jars(session: SparkSession) -> list[Path]:
    """The jars that Ivy found for Spark's packages."""
    names = session.sparkContext.getConf().get("spark.jars") or ""
    return [Path(urlsplit(name).path) for name in names.split(",") if name]


def _kept(log_file: Path | None) -> Path | None:
    """Return where Spark's own messages are; a file in this run's directory is copied to the cache, where it lasts."""
    if log_file is not None and run_directory() in log_file.parents:
        kept = user_cache() / log_file.name
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log_file, kept)
        except OSError:
            return None
        return kept
    return log_file


def temporary_log_file() -> Path:
    """A file for Spark's messages if the command has no output directory; it is removed with this run's directory."""
    return run_directory() / "spark.log"


# ----------------------------------------------------------------------------------------------------------------------
# Spark for a table on S3: Hadoop's jars for it, which Ivy gets once, and Hadoop's settings.

# The version of AWS' library that Hadoop of this version was built with.
_HADOOP, _SDK = "3.5.0", "2.35.4"
#: Only the parts of AWS' library that Hadoop loads: all of it would be 600 MB.
PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{_HADOOP}",
    f"software.amazon.awssdk:s3:{_SDK}",
    f"software.amazon.awssdk:s3-transfer-manager:{_SDK}",
    f"software.amazon.awssdk:sts:{_SDK}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
# Spark has the rest, or Delta does not use it.
_EXCLUDED = (
    *("software.amazon.awssdk:bundle", "software.amazon.awssdk:netty-nio-client", "software.amazon.awssdk.crt:*"),
    *("io.netty:*", "org.wildfly.openssl:*", "org.apache.httpcomponents:*", "org.slf4j:*", "commons-codec:*"),
    *("commons-logging:*", "org.apache.parquet:*", "org.apache.hadoop:hadoop-common"),
)
_CLIENT = re.compile(r"hadoop-client-api-(.+)\.jar")


def place_of(table: TableLocation | None) -> S3Place | None:
    """Return the place of a table on S3; None for another table.

    Raises
    ------
    EnvironmentSetupError
        This Spark has another Hadoop.
    """
    if not isinstance(table, S3Location):
        return None
    found = [match[1] for path in (spark_home() / "jars").glob("*.jar") if (match := _CLIENT.fullmatch(path.name))]
    if found != [_HADOOP]:
        raise EnvironmentSetupError(
            f"{table}: a table on S3 needs a Spark with Hadoop {_HADOOP}, and {spark_home()} has {', '.join(found)}",
            advice="use the Spark that reput is installed with",
        )
    return S3Place.of(table.bucket)


def s3_settings(place: S3Place, scratch: Path, *, with_packages: bool) -> Mapping[str, str]:
    """Return Spark's settings for tables there; `with_packages` has it get the jars."""
    hadoop = {f"spark.hadoop.{name}": value for name, value in place.hadoop_settings(scratch / "s3a").items()}
    return {**hadoop, "spark.jars.excludes": ",".join(_EXCLUDED)} if with_packages else hadoop


class Sessions:
    """A session, replaced by another one once its JVM has died.

    Any thread may use it.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        """`start` starts a session (``start_session``); `end` ends the last one."""
        self._start = start
        #: Whether to replace a session that has died.
        self.can_start = True
        self._session: SparkSession | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    @classmethod
    def of(cls, session: SparkSession) -> Sessions:
        """Return Sessions with only this one, which belongs to the caller; it is not replaced after it has died."""

        def refuse() -> SparkSession:
            raise jvm_death()

        sessions = cls(refuse)
        sessions._session, sessions.can_start = session, False
        return sessions

    def current(self) -> SparkSession:
        """Return the session; the first one, and one after a death, is started now.

        Raises
        ------
        EnvironmentSetupError, TransientError
            ``start_session`` raised it.
        """
        with self._lock:
            if self.has_died():
                self._end()
                # Workers end with their JVM, but not at once: none may work beside those of the next session.
                clear_run_directory()
            if self._session is None:
                self._session = self._start()
            return self._session

    def has_died(self) -> bool:
        """Whether the last session's JVM has ended by itself, or Spark in it (`look`); it is not replaced yet."""
        return self._session is not None and (self._is_stopped or has_jvm_died())

    def is_lost(self, session: SparkSession) -> bool:
        """Whether `session`, which `current` once returned, can no longer be used."""
        return session is not self._session or self.has_died()

    def look(self) -> None:
        """After a failure, find out whether Spark's context was stopped from outside, as a cluster does."""
        if not self._lock.acquire(blocking=False):
            return  # another session is being started
        try:
            with suppress(Exception):
                session: Any = self._session
                self._is_stopped = session is not None and bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
        finally:
            self._lock.release()

    def end(self) -> None:
        """End the session, if there is one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        session, self._session, self._is_stopped = self._session, None, False
        if session is not None:
            end_session(session)


JAVA_MAJOR_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALL = (
    "install it with 'apt-get install openjdk-17-jre-headless' (Debian, Ubuntu), "
    "'dnf install java-17-openjdk-headless' (RHEL, Fedora) or 'brew install openjdk@17' (macOS), "
    "or set JAVA_HOME"
)


def check_java() -> str:
    """Make sure that the Java that Spark will start exists and is version 17 or later.

    Returns
    -------
    str
        Its path and the output of ``java -version``, which identify it.

    Raises
    ------
    EnvironmentSetupError
        It is missing, too old, or does not run.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, and {java} does not exist" if home else "no java on the PATH"
        raise _needed(where, java)
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise _needed(f"{java} does not run ({error})", java) from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None or int(match[1]) < JAVA_MAJOR_MIN:
        found = match[1] if match else f"no version in {answer.stderr.strip()[:80]!r}"
        raise _needed(f"{java} is {found}", java)
    return f"{java}\n{answer.stderr}{answer.stdout}"


def _needed(found: str, java: str | None) -> EnvironmentSetupError:
    return EnvironmentSetupError(f"Spark needs Java {JAVA_MAJOR_MIN} or later: {found}", advice=_INSTALL, file=java)


_EXTENSIONS, _PACKAGES = "spark.sql.extensions", "spark.jars.packages"
_S3 = "org.apache.hadoop.fs.s3a.S3AFileSystem"
# Rows and commits depend on these; any other setting of spark-submit beats reput's own.
_NEEDED = {"spark.app.name", "spark.master", "spark.sql.session.timeZone", "spark.sql.catalog.spark_catalog"}
# These have no effect on a JVM that already runs.
_OF_A_START = {
    *("spark.driver.memory", "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"),
    *(_PACKAGES, "spark.jars.excludes"),
}


def submitted_master() -> str | None:
    """Return the master that ``spark-submit`` was given; None if it did not start this process."""
    if submit_gateway() is None:
        return None
    connect()
    return SparkConf().get("spark.master")


def connect() -> None:
    """Have pyspark use the JVM of ``spark-submit``, which started this process."""
    known = submit_gateway()
    assert known is not None
    if SparkContext._gateway is None:  # noqa: SLF001
        found = connected(*known)
        SparkContext._gateway, SparkContext._jvm = found, found.jvm  # noqa: SLF001


def builder_beside(own: SparkSession.Builder) -> SparkSession.Builder:
    """Return a builder for a session in this JVM; where possible, settings of ``spark-submit`` beat `own` ones.

    Raises
    ------
    EnvironmentSetupError
        ``spark-submit`` was not given the packages that `own` asks for.
    """
    connect()
    options: dict[str, str] = own._options  # noqa: SLF001
    _check_classes(options)
    builder = SparkSession.Builder()
    for name, value in _beside(options, dict(SparkConf().getAll())).items():
        builder = builder.config(name, value)
    return builder


def _beside(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    settings = {
        name: value for name, value in own.items() if name not in _OF_A_START and (name in _NEEDED or name not in given)
    }
    if _EXTENSIONS in own and _EXTENSIONS in given:
        names = [*given[_EXTENSIONS].split(","), *own[_EXTENSIONS].split(",")]
        settings[_EXTENSIONS] = ",".join(dict.fromkeys(name.strip() for name in names))
    # As in a JVM that reput starts: Python processes load no code from their working directory, and do not warn.
    return {"spark.executorEnv.PYTHONSAFEPATH": "1", **_warnings_as_here(given), **settings}


def _warnings_as_here(given: Mapping[str, str]) -> Mapping[str, str]:
    name = f"spark.executorEnv.{WARNINGS}"
    return {name: os.environ[WARNINGS]} if WARNINGS in os.environ and name not in given else {}


def _check_classes(options: Mapping[str, str]) -> None:
    packages = options.get(_PACKAGES, "")
    wanted = [options[_EXTENSIONS]] if _EXTENSIONS in options else []
    wanted += [_S3] if "hadoop-aws" in packages else []
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in wanted:
        if loader.getResource(name.replace(".", "/") + ".class") is None:
            msg = f"the JVM that spark-submit started has no class {name}"
            raise EnvironmentSetupError(msg, advice=f"give spark-submit --packages {packages}")
