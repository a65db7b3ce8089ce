"""Files that are written once, whole: those that a user names, and a task's messages to the driver."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from reput.sinks.files.file_system import sync_directory
from reput.sinks.files.refusal import refused


@contextmanager
def written_beside(path: Path) -> Iterator[BinaryIO]:
    """Write a file beside `path`, then put it durably in its place; what an error leaves is removed; raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(str(path.parent))


def write_scratch(directory: Path, *parts: bytes | memoryview) -> Path:
    """Write a new file under a unique name, not durably: a task's message to the driver."""
    try:
        descriptor, path = tempfile.mkstemp(dir=directory, suffix=".scratch")
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[file.write(view) :]
    except OSError as error:
        raise refused("write a scratch file in", directory, error) from error
    return Path(path)


def remove_scratch(paths: Iterable[Path]) -> None:
    """Remove scratch files that nobody will ask for; the next run removes those that cannot be removed now."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
