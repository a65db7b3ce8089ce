"""The files of a table that reput names, and which of them no version has any more."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reput.sinks.files.durable_file import DurableFiles

#: A file for each data file, with what tells which keys it has, is below this directory of the table.
KEYS_DIRECTORY = "_keys"
#: The end of such a file's name; what comes before it is the data file's name.
KEYS_SUFFIX = ".bloom"
# A writer that is at work puts a file in place at least this often.
WRITTEN_WITHIN_S = 3600

_DATA = r"(?:(?:part|merged)-\d{20}-\d{20}|part-rest)-[0-9a-f-]{36}\.zstd\.parquet"
#: The name of a data file that reput wrote.
OWN_DATA_FILE = re.compile(rf"(?P<data>{_DATA})")
# What `DurableFiles` calls a file before it has its own name.
_TEMPORARY = re.compile(rf"\.{_DATA}(?:\{KEYS_SUFFIX})?\.tmp")
_KEYS = re.compile(rf"(?P<data>{_DATA})\{KEYS_SUFFIX}")


@dataclass(frozen=True)
class FileOnDisk:
    """A file below a table's root; `parts` is its relative path, `modified_s` is in seconds since 1970."""

    parts: tuple[str, ...]
    size_bytes: int
    modified_s: float


def keys_file(path: str) -> tuple[str, ...]:
    """The relative path of the file with the keys of the data file `path`, in parts."""
    return KEYS_DIRECTORY, f"{PurePosixPath(path).name}{KEYS_SUFFIX}"


def remove_data_file(files: DurableFiles, path: str) -> None:
    """Remove a data file, named by its relative path, and the file with its keys; a missing one is passed over.

    Raises
    ------
    OutputError
        A file cannot be removed.
    """
    files.remove(*PurePosixPath(path).parts)
    files.remove(*keys_file(path))


def stored(root: Path, *parts: str) -> FileOnDisk | None:
    """The file as it is on the disk now; None if it is missing."""
    with suppress(FileNotFoundError):
        status = root.joinpath(*parts).stat()
        return FileOnDisk(parts, status.st_size, status.st_mtime)
    return None


def orphans(root: Path, needed: Collection[str]) -> list[FileOnDisk]:
    """Files with names of reput that nobody will ask for: `needed` lacks them, and no writer will commit them.

    A writer that is at work may have files that it has not committed yet: `tail` for seconds, ``rebuild --only table``
    for hours, in which it writes one after the other. So files are left that follow each other within
    `WRITTEN_WITHIN_S`, if the last of them is no older than that.
    """
    found = sorted(_unneeded(root, needed), key=lambda file: file.modified_s, reverse=True)
    newer = time.time()
    for number, file in enumerate(found):
        if newer - file.modified_s >= WRITTEN_WITHIN_S:
            return found[number:]
        newer = min(newer, file.modified_s)
    return []


def _unneeded(root: Path, needed: Collection[str]) -> Iterator[FileOnDisk]:
    for directory, pattern in (((), OWN_DATA_FILE), ((KEYS_DIRECTORY,), _KEYS)):
        with suppress(FileNotFoundError), os.scandir(root.joinpath(*directory)) as entries:
            for entry in entries:
                match = pattern.fullmatch(entry.name)
                if (match and match["data"] not in needed) or _TEMPORARY.fullmatch(entry.name):
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        yield FileOnDisk((*directory, entry.name), status.st_size, status.st_mtime)
