"""One Java process in a group of its own, which cannot outlive the harness; and the ports it listens on."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from broker.artifacts import HarnessError
from broker.class_archive import ClassArchive

LOOPBACK = "127.0.0.1"
POLL_S = 0.05
TAIL_BYTES = 6000

# netty and the broker's memory mapping reach into these by reflection; Java 16 and later close them.
ADD_OPENS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in (
        "java.lang",
        "java.nio",
        "java.util",
        "sun.nio.ch",
        "jdk.internal.misc",
        "jdk.internal.ref",
    )
)


class JavaProcess:
    """A running Java main class; stdout and stderr go to files, stdin is the rope that holds it.

    The class runs under ``Guard``, which halts the JVM when this end of its stdin closes: with :meth:`end`,
    at the exit of Python, or when Python is killed.

    Parameters
    ----------
    command
        Options of the JVM, class path included, without main class.
    main_class
        The class and its arguments.
    directory
        Where the process runs; ``stdout`` and ``stderr`` are appended there.
    environment
        Variables set beside those of this process.
    archive
        Of the main class, if the JVM is to use one.
    """

    def __init__(
        self,
        command: Sequence[str],
        main_class: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        archive: ClassArchive | None = None,
    ) -> None:
        self._archive = archive
        options = archive.options() if archive is not None else []
        self.stdout = directory / "stdout"
        self.stderr = directory / "stderr"
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self._popen = subprocess.Popen(
                # RocksDB and netty leave libraries and keys in the directory for temporary files when they are killed.
                ["java", *ADD_OPENS, f"-Djava.io.tmpdir={directory}", *options, *command, "Guard", *main_class],
                cwd=directory,
                env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        atexit.register(self.end)

    @property
    def pid(self) -> int:
        """The process id, also the id of its group."""
        return self._popen.pid

    @property
    def writes_archive(self) -> bool:
        """Whether it leaves an archive of its classes if it ends by itself."""
        return self._archive is not None and self._archive.is_written

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def terminate(self) -> None:
        """Send SIGTERM: a JVM runs its shutdown hooks."""
        self._popen.terminate()

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code, or None when it still runs after ``timeout_s``."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self) -> None:
        """Kill the whole group with SIGKILL, reap it and close the pipe; harmless when repeated."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        elif self._archive is not None:
            self._archive.keep()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        atexit.unregister(self.end)


def wait_until(ready: Callable[[], bool], process: JavaProcess, timeout_s: float, what: str) -> None:
    """Return once ``ready()`` is true.

    Raises
    ------
    HarnessError
        The process ended first, or the time was over.
    """
    deadline = time.monotonic() + timeout_s
    while not ready():
        code = process.exit_code()
        if code is not None:
            raise HarnessError(f"{what}: the process ended with {code}")
        if time.monotonic() > deadline:
            raise HarnessError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)


def port_open(port: int) -> bool:
    """Say whether something accepts connections on this loopback port."""
    with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
        return True
    return False


def free_port(beside: Sequence[int] = ()) -> int:
    """Return a port that is free now, as are those at the distances ``beside``.

    Below 32768, so that no outgoing connection takes it before its server does.
    """
    for _ in range(1000):
        port = random.randint(12_000, 32_000)
        if all(_can_bind(port + distance) for distance in (0, *beside)):
            return port
    raise HarnessError("no free ports between 12000 and 32000")


def _can_bind(port: int) -> bool:
    # Without SO_REUSEADDR, a port in TIME_WAIT counts as taken. RocketMQ listens on every address.
    for address in (LOOPBACK, "0.0.0.0"):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def tail(*files: Path) -> str:
    """Return the end of each file that exists and is not empty, under its name."""
    parts = []
    for file in files:
        if file.exists() and file.stat().st_size > 0:
            text = file.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
            parts.append(f"--- end of {file.name}\n{text}")
    return "\n".join(parts) or "(nothing was logged)"
