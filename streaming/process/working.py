"""A line on a terminal that says how long a command has been at work, and how much of it is done.

Another process writes the line: a thread would keep this process from being forked (``process_tasks``), and a signal
would interrupt libraries.
"""

from __future__ import annotations

import os
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path

from reput.source.system import end_with_parent
from reput.streaming.process.standard_streams import STANDARD_ERROR, STANDARD_OUTPUT

_CLEAR = b"\r\x1b[K"
_WITHOUT_CURSOR = ("dumb", "unknown")
_THREADS = Path("/proc/self/task")
_MB = 1_000_000
# The width of a terminal that does not say its own.
_COLUMNS = 80
# How many parts of the work are done, and how many there are.
_PARTS = struct.Struct("QQ")
_shared: list[mmap] = []


def has_cursor() -> bool:
    """Return whether standard error is a terminal on which a line can be replaced."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") not in _WITHOUT_CURSOR


@contextmanager
def working(words: str, *, every_s: float = 1.0) -> Iterator[None]:
    """Show `words` and the seconds so far during a ``with`` block, from the first second on.

    Nothing is shown where standard error is not a terminal, or where a line could not be shown safely.
    """
    if not has_cursor() or len(list(_THREADS.iterdir())) > 1:
        yield
        return
    shared = mmap(-1, _PARTS.size)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        try:
            _write_lines(words, shared, parent, every_s)
        finally:
            os._exit(0)
    _shared.append(shared)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        clear()
        _shared.remove(shared)


def clear() -> None:
    """Remove the line, if there is one, so that another can be written; the next second shows it again."""
    if _shared:
        with suppress(OSError):
            os.write(STANDARD_ERROR, _CLEAR)


def expect(parts: int) -> bool:
    """Note that the work has some more parts; return whether the line is shown, so that ``done`` has an effect."""
    for shared in _shared:
        done, total = _PARTS.unpack_from(shared)
        _PARTS.pack_into(shared, 0, done, total + parts)
    return bool(_shared)


def done() -> None:
    """Note that a part of the work is done."""
    for shared in _shared:
        parts, total = _PARTS.unpack_from(shared)
        _PARTS.pack_into(shared, 0, parts + 1, total)


def _write_lines(words: str, shared: mmap, parent: int, every_s: float) -> None:
    """Write the line now and then, until the parent ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()
    began = time.monotonic()
    while os.getppid() == parent:
        time.sleep(every_s)
        parts, total = _PARTS.unpack_from(shared)
        facts = [f"{parts} of {total} parts"] if total else []
        written = os.fstat(STANDARD_OUTPUT)
        if stat.S_ISREG(written.st_mode) and written.st_size:
            facts.append(f"{written.st_size / _MB:.1f} MB written")
        facts.append(f"{time.monotonic() - began:.0f} s")
        line = f"{words}  {', '.join(facts)}"[: (os.get_terminal_size(STANDARD_ERROR).columns or _COLUMNS) - 1]
        os.write(STANDARD_ERROR, b"\r" + line.encode(errors="backslashreplace") + b"\x1b[K")
