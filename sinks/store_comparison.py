"""A store compared file by file: with a manifest of an earlier state, or with another store.

It covers the files of queues, index, log and checkpoint: their digests, the files that only one store has, and the
first difference of a file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.file_system import data_extents
from reput.sinks.files.own_files import DERIVED
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX, STORE_CHECKPOINT
from reput.sinks.findings import Difference, Findings
from reput.sinks.formats.consume_queue import BATCH_ENTRY
from reput.sinks.formats.consume_queue import ENTRY as QUEUE_ENTRY
from reput.sinks.formats.index_file import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, index_file_size
from reput.sinks.index.index_reader import entry_at, open_index_file
from reput.source.errors import OptionError, check_format
from reput.source.log.mapped_file_queue import open_for_reading
from reput.source.log.store_layout import COMMIT_LOG
from reput.source.printable import lines_of

_READ_BYTES = 1 << 20
_VERSION = 1


@dataclass(frozen=True)
class StoreFile:
    """A file's name in the store (``commitlog/...`` wherever the log is), and its path."""

    name: str
    path: Path


@dataclass(frozen=True)
class FileDigest:
    """SHA-256 of a file, and of its bytes `[stable_from, stable_to)`, which only grow at their end.

    These are the written bytes of a segment or of a queue's file. In an index file, whose header and slots change with
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
        for folder in DERIVED
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
    """The file in chunks; holes yield zeros without being read."""
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
        The file cannot be read, or is not a manifest.
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
    """Compare the files of a store as they are `now` with a manifest.

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


_HEADER_FIELDS = (
    (0, 8, "beginTimestamp"),
    (8, 8, "endTimestamp"),
    (16, 8, "beginPhyOffset"),
    (24, 8, "endPhyOffset"),
    (32, 4, "hashSlotCount"),
    (36, 4, "indexCount"),
)
_CHECKPOINT_FIELDS = ((0, 8, "physicMsgTimestamp"), (8, 8, "logicsMsgTimestamp"), (16, 8, "indexMsgTimestamp"))
_FIELD_NAMES = {"physical_offset": "physical offset", "msg_size": "size", "tags_code": "tags code"}


@dataclass(frozen=True)
class Pair:
    """The same file in two stores, None if a store lacks it; `name` is the name in the first store that has it."""

    name: str
    here: Path | None
    there: Path | None


def pair_files(here: list[StoreFile], there: list[StoreFile]) -> list[Pair]:
    """Pair files of the same name; index files, whose names are times, are paired in order."""
    mine = {file.name: file.path for file in here if not _is_index(file)}
    other = {file.name: file.path for file in there if not _is_index(file)}
    pairs = [Pair(name, mine.get(name), other.get(name)) for name in sorted(mine.keys() | other.keys())]
    ours, theirs = ([file for file in files if _is_index(file)] for files in (here, there))
    for at in range(max(len(ours), len(theirs))):
        left = ours[at] if at < len(ours) else None
        right = theirs[at] if at < len(theirs) else None
        name = left.name if left else right.name if right else ""
        pairs.append(Pair(name, left.path if left else None, right.path if right else None))
    return pairs


def compare_pair(pair: Pair, max_hash_slot_num: int, findings: Findings) -> None:
    """Compare one file of both stores up to its first differing byte.

    A file that only one store has is a note if it is all zero: it was created, but nothing was written to it.
    """
    if pair.here is None or pair.there is None:
        only = pair.here or pair.there
        side = "here" if pair.there is None else "there"
        assert only is not None
        if _is_zero(only):
            findings.note(f"empty_file_only_{side}")
        else:
            findings.differ(Difference(f"only_{side}", f"only {side}", pair.name))
        return
    sizes = pair.here.stat().st_size, pair.there.stat().st_size
    at = _first_difference(pair.here, pair.there)
    if at is not None:
        text = _in_words(pair, at, max_hash_slot_num)
        findings.differ(Difference("file_differs", text, pair.name, at, _number(pair.name, at)))
    elif sizes[0] != sizes[1]:
        text = f"{sizes[0]} bytes here, {sizes[1]} there, and equal as far as both go"
        findings.differ(Difference("file_size", text, pair.name, min(sizes)))
    else:
        findings.note("equal_files")


def _is_index(file: StoreFile) -> bool:
    return file.name.startswith(f"{INDEX}/")


def _is_zero(path: Path) -> bool:
    with open_for_reading(str(path)) as descriptor:
        for start, end in list(data_extents(descriptor)):
            for at in range(start, end, _READ_BYTES):
                if os.pread(descriptor, min(_READ_BYTES, end - at), at).strip(b"\0"):
                    return False
    return True


def _first_difference(here: Path, there: Path) -> int | None:
    """The first byte at which the common part of the files differs; None without one."""
    with open_for_reading(str(here)) as left, open_for_reading(str(there)) as right:
        size = min(os.fstat(left).st_size, os.fstat(right).st_size)
        spans = sorted([*data_extents(left), *data_extents(right)])
        done = 0
        for begin, stop in spans:
            at, end = max(done, begin), min(stop, size)
            while at < end:
                count = min(_READ_BYTES, end - at)
                ours, theirs = os.pread(left, count, at), os.pread(right, count, at)
                if ours != theirs:
                    pair = np.frombuffer(ours, np.uint8) != np.frombuffer(theirs, np.uint8)
                    return at + int(np.argmax(pair))
                at += count
            done = max(done, end)
    return None


def _number(name: str, at: int) -> int | None:
    dtype = _queue_unit(name)
    return (int(name.rpartition("/")[2]) + at) // dtype.itemsize if dtype is not None else None


def _queue_unit(name: str) -> np.dtype[np.void] | None:
    units = {CONSUME_QUEUE: QUEUE_ENTRY, BATCH_CONSUME_QUEUE: BATCH_ENTRY}
    return units.get(name.split("/", maxsplit=1)[0]) if name.rpartition("/")[2].isdecimal() else None


def _in_words(pair: Pair, at: int, max_hash_slot_num: int) -> str:
    unit = _queue_unit(pair.name)
    if unit is not None:
        _, topic, queue_id, _ = pair.name.split("/")
        difference = _entry(pair, at - at % unit.itemsize, at % unit.itemsize, unit)
        return f"queue {topic}-{queue_id}, entry {_number(pair.name, at)}: {difference}"
    if pair.name.startswith(f"{INDEX}/"):
        return _index_words(pair, at, max_hash_slot_num)
    if pair.name == STORE_CHECKPOINT:
        return _fixed(pair, at, _CHECKPOINT_FIELDS)
    if pair.name.startswith(f"{COMMIT_LOG}/"):
        name = pair.name.rpartition("/")[2]
        physical_offset = int(name) + at if name.isdecimal() else at
        return f"the log at physical offset {physical_offset}: {_byte(pair, at)}"
    return f"byte {at}: {_byte(pair, at)}"


def _index_words(pair: Pair, at: int, max_hash_slot_num: int) -> str:
    slots_end = HEADER_SIZE + SLOT_SIZE * max_hash_slot_num
    if at < HEADER_SIZE:
        return f"header, {_fixed(pair, at, _HEADER_FIELDS)}"
    if at < slots_end:
        slot = (at - HEADER_SIZE) // SLOT_SIZE
        here, there = _both(pair, HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE)
        return f"slot {slot}: entry {int.from_bytes(here, 'big')} here, {int.from_bytes(there, 'big')} there"
    number, inside = divmod(at - slots_end, ENTRY_SIZE)
    return f"index entry {number}: {_entry(pair, at - inside, inside, ENTRY)}"


def _entry(pair: Pair, begin: int, inside: int, unit: np.dtype[np.void]) -> str:
    """The field of an entry that holds byte `inside`, as both files have it, in words."""
    here, there = (np.frombuffer(data, unit)[0] for data in _both(pair, begin, unit.itemsize))
    fields: Mapping[str, Any] = unit.fields or {}
    name = next(name for name, (kind, start) in fields.items() if start <= inside < start + kind.itemsize)
    return f"{_FIELD_NAMES.get(name, name.replace('_', ' '))} {here[name]} here, {there[name]} there"


def _fixed(pair: Pair, at: int, fields: tuple[tuple[int, int, str], ...]) -> str:
    for begin, size, name in fields:
        if begin <= at < begin + size:
            here, there = (int.from_bytes(data, "big", signed=True) for data in _both(pair, begin, size))
            return f"{name} {here} here, {there} there"
    return f"byte {at}: {_byte(pair, at)}"


def _byte(pair: Pair, at: int) -> str:
    here, there = _both(pair, at, 1)
    return f"byte 0x{here.hex()} here, 0x{there.hex()} there"


def _both(pair: Pair, at: int, size: int) -> tuple[bytes, bytes]:
    assert pair.here is not None
    assert pair.there is not None
    found = []
    for path in (pair.here, pair.there):
        with open_for_reading(str(path)) as descriptor:
            found.append(os.pread(descriptor, size, at).ljust(size, b"\0"))
    return found[0], found[1]
