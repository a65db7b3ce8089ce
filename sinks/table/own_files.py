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

# Below it is the key filter of each data file, under the data file's path with an ending.
_KEYS_DIRECTORY, _KEYS_SUFFIX = "_keys", ".bloom"
# A writer that is at work puts a file in place at least this often.
WRITTEN_WITHIN_S = 3600

_DATA = r"(?:(?:part|merged)-\d{20}-\d{20}|part-rest)-[0-9a-f-]{36}\.zstd\.parquet"
#: The name of a data file that reput wrote.
OWN_DATA_FILE = re.compile(_DATA)
# What `DurableFiles` calls a file before it has its own name.
_TEMPORARY = re.compile(rf"\.{_DATA}\.tmp")


@dataclass(frozen=True)
class FileOnDisk:
    """A file below a table's root; `parts` is its relative path, `modified_s` is in seconds since 1970."""

    parts: tuple[str, ...]
    size_bytes: int
    modified_s: float


def keys_file(path: str) -> tuple[str, ...]:
    """The relative path of the key filter of the data file `path`, in parts."""
    return PurePosixPath(_KEYS_DIRECTORY, path + _KEYS_SUFFIX).parts


def remove_data_file(files: DurableFiles, path: str) -> None:
    """Remove a data file, named by its relative path, and its key filter; a missing one is passed over.

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
        status = root.joinpath(*parts).lstat()
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
    with suppress(FileNotFoundError), os.scandir(root) as entries:
        for entry in entries:
            match = OWN_DATA_FILE.fullmatch(entry.name)
            if (match and entry.name not in needed) or _TEMPORARY.fullmatch(entry.name):
                yield from filter(None, [stored(root, entry.name)])
    for path in (root / _KEYS_DIRECTORY).rglob("*"):
        parts = path.relative_to(root).parts
        data_file, ending, rest = "/".join(parts[1:]).rpartition(_KEYS_SUFFIX)
        is_temporary = rest == ".tmp" and path.name.startswith(".")
        if ending and (is_temporary or (not rest and data_file not in needed)):
            yield from filter(None, [stored(root, *parts)])
