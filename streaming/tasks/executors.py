"""The things that a cluster's executors must share with the driver: the same reput, its log, its output, its table.

They are tried before anything is read: an executor without them fails in the middle of a micro-batch, with traces of
Java and Python that name no cause.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from reput import __version__
from reput.sinks.files.durable_file import remove_scratch, write_scratch
from reput.sinks.table.delta_table import is_table, is_vacant, only_creator
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import output_errors
from reput.source.errors import EnvironmentSetupError, MayPassError, ReputError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.streaming.config.run_options import processes_of
from reput.streaming.process.failures import one_line, text_of

_log = logging.getLogger("reput")
_HEAD_BYTES = 64  # the first record's own times and checksum are among them
_BYTES = "bytes "
_LOOKED_AT_S = 0.1
_NEWS_AFTER_S = 30.0
_NO_ANSWER = "%s has run no task of reput's for %.0f s: has it a free core, and memory for an executor?"
_SHARE = "log, output and table must be on file systems that each machine of the cluster has at the same path"
_INSTALL = "install the same release of reput, for the same Python, on each machine of the cluster"
_WHERE = re.compile(r"\(TID \d+\) \((\S+) executor \S+\)")
_VERSIONS = re.compile(r"different version: (\S+) than that in driver:? ([\d.]+)")
_NO_MODULE = re.compile(r"No module named '?([\w.]+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')

Said = dict[str, Any]


def check_executors(
    spark: SparkSession,
    read: Sequence[Path] = (),
    written: Sequence[Path] = (),
    table: TableLocation | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Have each executor of a cluster check that it has what its tasks need; executors that come later are not checked.

    Return False if `is_stopped` meanwhile: a cluster without a free core does not answer.

    Parameters
    ----------
    read
        Files that tasks read, or directories.
    written
        Existing directories, into which tasks write files for the driver.
    table
        Tasks write files below it; the directory of a local one is made if a table can be created there.

    Raises
    ------
    EnvironmentSetupError
        An executor's Python is missing, or has another version or another release of reput.
    MayPassError
        An executor does not see a file of this machine, or this machine none of an executor.
    OutputError
        A directory cannot be written.
    """
    if not runs_elsewhere(spark):
        return True
    with ExitStack() as stack:
        if isinstance(table, Path):
            if not is_table(table):
                stack.enter_context(only_creator(table))
                if not is_table(table) and is_vacant(table):
                    with output_errors(f"cannot create a Delta table at {table}", table):
                        table.mkdir(exist_ok=True)
            written = [*written, table]
        asked = 0
        while asked < (cores := int(spark.sparkContext.defaultParallelism)):  # more cores may have come meanwhile
            asked = cores
            if not _check(spark, cores, list(read), list(written), is_stopped):
                return False
    return True


def runs_elsewhere(spark: SparkSession) -> bool:
    """Whether tasks run in executors of a cluster, rather than in processes of this machine."""
    return processes_of(str(spark.sparkContext.master)) is None


def files_to_look_at(queue: MappedFileQueue) -> list[Path]:
    """Return the paths of a log to look at: the first segment of each directory, or a directory without one."""
    if any(file.content is not None for file in queue.files):
        return []  # each executor reads the place where they are
    first = {Path(file.path).parent: Path(file.path) for file in reversed(queue.files)}
    return [first.get(directory, directory) for directory in queue.paths]


def _check(
    spark: SparkSession, cores: int, read: list[Path], written: list[Path], is_stopped: Callable[[], bool]
) -> bool:
    """Run one task for each core, all of them at once, so that each executor gets one."""
    token = uuid.uuid4().hex
    try:
        probes = [write_scratch(directory, token.encode()) for directory in written]
        paths = list(map(str, read))
        here = _look(paths, [], token)
        before = next(iter(here(())))["read"]
        said = _ask(spark, cores, _look(paths, list(map(str, probes)), token), is_stopped)
        if said is None:
            return False
        after = next(iter(here(())))["read"]
        for each in said:
            _check_said(each, token, list(zip(read, before, after, strict=True)), written)
    finally:
        # Also remove those of tasks that were lost.
        remove_scratch(path for directory in written for path in directory.glob("*.scratch") if _has(path, token))
    return True


def _has(path: Path, token: str) -> bool:
    try:
        return path.stat().st_size == len(token) and path.read_bytes() == token.encode()
    except OSError:
        return False


def _ask(
    spark: SparkSession,
    cores: int,
    look: Callable[[Iterable[int]], Iterable[Said]],
    is_stopped: Callable[[], bool],
) -> list[Said] | None:
    """Return the tasks' answers; None if it `is_stopped` before they come."""
    done: Future[list[Said]] = Future()

    def run() -> None:
        try:
            done.set_result(spark.sparkContext.parallelize(range(cores), cores).mapPartitions(look).collect())
        except Exception as error:  # noqa: BLE001  the thread that waits for the result raises it
            done.set_exception(error)

    # Signals do not interrupt a wait for Spark.
    threading.Thread(target=run, name="reput-ask-executors", daemon=True).start()
    news_at = time.monotonic() + _NEWS_AFTER_S
    while not done.done():
        if is_stopped():
            return None
        if time.monotonic() > news_at:
            news_at = float("inf")
            _log.warning(_NO_ANSWER, spark.sparkContext.master, _NEWS_AFTER_S)
        wait([done], timeout=_LOOKED_AT_S)
    try:
        return done.result()
    except Exception as error:
        if (known := _of_python(text_of(error))) is not None:
            raise known from error
        raise


def _of_python(text: str) -> ReputError | None:
    """Return the error about an executor's Python in the error of a job; None if that is not the cause."""
    found = _WHERE.search(text)
    where = f"the executor on {found[1].partition(':')[0]}" if found else "an executor"
    if (versions := _VERSIONS.search(text)) is not None:
        what = f"{where} has Python {versions[1]}, and this machine {versions[2]}"
    elif (module := _NO_MODULE.search(text)) is not None:
        what = f"the Python of {where} has no module {module[1]}"
    elif (program := _NO_PROGRAM.search(text)) is not None:
        what = f"{where} has no {program[1]}"
    else:
        return None
    return EnvironmentSetupError(
        one_line(what), advice=f"{_INSTALL}; PYSPARK_PYTHON in the environment says where that Python is on them"
    )


def _check_said(said: Said, token: str, read: Sequence[tuple[Path, str, str]], written: Sequence[Path]) -> None:
    where = f"the executor on {one_line(said['host'])}"
    if said["reput"] != __version__:
        found = f"{where} has reput {one_line(said['reput'])}, and this machine {__version__}"
        raise EnvironmentSetupError(found, advice=_INSTALL)
    for (path, before, after), seen in zip(read, said["read"], strict=True):
        if seen not in (before, after):
            why = "it has other bytes" if seen.startswith(_BYTES) else one_line(seen)
            raise MayPassError(f"{where} does not see {path} of this machine: {why}", advice=_SHARE, file=path)
    for directory, (path, problem) in zip(written, said["written"], strict=True):
        if not path:
            found = f"{where} does not share {directory} with this machine: {one_line(problem)}"
            raise MayPassError(found, advice=_SHARE, file=directory)
        try:
            is_whole = Path(path).read_bytes() == token.encode()
        except OSError as error:
            found = f"this machine does not see what {where} writes into {directory}: {error.strerror}"
            raise MayPassError(found, advice=_SHARE, file=directory) from error
        if not is_whole:
            found = f"this machine does not see all that {where} writes into {directory}"
            raise MayPassError(found, advice=_SHARE, file=directory)


def _look(read: list[str], probes: list[str], token: str) -> Callable[[Iterable[int]], Iterable[Said]]:
    """Return a task, pickled with its code: executors may have another reput, or none."""

    def head(path: str) -> str:
        """Return the first bytes of a file, or the reason why there are none."""
        if os.path.isdir(path):  # noqa: PTH112
            return "it is a directory"
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                return f"{_BYTES}{file.read(_HEAD_BYTES).hex()}"
        except OSError as error:
            return str(error.strerror)

    def write_beside(probe: str) -> tuple[str, str]:
        """Return the path of a new file beside the driver's, or the reason why there is none."""
        from reput.sinks.files.durable_file import write_scratch  # noqa: PLC0415  the reput of the executor

        if (found := head(probe)) != f"{_BYTES}{token.encode().hex()}":
            return "", found
        try:
            return str(write_scratch(Path(probe).parent, token.encode())), ""
        except Exception as error:  # noqa: BLE001  whatever it is, the driver tells it
            return "", str(error)

    def look(_numbers: Iterable[int]) -> Iterator[Said]:
        from reput import __version__ as release  # noqa: PLC0415

        yield {
            "host": platform.node(),
            "reput": release,
            "read": [head(path) for path in read],
            "written": [write_beside(probe) for probe in probes] if release == __version__ else [],
        }

    return look
