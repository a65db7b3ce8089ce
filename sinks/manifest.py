"""The files of a store that matter, their digests, and a manifest against which a later state is checked."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from reput.sinks.files.sparse_file import data_extents
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, STORE_CHECKPOINT
from reput.sinks.findings import Difference, Findings
from reput.sinks.formats.index_file import index_file_size
from reput.sinks.index.index_reader import entry_at, open_index_file
from reput.source.errors import OptionError, check_format
from reput.source.log.mapped_file_queue import open_for_reading
from reput.source.printable import lines_of

COMMIT_LOG = "commitlog"
_FOLDERS = (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, INDEX)
_READ_BYTES = 1 << 20
_VERSION = 1


@dataclass(frozen=True)
class StoreFile:
    """A file's name in the store (``commitlog/...`` wherever the log lies), and its path."""

    name: str
    path: Path


@dataclass(frozen=True)
class FileDigest:
    """SHA-256 of a file, and of its bytes `[stable_from, stable_to)`, which only grow at their end.

    These are the written bytes of a segment or of a queue's file. Of an index file, whose header and slots change with
    each key, they are the entries.
    """

    name: str
    size: int
    sha256: str
    stable_from: int
    stable_to: int
    stable_sha256: str


@dataclass(frozen=True)
class _Head:
    """A manifest's first line."""

    reput_manifest: int = _VERSION


def store_files(output: Path, commit_log: Iterable[Path]) -> list[StoreFile]:
    """Every file of the queues, the index and the log, and the checkpoint, ordered by name."""
    found = [
        StoreFile(str(path.relative_to(output)), path)
        for folder in _FOLDERS
        for path in (output / folder).rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
    for directory in commit_log:
        found += [StoreFile(f"{COMMIT_LOG}/{path.name}", path) for path in directory.iterdir() if path.is_file()]
    if (output / STORE_CHECKPOINT).is_file():
        found.append(StoreFile(STORE_CHECKPOINT, output / STORE_CHECKPOINT))
    return sorted(found, key=lambda file: file.name)


def digest_file(file: StoreFile, max_hash_slot_num: int, max_index_num: int) -> FileDigest:
    """Digest a file in one pass; memory is one chunk, and holes are hashed without being read."""
    size = file.path.stat().st_size
    begin, end = _stable(file, size, max_hash_slot_num, max_index_num)
    return _digest(file, size, begin, end)


def _stable(file: StoreFile, size: int, max_hash_slot_num: int, max_index_num: int) -> tuple[int, int]:
    if file.name == STORE_CHECKPOINT:
        return 0, 0
    if file.name.startswith(f"{INDEX}/") and size == index_file_size(max_hash_slot_num, max_index_num):
        with open_index_file(file.path) as opened:
            count = min(opened.header().next_entry, max_index_num)
        return entry_at(0, max_hash_slot_num), entry_at(count, max_hash_slot_num)
    with open_for_reading(str(file.path)) as descriptor:
        for start, end in reversed(list(data_extents(descriptor))):
            for high in range(end, start, -_READ_BYTES):
                low = max(start, high - _READ_BYTES)
                data = _read(descriptor, low, high - low).rstrip(b"\0")
                if data:
                    return 0, low + len(data)
    return 0, 0


def _digest(file: StoreFile, size: int, begin: int, end: int) -> FileDigest:
    whole, stable = hashlib.sha256(), hashlib.sha256()
    with open_for_reading(str(file.path)) as descriptor:
        for at, data in _chunks(descriptor, size):
            low, high = (min(max(bound - at, 0), len(data)) for bound in (begin, end))
            if begin:
                whole.update(data)
                stable.update(data[low:high])
                continue
            whole.update(data[:high])
            if at + high == end:  # the stable bytes begin the file, so they are hashed once for both
                stable = whole.copy()
            whole.update(data[high:])
    return FileDigest(file.name, size, whole.hexdigest(), begin, end, stable.hexdigest())


def _chunks(descriptor: int, size: int) -> Iterator[tuple[int, memoryview]]:
    """The file in chunks; those in holes are zeros that are not read."""
    zeros = memoryview(bytes(_READ_BYTES))
    extents = list(data_extents(descriptor))
    at = 0
    for start, end in [*extents, (size, size)]:
        while at < start:
            count = min(_READ_BYTES, start - at)
            yield at, zeros[:count]
            at += count
        while at < min(end, size):
            data = _read(descriptor, at, min(_READ_BYTES, end - at, size - at))
            yield at, memoryview(data)
            at += len(data)


def _read(descriptor: int, at: int, size: int) -> bytes:
    return os.pread(descriptor, size, at).ljust(size, b"\0")


def manifest_text(digests: Iterable[FileDigest]) -> str:
    """The manifest: a line of JSON for its version, and one for each file."""
    lines = [asdict(_Head()), *(asdict(digest) for digest in digests)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def load_manifest(path: Path) -> list[FileDigest]:
    """The digests of a manifest that `manifest_text` made.

    Raises
    ------
    OptionError
        The file cannot be read, or is no manifest.
    LaterFormatError
        A later release wrote it.
    """
    try:
        head, *lines = [json.loads(line) for line in lines_of(path.read_text(encoding="utf-8"))]
        check_format(path, _Head(**head).reput_manifest, _VERSION, file=path)
        return [FileDigest(**line) for line in lines]
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(
            f"cannot read the manifest {path}: {error!r}", advice="give a file that --write-manifest made", file=path
        ) from error


def compare_manifest(
    known: Iterable[FileDigest], files: Iterable[StoreFile], now: Iterable[FileDigest], findings: Findings
) -> None:
    """Check the files of a store as they are `now` against a manifest.

    Changed bytes and missing files are differences. Files that grew at their end, new files, expired ones among the
    oldest, and the checkpoint's new times are notes.
    """
    paths, current = {file.name: file.path for file in files}, {digest.name: digest for digest in now}
    for before in known:
        after = current.pop(before.name, None)
        if after is None:
            _note_gone(before, paths, findings)
        elif after.sha256 == before.sha256 and after.size == before.size:
            findings.note("same_files")
        elif before.name == STORE_CHECKPOINT:
            findings.note("checkpoint_went_on")
        elif after.size == before.size and _grew(before, after, paths[before.name]):
            findings.note("files_that_grew")
        else:
            text = f"bytes that the manifest knows have changed ({before.size} bytes then, {after.size} now)"
            findings.differ(Difference("file_changed", text, before.name, expected=before.sha256, found=after.sha256))
    findings.note("new_files", len(current))


def _grew(before: FileDigest, after: FileDigest, path: Path) -> bool:
    if after.stable_to < before.stable_to or after.stable_from != before.stable_from:
        return False
    then = _digest(StoreFile(before.name, path), before.size, before.stable_from, before.stable_to)
    return then.stable_sha256 == before.stable_sha256


def _note_gone(before: FileDigest, paths: dict[str, Path], findings: Findings) -> None:
    folder, _, name = before.name.rpartition("/")
    left = [known.rpartition("/")[2] for known in paths if known.rpartition("/")[0] == folder]
    if folder and left and name < min(left):
        findings.note("expired_files")
    else:
        findings.differ(Difference("file_missing", "the file is gone", before.name, expected=before.sha256))
