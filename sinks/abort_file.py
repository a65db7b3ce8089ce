"""The store's `abort`: who writes it, what it says, who removes it.

A broker creates the file when it starts and removes it at a clean stop (``DefaultMessageStore#start``, ``#shutdown``).
A broker that finds the file at its start does not trust the store: it removes index files newer than its checkpoint and
dispatches again from the checkpoint on. A broker checks only whether the file exists.

While reput changes an output it keeps a mark of its own in this file, so that a broker that starts on the files of a
killed reput is just as careful. The mark tells reput that its own progress records know what is complete. A 5.x broker
overwrites it with its process id. A 4.9.3 broker leaves the text of an existing file, but writes to the store's `lock`
at each start. So the mark holds the time of the last write to `lock`; once `lock` has another time, the file is a
broker's.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import ABORT, LOCK

_MARK = re.compile(rb"reput [0-9]+, lock ([0-9]+)\n")


class LeftBy(Enum):
    """The program that left the `abort` of an output."""

    NOBODY = "nobody"
    BROKER = "a broker"
    REPUT = "reput"


def abort_left_by(output: Path) -> LeftBy:
    """The owner of the `abort` in `output`; reput's mark counts as a broker's if `lock` has another time (a copy)."""
    try:
        text = (output / ABORT).read_bytes()
    except FileNotFoundError:
        return LeftBy.NOBODY
    mark = _MARK.fullmatch(text)
    return LeftBy.REPUT if mark is not None and int(mark[1]) == _lock_time(output) else LeftBy.BROKER


def mark_abort(files: DurableFiles) -> None:
    """Write reput's mark, durably; the caller holds the output's lock."""
    files.replace(ABORT, data=b"reput %d, lock %d\n" % (os.getpid(), _lock_time(files.root)))


def clear_abort(files: DurableFiles) -> None:
    """Remove the file, durably."""
    files.remove(ABORT)
    files.sync()


def _lock_time(output: Path) -> int:
    """The time of the last write to the store's lock, in nanoseconds; 0 without one."""
    try:
        return (output / LOCK).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
