"""Removing what a table's log no longer needs: commits before an old checkpoint, and data files that they removed.

Delta itself keeps both by time, a month and a week. With a commit every ten seconds that would be 260,000 files to
list and 60,000 files that nobody reads. Here the number of versions decides: the last ones can all be read, by their
number, too.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.history import commit_file
from reput.sinks.table.key_filter import KeyFilterWriter

# A query that began on an older version may still be at its files.
READ_FOR_S = 900
# A version's commit, its checksum and its checkpoint, and the checksums of these that Hadoop writes.
_OF_VERSION = re.compile(r"\.?(\d{20})\.(?:json|crc|checkpoint\.parquet)(?:\.crc)?")


def clean_log(root: Path, version: int, kept: int) -> int:
    """Remove the log of versions before the newest checkpoint with `kept` versions behind it, up to `version`.

    The data files that these versions removed go first, unless a later version has them again. Killed at any moment, a
    later call does the rest. Returns the number of commits removed.

    Raises
    ------
    OutputError
        A file cannot be removed.
    OSError, ValueError, LookupError
        The log cannot be read.
    """
    log = root / "_delta_log"
    matches = (_OF_VERSION.fullmatch(path.name) for path in log.iterdir())
    numbers = {match[0]: int(match[1]) for match in matches if match}
    checkpoints = [number for name, number in numbers.items() if name == f"{number:020d}.checkpoint.parquet"]
    kept_from = max((number for number in checkpoints if number <= version - kept), default=-1)
    old = sorted(
        number for name, number in numbers.items() if name == commit_file(log, number).name and number < kept_from
    )
    if not old or time.time() - commit_file(log, old[-1]).stat().st_mtime < READ_FOR_S:
        return 0
    needed, files, filters = _files_since(log, kept_from, version), DurableFiles(root), KeyFilterWriter(root)
    for number in old:
        for path in _removed_by(log, number):
            if path not in needed:
                files.remove(*PurePosixPath(path).parts)
                filters.remove(path)
    files.sync()
    for name, number in sorted(numbers.items()):
        if number < kept_from:
            files.remove(log.name, name)
    return len(old)


def _files_since(log: Path, first: int, last: int) -> set[str]:
    """The data files of version `first` and those that later ones, up to `last`, added."""
    with pq.ParquetFile(log / f"{first:020d}.checkpoint.parquet") as checkpoint:
        added = checkpoint.read(columns=["add.path"])["add"].combine_chunks()
    paths = {path for path in added.field("path").to_pylist() if path is not None}
    for number in range(first + 1, last + 1):
        paths.update(_paths(log, number, "add"))
    return {unquote(path) for path in paths}


def _removed_by(log: Path, version: int) -> Iterator[str]:
    """The data files below the table's root that a commit removed."""
    for path in _paths(log, version, "remove"):
        if not urlsplit(path).scheme and not path.startswith("/"):
            yield unquote(path)


def _paths(log: Path, version: int, action: str) -> Iterator[str]:
    for line in commit_file(log, version).read_text(encoding="utf-8").splitlines():
        found = json.loads(line).get(action)
        if found is not None:
            yield found["path"]
