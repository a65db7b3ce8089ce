"""The store's `abort`: who puts it there, what it says, who removes it.

A broker makes the file at its start and removes it at a clean stop (``DefaultMessageStore#start``, ``#shutdown``). One
that finds it at its start does not trust what it finds: it removes index files that are newer than its checkpoint and
dispatches again from the checkpoint on. Whether the file exists is all that a broker asks.

reput leaves a mark of its own in the same file while it changes an output, so that a broker that is started on what a
killed reput left is as careful. What the mark says tells reput that its own progress records know what is whole. A
5.x broker writes its process id over it. A 4.9.3 broker leaves the text of a file that is there already, but writes to
the store's `lock` at each start; so the mark names the time of the last write to `lock`, and is a broker's as soon as
that is another one.
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
    """Who left the `abort` of an output."""

    NOBODY = "nobody"
    BROKER = "a broker"
    REPUT = "reput"


def abort_left_by(output: Path) -> LeftBy:
    """Whose `abort` is in `output`; a copy of one whose `lock` has another time counts as a broker's."""
    try:
        text = (output / ABORT).read_bytes()
    except FileNotFoundError:
        return LeftBy.NOBODY
    mark = _MARK.fullmatch(text)
    return LeftBy.REPUT if mark is not None and int(mark[1]) == _lock_time(output) else LeftBy.BROKER


def mark_abort(files: DurableFiles) -> None:
    """Put reput's mark there, durably; whoever calls it holds the output's lock."""
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
