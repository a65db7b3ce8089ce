"""The output of processes, kept in files of bounded size however long the processes run; and the names in log lines.

The JVM hands its standard error on to the daemon of Python workers, which hands it on to its workers. If they wrote to
a file themselves, it could only be renamed, which they do not notice, or emptied, which loses the lines in between. So
they all write into a pipe. A thread of the driver puts the lines into a file, which it replaces between two lines.

* If the driver dies, the pipe has no reader: a write then fails at once, which Java and Python do not report, and the
  JVM ends because its standard input is closed.
* If the disk is full or gone, lines that do not fit are dropped and counted, and the run continues.
* A full pipe would block the JVM. The thread that empties it waits only for the disk.

`Allowance` limits lines that repeat. Lines of the log and Spark's jobs name the broker and the query for which a thread
works (`at_work_for`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from reput.source.printable import printable

_log = logging.getLogger("reput")
#: A file's size unless the caller says otherwise.
LOG_BYTES_MAX: Final = 10 * 1024 * 1024
#: How many older files there are beside the one that is written.
OLDER_FILES: Final = 3
# A longer line goes into the file piece by piece.
_LINE_MAX = 64 * 1024
_READ_AT_ONCE = 64 * 1024
# This many of the last bytes are kept, to say why a process ended.
_LAST_BYTES = 16 * 1024
# Processes can write this much while the driver is busy; without privileges a pipe cannot be larger.
_PIPE_BYTES = 1024 * 1024
# A Python worker may hold its end a moment longer than the JVM that started it.
_READ_OUT_WITHIN_S = 1.0


class RotatingLog:
    """A file of whole lines with at most `max_bytes`; earlier lines are in `NAME.1` to `NAME.3`, the newest in `.1`.

    Nothing is synced. If the system refuses a write, that is reported once and is not an error.
    """

    def __init__(self, path: Path, max_bytes: int = LOG_BYTES_MAX) -> None:
        """Keep the present content of the file."""
        self._path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._lost_bytes = 0
        self._lost_because = ""
        self._is_told = False

    def write(self, lines: bytes) -> None:
        """Append `lines`; a line begins in the file in which it ends, unless it is longer than a file."""
        try:
            if self._lost_bytes:
                self._append(f"\nreput: {self._lost_bytes} bytes are missing here: {self._lost_because}\n".encode())
                self._lost_bytes = 0
            while lines:
                lines = lines[self._append(lines) :]
        except OSError as error:
            self._lost_bytes += len(lines)
            self._lost_because = error.strerror or "the system gave no reason"
            if not self._is_told:
                self._is_told = True
                _log.warning("cannot write %s: %s; until it can, what Spark prints is lost", self._path, error.strerror)
            self.close()

    def close(self) -> None:
        """Close the file; the next `write` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _append(self, lines: bytes) -> int:
        """Append as many lines as the file has room for, at least one in a new file; return their bytes."""
        descriptor, size = self._opened()
        room = max(0, self._max_bytes - size)
        end = len(lines)
        if end > room:
            end = lines.rfind(b"\n", 0, room) + 1
            if not end and size:
                self._rotate()
                return 0
            end = end or room
        view = memoryview(lines)[:end]
        while view:
            view = view[os.write(descriptor, view) :]
        return end

    def _opened(self) -> tuple[int, int]:
        """Return the file's descriptor and size; a file that was removed or renamed by others is made again."""
        if self._descriptor is not None:
            status = os.fstat(self._descriptor)
            with suppress(FileNotFoundError):
                there = os.stat(self._path)
                if (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino):
                    return self._descriptor, status.st_size
            self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o644)
        return self._descriptor, os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        self.close()
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, OLDER_FILES + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with suppress(FileNotFoundError):
                os.replace(newer, older)


class ProcessLog:
    """A pipe for processes to write to, whose other end a thread empties into a `RotatingLog`.

    Call `begun` after the processes have started.
    """

    def __init__(self, path: Path, max_bytes: int = LOG_BYTES_MAX) -> None:
        self._log = RotatingLog(path, max_bytes)
        self._last = b""
        #: `write_end` is the descriptor for the processes' standard output and error.
        self._read_end, self.write_end = os.pipe()
        with suppress(OSError):
            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._thread = threading.Thread(target=self._copy, name="process-log", daemon=True)
        self._thread.start()

    def begun(self) -> None:
        """Close this process's own end, so that the pipe ends with the last process that has it."""
        os.close(self.write_end)

    def finish(self) -> None:
        """Wait until everything that was written before the processes ended is in the file."""
        self._thread.join(_READ_OUT_WITHIN_S)

    @property
    def last_lines(self) -> list[str]:
        """The last lines that the processes have written, of those that were read so far."""
        return self._last.decode(errors="replace").splitlines()

    def _copy(self) -> None:
        for lines in _whole_lines(self._read_end):
            safe = _harmless(lines)
            self._last = (self._last + safe)[-_LAST_BYTES:]
            self._log.write(safe)
        self._log.close()
        os.close(self._read_end)


def _harmless(lines: bytes) -> bytes:
    """Escape everything that is unsafe in a terminal: Spark's messages contain names from producers."""
    return "\n".join(map(_printable_line, lines.decode(errors="backslashreplace").split("\n"))).encode()


def _printable_line(line: str) -> str:
    return "\t".join(map(printable, line.removesuffix("\r").split("\t")))


def _whole_lines(descriptor: int) -> Iterator[bytes]:
    """Yield the bytes from a pipe, whole lines each time; the rest at the pipe's end comes last."""
    rest = b""
    while read := os.read(descriptor, _READ_AT_ONCE):
        rest += read
        end = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) > _LINE_MAX else 0)
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


class Allowance:
    """Allows a burst of `burst`, and after it one for every `renewed_after_s` seconds."""

    def __init__(self, burst: int, renewed_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic, in seconds."""
        self._burst = float(burst)
        self._renewed_after_s = renewed_after_s
        self._clock = clock
        self._left, self._asked_at = self._burst, clock()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._asked_at) / self._renewed_after_s)
        self._asked_at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


_broker: ContextVar[str | None] = ContextVar("broker", default=None)
_query: ContextVar[str | None] = ContextVar("query", default=None)


def broker_of_thread() -> str | None:
    """Return the name of the broker for which this thread works; None if the process has only one."""
    return _broker.get()


def query_of_thread() -> str | None:
    """Return the name of the query for which this thread works now; None for other work."""
    return _query.get()


def work_for(broker: str | None) -> None:
    """Have this thread work for `broker` from now on.

    A thread that it starts has no broker, unless it runs in a copy of this one's context.
    """
    _broker.set(broker)


@contextmanager
def at_work_for(broker: str | None, query: str) -> Iterator[None]:
    """Have this thread work for a query of `broker` within the block, and for its earlier purpose afterwards."""
    before = _broker.set(broker), _query.set(query)
    try:
        yield
    finally:
        _broker.reset(before[0])
        _query.reset(before[1])
