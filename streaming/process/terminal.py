"""Standard output and its siblings, and the lines that a terminal shows while a command is at work.

The line of `working` says how long a command has been at work, and how much of it is done. Another process writes it: a
thread would keep this process from being forked (``tasks``), and a signal would interrupt libraries. The line of
`first_words` fills the second or more that a command takes to load its modules, so this module imports only fast ones.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from typing import TextIO

from reput.source.system import end_with_parent

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def open_closed_streams() -> None:
    """Open standard streams that the caller closed: otherwise the next file gets their number, and their output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(STANDARD_OUTPUT, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(STANDARD_ERROR, "w", closefd=False)  # noqa: SIM115


def terminal_width(out: TextIO) -> int | None:
    """Return how many columns the terminal has that `out` writes to; None if it is not a terminal."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def drop_output() -> None:
    """Drop the output that Python still holds for a standard output that failed; it would fail again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_CLEAR = b"\r\x1b[K"
_WITHOUT_CURSOR = ("dumb", "unknown")
_THREADS = Path("/proc/self/task")
_MB = 1_000_000
# The width of a terminal whose width is unknown.
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

    Nothing is shown if standard error is not a terminal, or if a line could not be shown safely.
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


@contextmanager
def first_words(words: str) -> Iterator[None]:
    """Show a line during a ``with`` block; show nothing if standard error is not a terminal."""
    is_shown = has_cursor()
    try:
        _write_at_once(words[: shutil.get_terminal_size().columns - 1] if is_shown else "")
        yield
    finally:
        _write_at_once("\r\x1b[K" if is_shown else "")


def _write_at_once(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
