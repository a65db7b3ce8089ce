"""What a command prints for an error from any source, and Spark's Java process, from which many of them come.

An error is one line, and has the exit code that belongs to it. Spark reports an error as the text of several stack
traces. Only one line of it counts: an error of reput, of the system or of Python that a task raised, or the last cause
that Java names.

The Java process is started out of reach of signals to this process group, watched, and ended. Ctrl-C and service
managers send a signal to the whole group. It would end the JVM and its Python workers under a driver that is about to
stop between two micro-batches. So the JVM has a session of its own and ignores SIGHUP, SIGINT and SIGTERM. It ends when
the driver ends it, or when the driver dies: its standard input is then closed.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from reput.source.errors import (
    TRY_AGAIN,
    MayPassError,
    OutputError,
    ReputError,
    StoreError,
    TransientError,
    output_error_of,
    remote_error,
    says_no_room,
    says_unanswered,
    who_refuses,
)
from reput.source.printable import printable
from reput.streaming.process.process_log import LOG_BYTES_MAX, ProcessLog

_LINE_LENGTH_MAX = 600
# The connections of a killed process close before the process is seen to have ended.
_JVM_ENDS_WITHIN_S = 0.5
_DEFECT = 70  # EX_SOFTWARE of sysexits.h
_TRACEBACK, _TRACEBACKS_KEPT = "reput-traceback-", 20
# Where an error has the name of its file, so that it gets one, however often it is asked what failure it is.
_FILE_OF_ERROR = "reput_traceback"

#: Errors of the system that may pass by themselves, or once somebody makes room.
_PASSING_ERRNOS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBUSY),
        *(errno.ETIMEDOUT, errno.ESTALE, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE),
    }
)
# What Spark says when one of its processes died, or was too slow on a busy machine.
_PASSING_WORDS = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "Python worker process terminated",
    "Failed to open socket to Python daemon",
    "Accept timed out",
    "Connection reset",
    "Connection refused",
    "Broken pipe",
    "java.io.EOFException",
    "OptionalDataException",
    "Address already in use",
    "BindException",
    "Could not bind on a random free port",
    "Cannot run program",
    # A cluster lost a worker or an executor, or the context was stopped from outside.
    "ExecutorLostFailure",
    "ExecutorDeadException",
    "Executor heartbeat timed out",
    "FetchFailed",
    "Master removed our application",
    "All masters are unresponsive",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
    "stopped SparkContext",
)
_OUT_OF_MEMORY = ("java.lang.OutOfMemoryError", "MemoryError", "OOM")
_PYTHON_TRACE = "Traceback (most recent call last)"
_PYTHON_ERROR = re.compile(r"^(?:[\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Warning|Interrupt)): ?(.*)$", re.MULTILINE)
_SYSTEM_ERROR = re.compile(r"\[Errno (\d+)\] ([^\n]*)")
_JAVA_CAUSE = re.compile(
    r"^\s*(?:Caused by: )?([a-z][\w.$]*\.[\w$]*(?:Error|Exception|Throwable)): ([^\n]+)", re.MULTILINE
)
# The line that pyspark adds to Java's message, even to an empty one.
_NO_JAVA_TRACE = "JVM stacktrace:"
_STREAM_FAILED = re.compile(r"terminated with exception: ([^\n]*)")


class DefectError(ReputError):
    """An unforeseen error: a defect of reput."""

    code = "defect"
    exit_code = _DEFECT


def failure_of(error: BaseException) -> ReputError:
    """The error of reput's tree for `error`, which is returned as it is if it is in the tree."""
    if isinstance(error, ReputError):
        return error
    text = text_of(error)
    if (remote := remote_error(text)) is not None:
        return remote
    if has_jvm_died(within_s=_JVM_ENDS_WITHIN_S) or isinstance(error, Py4JNetworkError):
        return jvm_death()
    if isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        return TransientError(
            "not enough memory",
            advice="less is needed with smaller maxBytesPerTrigger and maxBytesPerPartition, fewer cores "
            f"(sparkMaster=local[N]) or, in Spark's JVM, with more sparkDriverMemory ({first_line(error)})",
        )
    if isinstance(error, PermissionError) and (barred := _barred(error)) is not None:
        return barred
    if isinstance(error, OSError):
        return _of_the_system(error.errno or 0, _system_words(error), error.filename)
    if (system := _SYSTEM_ERROR.search(text)) is not None:
        return _of_the_system(int(system[1]), system[2])
    if is_passing(error):
        return TransientError(f"a process of Spark died or did not answer in time ({first_line(error)})")
    if isinstance(error, PySparkException | Py4JError) and _PYTHON_TRACE not in text:
        return ReputError(f"Spark failed: {first_line(error)}")
    return _defect(error)


def is_passing(error: BaseException) -> bool:
    """Whether the next attempt may succeed."""
    if isinstance(error, ReputError):
        return error.exit_code == TRY_AGAIN
    text = text_of(error)
    if remote_error(text) is not None:
        return False
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNOS:
        return True
    return (
        isinstance(error, Py4JNetworkError | MemoryError)
        or any(words in text for words in (*_PASSING_WORDS, *_OUT_OF_MEMORY))
        or says_no_room(text)
        or os.strerror(errno.EMFILE) in text
    )


def may_pass_in_a_run(error: BaseException) -> bool:
    """Whether a run that has had its log, its output and Spark waits for `error` to pass.

    That is what `is_passing` says, and whatever tells that one of these fails or is away. Whether it is the same log,
    output and table that come back is checked when they are opened again.
    """
    if is_passing(error):
        return True
    if isinstance(error, ReputError):
        # A StoreError of no further class says that the log cannot be read at all.
        return isinstance(error, MayPassError) or type(error) is StoreError
    text = text_of(error)
    if (remote := remote_error(text)) is not None:
        return may_pass_in_a_run(remote)
    if (system := _SYSTEM_ERROR.search(text)) is not None and not isinstance(error, OSError):
        error = OSError(int(system[1]), system[2])
    if isinstance(error, OSError):
        return issubclass(output_error_of(error), MayPassError | TransientError)
    return isinstance(error, PySparkException | Py4JError) and _PYTHON_TRACE not in text and says_unanswered(text)


def first_line(error: BaseException) -> str:
    """The innermost cause that the text of `error` names, on one line and without the traces around it."""
    text = text_of(error)
    for pattern in (_PYTHON_ERROR, _JAVA_CAUSE):
        found = [match for match in pattern.findall(text) if not match[0].endswith("Py4JException")]
        if found and (pattern is _JAVA_CAUSE or _PYTHON_TRACE in text):
            name, words = found[-1]
            return one_line(f"{name.rpartition('.')[2]}: {words}")
    if (stream := _STREAM_FAILED.search(text)) is not None:
        return one_line(stream[1])
    lines = [line for line in text.splitlines() if line.strip() and line != _NO_JAVA_TRACE]
    return one_line(lines[0]) if lines else type(error).__name__


def text_of(error: BaseException) -> str:
    """The text of `error`, also of pyspark's errors, which ask the JVM for it, if the JVM has ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  any error may come of asking a JVM that has ended
        return f"{getattr(error, '_desc', '')}\n\nJVM stacktrace:\n{getattr(error, '_stackTrace', '')}"


def one_line(text: str) -> str:
    """`text` without line ends and unprintable characters, shortened if it is very long."""
    # Blanks inside a line are the text's: two of them may be what is wrong in a value that is shown.
    line = printable(" ".join(part.strip() for part in text.splitlines() if part.strip()).replace("\t", " "))
    return line if len(line) <= _LINE_LENGTH_MAX else f"{line[:_LINE_LENGTH_MAX]} ..."


def jvm_death() -> TransientError:
    """The error for Spark's JVM, which has ended or does not answer."""
    jvm = last_jvm()
    fate = "does not answer" if jvm is None or jvm.is_alive else jvm.end_in_words
    return TransientError(f"Spark's Java process {fate}", advice="nothing is lost: start the same command again")


def _system_words(error: OSError) -> str:
    where = f": {error.filename}" if error.filename is not None else ""
    return f"{error.strerror or error}{where}"


def _barred(error: PermissionError) -> ReputError | None:
    """The error for a file that this user may not reach or read; None where that is not why the system refused."""
    if not isinstance(error.filename, str | bytes) or (found := who_refuses(os.fsdecode(error.filename))) is None:
        return None
    words, advice = found
    return ReputError(one_line(words), advice=one_line(advice), file=os.fsdecode(error.filename))


def _of_the_system(number: int, words: str, file: Any = None) -> ReputError:
    kind = TransientError if number in _PASSING_ERRNOS else OutputError if number == errno.EROFS else ReputError
    return kind(f"the system refused: {one_line(words)}", file=file)


def _remove_old_tracebacks() -> None:
    """Keep few files of this user: a service that is started again may meet the same defect every minute, for years."""
    found = []
    for path in Path(tempfile.gettempdir()).glob(f"{_TRACEBACK}*.txt"):
        with suppress(OSError):
            if (status := path.lstat()).st_uid == os.getuid():
                found.append((status.st_mtime, path))
    for _, path in sorted(found)[: -(_TRACEBACKS_KEPT - 1)]:
        with suppress(OSError):
            path.unlink()


def _defect(error: BaseException) -> DefectError:
    """Write the traceback to a file that the user can send; the error names the file."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].filename.rpartition('/')[2]}, line {frames[-1].lineno}" if frames else ""
    advice = None
    try:
        if (path := vars(error).get(_FILE_OF_ERROR)) is None:
            _remove_old_tracebacks()
            with tempfile.NamedTemporaryFile("w", prefix=_TRACEBACK, suffix=".txt", delete=False) as file:
                file.writelines(traceback.format_exception(type(error), error, error.__traceback__))
            path = vars(error)[_FILE_OF_ERROR] = file.name
        advice = f"please report it with {path}"
    except OSError:
        pass
    cause = f"this is a defect of reput: {type(error).__name__}{where}: {first_line(error)}"
    return DefectError(cause, advice=advice)


_CONNECTED_WITHIN_S = 300.0
_LOOKED_FOR_S = 0.02
# Spark's launcher puts it behind Spark's own jars, so that the archive of classes still fits.
_CLASS_PATH = "SPARK_DIST_CLASSPATH"
# Of the JVM that only makes up the command of the one that stays: with them it takes a third less time. UsePerfData
# would leave a file in /tmp when it is killed.
_LAUNCHER_OPTIONS = "-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# What a JVM says after its cause, whatever that is; and how a line begins that names one in the midst of others.
_SAYS_NOTHING = ("Error: Could not create the Java", "Error: A fatal exception has occurred", "WARNING: ", "... ")
_NAMED_CAUSE = re.compile(r"(?:Exception in thread \"[^\"]*\" |Caused by: )(?:[\w$]+\.)*(.*)")
# Signals that a shell ignores stay ignored in the program that replaces it, also in a JVM.
_LAUNCHER = "trap '' HUP INT TERM; exec \"$@\""


class Jvm:
    """A JVM that waits for Spark's first call; `settings` are those of ``spark-submit --conf``."""

    def __init__(
        self,
        settings: Mapping[str, str],
        directory: Path,
        log_file: Path | None,
        *,
        home: Path,
        class_path: Sequence[Path] = (),
        log_max_bytes: int = LOG_BYTES_MAX,
    ) -> None:
        """Start it in `directory`; what it and its Python processes print goes to `log_file`.

        None has it go to this process's terminal. A log of `log_max_bytes` is renamed, see ``process_log``.

        `home` is the JVM's ``SPARK_HOME``; `class_path` are jars behind Spark's own.
        """
        command = ["/bin/sh", "-c", _LAUNCHER, "sh", str(home / "bin" / "spark-submit")]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        #: Whether it was told to end, by `kill` or `end`.
        self.is_asked_to_end = False
        self._connection = directory / f"connection-{time.monotonic_ns()}"
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
            # Spark's Python processes load no code from the directory they run in and write no files elsewhere.
            "PYTHONSAFEPATH": "1",
            "TMPDIR": str(directory),
            "SPARK_LAUNCHER_OPTS": f"{_LAUNCHER_OPTIONS} {os.environ.get('SPARK_LAUNCHER_OPTS', '')}".strip(),
        }
        if class_path:
            own = os.environ.get(_CLASS_PATH)
            environment[_CLASS_PATH] = os.pathsep.join(filter(None, [own, *map(str, class_path)]))
        self._log = None if log_file is None else ProcessLog(log_file, log_max_bytes)
        output = None if self._log is None else self._log.write_end
        try:
            self._process = subprocess.Popen(  # noqa: S603  Spark's own script
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )
        finally:
            if self._log is not None:
                self._log.begun()
        _known[:] = [self]

    def connect(self) -> Any:
        """Wait until it answers, and return the py4j gateway to it.

        Raises
        ------
        TransientError
            It ended, or does not answer.
        """
        deadline = time.monotonic() + _CONNECTED_WITHIN_S
        while not self._connection.exists():
            if not self.is_alive:
                words = f"Spark's Java process {self.end_in_words} while it started"
                raise TransientError(": ".join(filter(None, [words, self._last_words()])))
            if time.monotonic() > deadline:
                raise TransientError(f"Spark's Java process did not answer within {_CONNECTED_WITHIN_S:.0f} s")
            time.sleep(_LOOKED_FOR_S)
        with self._connection.open("rb") as file:
            port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
        try:
            return connected(port, secret)
        finally:
            self._connection.unlink()

    def processes(self) -> dict[str, list[int]]:
        """The process ids that run now: its own as ``jvm``, and those of the Python processes that it began."""
        begun = []
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal() and int(entry.name) != self._process.pid:
                with suppress(OSError):  # it has just ended
                    if os.getpgid(int(entry.name)) == self._process.pid:
                        begun.append(int(entry.name))
        return {"jvm": [self._process.pid], "workers": begun} if self.is_alive else {}

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    @property
    def end_in_words(self) -> str:
        """How it ended, as the predicate of a sentence."""
        code = self._process.poll()
        if code is None:
            return "runs"
        if code >= 0:
            return f"ended with code {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"

    def _last_words(self) -> str | None:
        """The line of what it printed that says why it ended; None if nothing does, or it went to the terminal."""
        if self._log is None:
            return None
        self._log.finish()
        return cause_in(self._log.last_lines)

    def has_died(self, *, within_s: float = 0.0) -> bool:
        """Whether it has ended, or ends within that time, without having been asked to."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within_s)
        return not self.is_alive and not self.is_asked_to_end

    def kill(self) -> None:
        """End it and the processes it started at once; a signal handler may call this."""
        if self.is_alive:
            self.is_asked_to_end = True
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self, *, within_s: float = 0.0) -> None:
        """Give it `within_s` seconds to end by itself, then kill it; it has ended on return, and its log is written."""
        if self.is_alive:
            self.is_asked_to_end = True
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        if self._log is not None:
            self._log.finish()


def cause_in(lines: Sequence[str]) -> str | None:
    """The last of a JVM's lines that says something: no place in a trace, and no word that it ends."""
    said = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", "    at "))]
    causes = [line for line in said if not line.startswith(_SAYS_NOTHING)]
    named = [found[1] for line in causes if (found := _NAMED_CAUSE.match(line)) is not None]
    return next(reversed(named or causes), None)


def connected(port: int, secret: str) -> Any:
    """A py4j gateway to the JVM that listens at `port` of this machine."""
    known = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(known)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in known:
            del os.environ[name]


# The last one that was started.
_known: list[Jvm] = []


def last_jvm() -> Jvm | None:
    """The JVM of this process's Spark, even if it has ended; None if reput has not started one."""
    return _known[0] if _known else None


def has_jvm_died(*, within_s: float = 0.0) -> bool:
    """Whether Spark's JVM has ended by itself, or does so within that time."""
    jvm = last_jvm()
    return jvm is not None and jvm.has_died(within_s=within_s)


def kill_jvm() -> None:
    """End Spark's JVM at once, if there is one; a signal handler may call this."""
    for jvm in _known:
        jvm.kill()


def spark_home() -> Path:
    """Where Spark is, as an absolute path: ``SPARK_HOME``, else pyspark's own directory."""
    return Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]).absolute()
