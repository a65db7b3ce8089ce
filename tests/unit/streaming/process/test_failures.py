"""Whatever a command raises is one line and the exit code that tells a supervisor what to do."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException
from support.command_line import run_reput
from support.spark_text import spark_text

from reput.source.errors import (
    CommitLogRewoundError,
    CorruptRecordError,
    DataLossError,
    OptionError,
    OutputAwayError,
    OutputError,
    OutputFailingError,
    OutputFullError,
    RowsLostError,
    SegmentError,
    SinkError,
    StoreError,
    StoreLockedError,
    TransientError,
)
from reput.streaming.cli.app import run_or_fail
from reput.streaming.process.failures import failure_of, first_line, is_passing, may_pass_in_a_run

IN_A_TASK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted SQLSTATE: XXKST
org.apache.spark.SparkException: Job aborted due to stage failure
py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "x.py", line 1, in task
{error}

\tat org.apache.spark.Task.run(Task.scala:1)
Caused by: py4j.Py4JException: An exception was raised by the Python Proxy
"""
IN_JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: {error}
=== Streaming Query ===
org.apache.spark.SparkException: {error}
\tat org.apache.spark.Task.run(Task.scala:1)
Caused by: java.net.SocketTimeoutException: Accept timed out
\t... 40 more
"""


def remote(error: str, text: str = IN_A_TASK) -> Exception:
    return StreamingQueryException(text.format(error=error))


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OptionError("x=1: no"), 2, "x=1: no"),
        (OutputError("cannot write"), 1, "cannot write"),
        (TransientError("it died"), 75, "it died"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x"), 75, "No space left on device: /data/x"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/data/x"), 75, "quota exceeded: /data/x"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/data/x"), 75, "Too many open files: /data/x"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/data/x"), 1, "Read-only file system: /data/x"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/data/x"), 1, "Permission denied: /data/x"),
        (OSError(errno.EIO, os.strerror(errno.EIO), "/data/x"), 1, "Input/output error: /data/x"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/x"),
            1,
            "No such file or directory: /data/x",
        ),
        (MemoryError(), 75, "not enough memory"),
        (Py4JNetworkError("Answer from Java side is empty"), 75, "start the same command again"),
        (RecursionError("too deep"), 70, "a defect of reput: RecursionError"),
        (KeyError("k"), 70, "a defect of reput: KeyError"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), 70, "a defect of reput: UnicodeDecodeError"),
        (remote(spark_text(DataLossError("gone at 5"))), 1, "gone at 5"),
        (remote(spark_text(OptionError("y=2: no"))), 2, "y=2: no"),
        (remote(spark_text(TransientError("full"))), 75, "full"),
        (OptionError("messageDelayLevel=1s  5s: no"), 2, "messageDelayLevel=1s  5s: no"),
        (remote("OSError: [Errno 28] No space left on device: '/o/f'"), 75, "No space left on device: '/o/f'"),
        (remote("PermissionError: [Errno 13] Permission denied: '/o/f'"), 1, "Permission denied: '/o/f'"),
        (remote("MemoryError: Unable to allocate"), 75, "Unable to allocate"),
        (remote("ZeroDivisionError: division by zero"), 70, "division by zero"),
        (remote("Python worker failed to connect back.", IN_JAVA), 75, "did not answer in time"),
        (remote("No space left on device", IN_JAVA), 75, "did not answer"),
        (PySparkException("\n\nJVM stacktrace:\n"), 1, "Spark failed: PySparkException"),
    ],
)
def test_one_line_and_a_code(
    error: Exception, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Also where Spark put hundreds of lines around it; the traceback of a defect is kept in a file that is named."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def act() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        run_or_fail(act)
    said = capsys.readouterr().err
    assert (ended.value.exit_code, said.count("\n"), said[:7]) == (code, 1, "reput: ")
    assert words in said
    assert len(said) < 1000
    kept = list(tmp_path.iterdir())
    assert len(kept) == (code == 70)
    assert all(str(path) in said and type(error).__name__ in path.read_text() for path in kept)
    if code == 70:
        assert str(failure_of(error).advice).startswith(f"please report it with {tmp_path}/reput-traceback-")


def test_tracebacks_of_defects_stay_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file for an error that is asked twice, and the last twenty of all; files of others stay."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "reput-other.txt").write_text("")
    names = []
    for number in range(50):
        error = ZeroDivisionError(f"defect {number}")
        names.append(str(failure_of(error).advice).rpartition("/")[2])
        assert str(failure_of(error).advice).endswith(names[-1])
        os.utime(tmp_path / names[-1], (number, number))
    assert {path.name for path in tmp_path.iterdir()} == {*names[-20:], "reput-other.txt"}


def test_an_error_of_a_jvm_that_is_gone() -> None:
    """Pyspark asks the JVM how to show an error; without a JVM, the text in the error itself is shown."""

    class Broken(CapturedException):
        def __init__(self) -> None:
            self._desc, self._stackTrace = "[STREAM_FAILED] terminated with exception: full", "\tat a.B"

        def __str__(self) -> str:
            raise AssertionError  # what it does without a JVM

    error = Broken()
    assert str(failure_of(error)) == "Spark failed: full"


def test_an_error_of_a_process_of_spark_keeps_its_class_and_fields() -> None:
    """So that handlers are right, and a program reads the place and the advice."""
    error = DataLossError("gone", advice="set x", file="/log/0", physical_offset=7)
    failure = failure_of(remote(spark_text(error)))
    assert isinstance(failure, DataLossError)
    assert vars(failure) == vars(error)
    assert isinstance(failure_of(StoreLockedError("held")), StoreLockedError)


def test_what_is_tried_again() -> None:
    """A process of Spark that was too slow, and never an error of reput or of Python."""
    assert is_passing(remote("Python worker failed to connect back.", IN_JAVA))
    assert is_passing(TransientError("x"))
    for error in (spark_text(DataLossError("gone")), "ZeroDivisionError: division by zero"):
        assert not is_passing(remote(error))
    assert first_line(remote("ZeroDivisionError: division by zero")) == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (TransientError("a worker died"), True),
        (OutputFullError("full", file="/o"), True),
        (OutputFailingError("EIO", file="/o"), True),
        (OutputAwayError("away", file="/o"), True),
        (StoreError("no commitlog at /log"), True),
        (OSError(errno.EIO, os.strerror(errno.EIO), "/data/x"), True),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x"), True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/data/x"), True),
        (OSError(errno.ENFILE, os.strerror(errno.ENFILE), "/data/x"), True),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/data/x"), True),
        (ConnectionError("http://s3 does not answer"), True),
        (Py4JNetworkError("Answer from Java side is empty"), True),
        (MemoryError(), True),
        (remote(spark_text(StoreError("no commitlog at /log"))), True),
        (remote(spark_text(OutputFailingError("EIO", file="/o"))), True),
        (remote("OSError: [Errno 5] Input/output error: '/o/f'"), True),
        (remote("FileNotFoundError: [Errno 2] No such file or directory: '/o/f'"), True),
        (remote("java.io.IOException: Input/output error", IN_JAVA.partition("Caused by")[0]), True),
        (remote("Unable to execute HTTP request: Connection refused", IN_JAVA), True),
        (remote("ExecutorLostFailure (executor 1 exited)", IN_JAVA), True),
        (OptionError("x=1: no"), False),
        (OutputError("cannot write: Permission denied"), False),
        (StoreLockedError("held"), False),
        (RowsLostError("rows are gone", file="/t"), False),
        (SinkError("contradiction"), False),
        (SegmentError("a hole"), False),
        (DataLossError("expired"), False),
        (CorruptRecordError("bad"), False),
        (CommitLogRewoundError("another store"), False),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/data/x"), False),
        (OSError(errno.EACCES, os.strerror(errno.EACCES), "/data/x"), False),
        (KeyError("k"), False),
        (ValueError("Input/output error"), False),
        (remote(spark_text(DataLossError("gone"))), False),
        (remote("PermissionError: [Errno 13] Permission denied: '/o/f'"), False),
        (remote("ZeroDivisionError: division by zero"), False),
        (remote("java.lang.IllegalStateException: x", IN_JAVA.partition("Caused by")[0]), False),
    ],
)
def test_what_a_run_waits_for(error: Exception, waits: bool) -> None:
    """Things that existed before and then fail; never a decision of an operator, and never a defect."""
    assert may_pass_in_a_run(error) == waits
    if waits:  # no traceback is written for it
        assert failure_of(error).code != "defect"


def test_text_of_strangers_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences and line ends in a message do not reach the terminal."""

    def act() -> None:
        msg = "topic \x1b]52;c;x\x07 and\na second line \u202e"
        raise OutputError(msg)

    with pytest.raises(typer.Exit):
        run_or_fail(act)
    said = capsys.readouterr().err
    assert said == "reput: topic \\x1b]52;c;x\\x07 and a second line \\u202e\n"


def test_a_defect_anywhere_in_a_command_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in what a command does before it begins its work."""

    def broken(*_: object) -> None:
        raise LookupError("nobody thought of it")

    monkeypatch.setattr("reput.streaming.cli.prove.set_up_logging", broken)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run_reput(["verify", "--store", str(tmp_path)], code=70)
    assert "nobody thought of it; please report it with" in result.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    """One line, and the code of a shell; from the first moment on, and the second signal changes nothing."""
    code = (
        "import os, signal, sys, time\n"
        f"signal.signal({int(number)}, signal.SIG_DFL)\n"  # the shell that runs the tests may have it ignored
        # While Python ends, and has no handlers any more.
        "class Late:\n"
        f"    def __del__(self, kill=os.kill, pid=os.getpid()): kill(pid, {int(number)})\n"
        "late = Late()\n"
        "from reput.streaming.cli import main as cli\n"
        "from reput.streaming.cli.app import run_or_fail\n"
        "def act():\n"
        f"    try: os.kill(os.getpid(), {int(number)}); time.sleep(60)\n"
        f"    finally: os.kill(os.getpid(), {int(number)}); time.sleep(0.1); print('tidied', flush=True); 1 / 0\n"
        "cli._application = lambda command: lambda: run_or_fail(act)\n"
        "cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "query"], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "tidied\n", "reput: stopped\n")


def test_a_closed_standard_output_is_no_error(tmp_path: Path) -> None:
    """As with `| head -1`: who reads has enough, and the command ends without a word."""
    code = (
        "import typer\nfrom reput.streaming.cli.app import run_or_fail\n"
        "def many():\n"
        "    for number in range(100_000): print('line', number)\n"
        "try: run_or_fail(many)\n"
        "except typer.Exit as ended: raise SystemExit(ended.exit_code)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert (command.wait(60), command.stderr.read()) == (0, "")
