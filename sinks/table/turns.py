"""Turns among the reputs of one machine at what each of them does alone: a lock on a directory, without a file."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.01


@contextmanager
def turn(directory: Path, seconds: float) -> Iterator[bool]:
    """Wait for the lock of a directory for at most `seconds`; gives whether it was got. It ends with its process.

    Raises
    ------
    OSError
        The directory cannot be opened or locked.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _is_locked(descriptor, time.monotonic() + seconds)
    finally:
        os.close(descriptor)


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
