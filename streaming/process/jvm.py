"""Spark's Java process: started out of reach of signals to this process group, watched, and ended.

Ctrl-C and service managers send a signal to the whole group. It would end the JVM and its Python workers while the
driver is about to stop between two micro-batches. So the JVM has a session of its own and ignores SIGHUP, SIGINT and
SIGTERM. It ends when the driver ends it, or when the driver dies: its standard input is then closed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from reput.source.errors import TransientError
from reput.streaming.process.process_log import LOG_BYTES_MAX, ProcessLog

_CONNECTED_WITHIN_S = 300.0
_LOOKED_FOR_S = 0.02
# Spark's launcher puts it after Spark's own jars, so that the archive of classes still fits.
_CLASS_PATH = "SPARK_DIST_CLASSPATH"
# Options of the short JVM that only composes the command of the real one: they save it a third of its time. UsePerfData
# would leave a file in /tmp when it is killed.
_LAUNCHER_OPTIONS = "-XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
# Lines of a JVM that follow any cause; and how a line begins that names one in the midst of others.
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
        """Start it in `directory`; its output, and that of its Python processes, goes to `log_file`.

        Without a `log_file` it goes to this process's terminal. A log of `log_max_bytes` is renamed, see
        ``process_log``.

        `home` is the JVM's ``SPARK_HOME``; `class_path` are jars after Spark's own.
        """
        command = ["/bin/sh", "-c", _LAUNCHER, "sh", str(home / "bin" / "spark-submit")]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        #: Whether `kill` or `end` ended it.
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
        """The process ids that run now: its own as ``jvm``, and those of the Python processes that it started."""
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
        """The way it ended, as the predicate of a sentence."""
        code = self._process.poll()
        if code is None:
            return "runs"
        if code >= 0:
            return f"ended with code {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"

    def _last_words(self) -> str | None:
        """Return the line in its output that says why it ended; None without one, or without a log."""
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
        """Give it `within_s` seconds to end by itself, then kill it; on return it has ended, and its log is written."""
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
    """Return the last of a JVM's lines that names a cause: neither a place in a trace, nor a word about its end."""
    said = [line.strip() for line in lines if line.strip() and not line.startswith(("\t", "    at "))]
    causes = [line for line in said if not line.startswith(_SAYS_NOTHING)]
    named = [found[1] for line in causes if (found := _NAMED_CAUSE.match(line)) is not None]
    return next(reversed(named or causes), None)


def connected(port: int, secret: str) -> Any:
    """Return a py4j gateway to the JVM that listens at `port` of this machine."""
    known = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(known)
    try:
        return launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in known:
            del os.environ[name]


# The last JVM that was started.
_known: list[Jvm] = []


def last_jvm() -> Jvm | None:
    """Return the JVM of this process's Spark, even if it has ended; None if reput has not started one."""
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
    """Return Spark's directory as an absolute path: ``SPARK_HOME``, or pyspark's own directory."""
    return Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]).absolute()
