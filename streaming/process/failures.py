"""Turn an error from any source into one line, and into an exit code.

Spark reports an error as the text of several stack traces. Only one line of it counts: an error of reput, of the system
or of Python that a task raised, or the last cause that Java names.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

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
from reput.streaming.process.jvm import has_jvm_died, last_jvm

_LINE_LENGTH_MAX = 600
#: The connections of a killed process close before the process has ended.
JVM_ENDS_WITHIN_S = 0.5
_DEFECT = 70  # EX_SOFTWARE of sysexits.h
_TRACEBACK, _TRACEBACKS_KEPT = "reput-traceback-", 20
# The attribute of an error with the name of its file, so that it gets only one file.
_FILE_OF_ERROR = "reput_traceback"

#: Errors of the system that may pass by themselves, or when there is room.
_PASSING_ERRNOS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EBUSY),
        *(errno.ETIMEDOUT, errno.ESTALE, errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE),
    }
)
# Words of Spark after one of its processes died, or was too slow on a busy machine.
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
    """Return the error of reput's tree for `error`; one that is in the tree is returned as it is."""
    if isinstance(error, ReputError):
        return error
    text = text_of(error)
    if (remote := remote_error(text)) is not None:
        return remote
    if has_jvm_died(within_s=JVM_ENDS_WITHIN_S) or isinstance(error, Py4JNetworkError):
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

    It waits for errors that `is_passing`, and for errors that show that one of these fails or cannot be reached. When
    they are opened again, checks find out whether they are still the same log, output and table.
    """
    if is_passing(error):
        return True
    if isinstance(error, ReputError):
        # A StoreError itself, not of a subclass, says that the log cannot be read at all.
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
    """Return the innermost cause in the text of `error`, on one line and without the traces around it."""
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
    """Return the text of `error`, even if it is pyspark's, which would come from a JVM that has ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  any error may come of asking a JVM that has ended
        return f"{getattr(error, '_desc', '')}\n\nJVM stacktrace:\n{getattr(error, '_stackTrace', '')}"


def one_line(text: str) -> str:
    """Return `text` without line ends and unprintable characters, shortened if it is very long."""
    # Keep blanks inside a line: two of them may be the mistake in a value that is shown.
    line = printable(" ".join(part.strip() for part in text.splitlines() if part.strip()).replace("\t", " "))
    return line if len(line) <= _LINE_LENGTH_MAX else f"{line[:_LINE_LENGTH_MAX]} ..."


def jvm_death() -> TransientError:
    """Return the error for Spark's JVM, which has ended or does not answer."""
    jvm = last_jvm()
    fate = "does not answer" if jvm is None or jvm.is_alive else jvm.end_in_words
    return TransientError(f"Spark's Java process {fate}", advice="nothing is lost: start the same command again")


def _system_words(error: OSError) -> str:
    where = f": {error.filename}" if error.filename is not None else ""
    return f"{error.strerror or error}{where}"


def _barred(error: PermissionError) -> ReputError | None:
    """Return the error for a file that this user may not reach or read; None if another reason was given."""
    if not isinstance(error.filename, str | bytes) or (found := who_refuses(os.fsdecode(error.filename))) is None:
        return None
    words, advice = found
    return ReputError(one_line(words), advice=one_line(advice), file=os.fsdecode(error.filename))


def _of_the_system(number: int, words: str, file: Any = None) -> ReputError:
    kind = TransientError if number in _PASSING_ERRNOS else OutputError if number == errno.EROFS else ReputError
    return kind(f"the system refused: {one_line(words)}", file=file)


def _remove_old_tracebacks() -> None:
    """Keep only a few files: a service that is started again may meet the same defect every minute, for years."""
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
