"""Turns among the reputs of one machine at what each of them does alone: a lock on a directory, without a file.

Within a process, which may keep several brokers, whoever came first is next: of many that ask for a lock again and
again some would never get it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.01


class _Line:
    """Those of this process that want one directory's lock, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[object] = deque()
        self._has_moved = threading.Condition()

    def enter(self, seconds: float) -> object | None:
        """Wait until all that came before have left; None if none of them leaves for `seconds`."""
        me = object()
        with self._has_moved:
            self._waiting.append(me)
            while self._waiting[0] is not me:
                if not self._has_moved.wait(seconds) and self._waiting[0] is not me:
                    self._waiting.remove(me)
                    return None
        return me

    def leave(self, me: object) -> None:
        """Let the next one in."""
        with self._has_moved:
            self._waiting.remove(me)
            self._has_moved.notify_all()


_lines: dict[tuple[int, int], _Line] = {}
_lines_lock = threading.Lock()


@contextmanager
def turn(directory: Path, seconds: float) -> Iterator[bool]:
    """Wait for the lock of a directory; gives whether it was got. It ends with its process.

    Another process is waited for at most `seconds`; others of this process as long as each is done in so many.

    Raises
    ------
    OSError
        The directory cannot be opened or locked.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        line = _line_of(descriptor)
        me = line.enter(seconds)
        if me is None:
            yield False
            return
        try:
            yield _is_locked(descriptor, time.monotonic() + seconds)
        finally:
            line.leave(me)
    finally:
        os.close(descriptor)


def _line_of(descriptor: int) -> _Line:
    status = os.fstat(descriptor)
    with _lines_lock:
        return _lines.setdefault((status.st_dev, status.st_ino), _Line())


def _is_locked(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        else:
            return True
