"""Two stores compared file by file: which files only one has, and a description of where a file first differs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.sparse_file import data_extents
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX, STORE_CHECKPOINT
from reput.sinks.findings import Difference, Findings
from reput.sinks.formats.batch_consume_queue import BATCH_ENTRY
from reput.sinks.formats.consume_queue import ENTRY as QUEUE_ENTRY
from reput.sinks.formats.index_file import ENTRY, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from reput.sinks.manifest import COMMIT_LOG, StoreFile
from reput.source.log.mapped_file_queue import open_for_reading

_READ_BYTES = 1 << 20
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
    """The same file in two stores, None where a store lacks it; `name` is the name in the first store that has it."""

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

    A file that only one store has is a note if it is all zero: it was created, but nothing was written.
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
    """The first byte that both files have and that differs; None without one."""
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
    """Describe the field of an entry with byte `inside`, as both files have it."""
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
