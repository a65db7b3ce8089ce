"""The files of a table that reput names, and which of them no version has any more."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from reput.sinks.files.file_age import now_for_ages
from reput.sinks.table.storage import FileStatus, TableStorage

# Below it is the key filter of each data file, under the data file's path with an ending.
_KEYS_DIRECTORY, _KEYS_SUFFIX = "_keys", ".bloom"
# A writer that is at work puts a file in place at least this often.
WRITTEN_WITHIN_S = 3600

_DATA = r"(?:(?:part|merged)-\d{20}-\d{20}|part-rest)-[0-9a-f-]{36}\.zstd\.parquet"
#: The name of a data file that reput wrote.
OWN_DATA_FILE = re.compile(_DATA)
# What `DurableFiles` calls a file before it has its own name.
_TEMPORARY = re.compile(rf"\.{_DATA}\.tmp")


def keys_file(path: str) -> str:
    """The name of the key filter of the data file `path`."""
    return f"{_KEYS_DIRECTORY}/{path}{_KEYS_SUFFIX}"


def remove_data_files(storage: TableStorage, paths: Iterable[str], *, durable: bool = False) -> None:
    """Remove data files, by their names, and their key filters; missing ones are passed over.

    Raises
    ------
    OutputError
        A file cannot be removed.
    """
    storage.remove((name for path in paths for name in (path, keys_file(path))), durable=durable)


def orphans(storage: TableStorage, needed: Collection[str]) -> list[FileStatus]:
    """Files with names of reput that nobody will ask for: `needed` lacks them, and no writer will commit them.

    A writer that is at work may have files that it has not committed yet: `tail` for seconds, ``rebuild --only table``
    for hours, in which it writes one after the other. So files are left that follow each other within
    `WRITTEN_WITHIN_S`, if the last of them is no older than that.
    """
    found = sorted(_unneeded(storage, needed), key=lambda file: file.modified_s, reverse=True)
    newer = now_for_ages()
    for number, file in enumerate(found):
        if newer - file.modified_s >= WRITTEN_WITHIN_S:
            return found[number:]
        newer = min(newer, file.modified_s)
    return []


def _unneeded(storage: TableStorage, needed: Collection[str]) -> Iterator[FileStatus]:
    for file in storage.files():
        match = OWN_DATA_FILE.fullmatch(file.name)
        if (match and file.name not in needed) or _TEMPORARY.fullmatch(file.name):
            yield file
    for file in storage.files(_KEYS_DIRECTORY, deep=True):
        data_file, ending, rest = file.name.partition("/")[2].rpartition(_KEYS_SUFFIX)
        is_temporary = rest == ".tmp" and file.name.rpartition("/")[2].startswith(".")
        if ending and (is_temporary or (not rest and data_file not in needed)):
            yield file
