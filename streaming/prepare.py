"""`reput prepare`: starts Spark once to find Delta's jars, and once to have its JVM archive the classes it needs."""

from __future__ import annotations

import io
import logging
import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from reput.source.errors import EnvironmentSetupError
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.process.environment import run_directory
from reput.streaming.spark.class_archive import SparkClasses
from reput.streaming.spark.session import (
    JAVA_OPTIONS,
    TAIL_SETTINGS,
    check_java,
    end_session,
    resolved_jars,
    start_session,
)
from reput.streaming.spark.warm_up import write_small_log
from reput.streaming.sql.output import write_result
from reput.streaming.sql.spark_query import SparkResult, query
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.tail import Tail

_SEGMENT_BYTES = 4096
_JVM_ENDS_WITHIN_S = 600.0
_log = logging.getLogger("reput")


def prepare() -> SparkClasses:
    """Make again what lets Spark start sooner; see ``class_archive``.

    Raises
    ------
    EnvironmentSetupError
        Java is missing or too old, Spark does not start, Delta's jars cannot be got, or the JVM makes no archive.
    """
    classes = SparkClasses.of(check_java())
    if refusal := classes.refusal():
        raise EnvironmentSetupError(refusal)
    try:
        classes.directory.mkdir(parents=True, exist_ok=True)
        classes.keep_home()
    except OSError as error:
        raise EnvironmentSetupError(
            f"cannot make {classes.directory}: {error.strerror}",
            advice="set XDG_CACHE_HOME to a directory of yours",
            file=classes.directory,
        ) from error
    classes.archive.unlink(missing_ok=True)
    log_file = classes.directory / "spark.log"  # stays where something fails
    with tempfile.TemporaryDirectory(prefix="prepare-", dir=run_directory()) as name:
        if classes.jars() is None:
            _log.info("looking for Delta's jars")
            spark = _start(log_file)
            classes.keep_jars(resolved_jars(spark))
            _end(spark)
        _log.info("starting Spark with them, and having the JVM keep its classes")
        _make_archive(classes, log_file, Path(name))
    log_file.unlink(missing_ok=True)
    return classes


def _make_archive(classes: SparkClasses, log_file: Path, directory: Path) -> None:
    scratch = classes.archive.with_suffix(f".{os.getpid()}")
    try:
        spark = _start(log_file, f"-XX:ArchiveClassesAtExit={scratch} -Xlog:disable")
        _rehearse(spark, directory)
        _end(spark)
        if not scratch.exists():
            msg = f"the JVM made no archive of its classes: {scratch} is missing; Spark starts without, more slowly"
            raise EnvironmentSetupError(msg)
        scratch.replace(classes.archive)
    finally:
        scratch.unlink(missing_ok=True)


def _start(log_file: Path, java_options: str = "") -> SparkSession:
    options = f"{TAIL_SETTINGS[JAVA_OPTIONS]} {java_options}"
    settings = {**TAIL_SETTINGS, JAVA_OPTIONS: options}
    return start_session("reput prepare", master="local[2]", driver_memory="1g", log_file=log_file, settings=settings)


def _rehearse(spark: SparkSession, directory: Path) -> None:
    """Do what commands do once, with a log of one message: the classes that this loads are archived."""
    write_small_log(directory / "store" / "commitlog", _SEGMENT_BYTES)
    settings = load_config(directory / "store", overrides=[f"mappedFileSizeCommitLog={_SEGMENT_BYTES}"])
    quiet = Console(file=io.StringIO())
    paths = OutputPaths(directory / "output", directory / "messages")
    with Tail(settings, paths, ProgressReporter(quiet)) as job:
        job.run(spark, available_now=True)
    rows = query(spark, directory / "messages", "SELECT topic, count(*) FROM messages GROUP BY topic")
    write_result(SparkResult(rows), "table", io.StringIO())


def _end(spark: SparkSession) -> None:
    """Stop Spark and let its JVM end by itself, since it writes the archive then."""
    end_session(spark, jvm_within_s=_JVM_ENDS_WITHIN_S)
