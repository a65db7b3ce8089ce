"""A file of a user's that is written beside another one and then takes its place."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def written_beside(path: Path) -> Iterator[BinaryIO]:
    """Write a file beside `path`, and then put it durably in its place; what an error leaves is removed.

    Raises
    ------
    OSError
        It cannot be made, written or made durable; `path` is as it was, unless only its directory cannot be synced.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o666 & ~_umask())
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _umask() -> int:
    before = os.umask(0o077)
    os.umask(before)
    return before
