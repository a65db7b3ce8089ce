"""The bytes of queues: entries of ConsumeQueue (20 bytes) and of BatchConsumeQueue (46), units of ConsumeQueueExt.

It also decides which records get an entry. A unit (``ConsumeQueueExt.CqExtUnit``) consists of its whole size (i16), the
tags code (i64), the store timestamp (i64, ms), the bitmap's size in bytes (i16) and the bitmap, big-endian. The
ConsumeQueue entry's third field holds the unit's address in place of the tags code.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from reput.source.arrays import Int64s
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.kernels.byte_kernels import WORD, inlined, load_bytes, store_i32, store_i64
from reput.source.record.message_format import TRANSACTION_COMMIT_TYPE, TRANSACTION_MASK, TRANSACTION_NOT_TYPE

ENTRY = np.dtype([("physical_offset", ">i8"), ("msg_size", ">i4"), ("tags_code", ">i8")])
CQ_STORE_UNIT_SIZE = ENTRY.itemsize
assert CQ_STORE_UNIT_SIZE == 20

# Fills the front of a queue's first file if the queue begins in the middle of it (``ConsumeQueue#fillPreBlank``).
PRE_BLANK = np.array((0, 0x7FFFFFFF, 0), dtype=ENTRY)


def is_written(units: Any) -> Any:
    """Which units (`ENTRY`[n]) ``ConsumeQueue#recover`` takes for written, bool[n]."""
    return (units["physical_offset"] >= 0) & (units["msg_size"] > 0)


def is_pre_blank(units: Any) -> Any:
    """Which units (`ENTRY`[n]) are exactly `PRE_BLANK`, bool[n]."""
    return (
        (units["physical_offset"] == PRE_BLANK["physical_offset"])
        & (units["msg_size"] == PRE_BLANK["msg_size"])
        & (units["tags_code"] == PRE_BLANK["tags_code"])
    )


# The golden ratio's bits: an odd number, half of its bits are ones.
_MIXER = 0x9E3779B97F4A7C15

_TYPE_MASK, _NOT_TYPE, _COMMIT_TYPE = TRANSACTION_MASK, TRANSACTION_NOT_TYPE, TRANSACTION_COMMIT_TYPE


@inlined
def slot_of(data: Any, at: int, size: int, queue_id: int) -> int:
    """A hash of a queue, of all bytes of its topic and its id, for a table of any size."""
    factor = np.uint64(_MIXER)
    value = np.uint64(queue_id)
    for i in range(0, size, WORD):
        word = load_bytes(data, at + i, min(WORD, size - i))
        value = (value ^ word) * factor
        value ^= value >> np.uint64(32)
    return np.int64(value >> np.uint64(1))


def queued_records(sys_flags: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which records get an entry, bool[n]: all but prepared and rolled-back ones."""
    kinds = sys_flags & _TYPE_MASK
    return (kinds == _NOT_TYPE) | (kinds == _COMMIT_TYPE)


@inlined
def is_queued(sys_flag: int) -> bool:
    """Whether a record gets an entry; see `queued_records`."""
    kind = sys_flag & _TYPE_MASK
    return kind == _NOT_TYPE or kind == _COMMIT_TYPE  # noqa: PLR1714  a tuple is slower


@inlined
def put_entry(entries: Any, row: int, physical_offset: int, size: int, tags_code: int) -> None:
    """Write the entry of the record at `physical_offset` to ``entries[row]`` (uint8[n, 20])."""
    store_i64(entries, row, 0, physical_offset)
    store_i32(entries, row, 8, size)
    store_i64(entries, row, 12, tags_code)


BATCH_ENTRY = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("msg_size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("msg_base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
BATCH_STORE_UNIT_SIZE = BATCH_ENTRY.itemsize
assert BATCH_STORE_UNIT_SIZE == 46

_NOT_COMPACTED = -1


def batch_entries(columns: RecordColumns, rows: Int64s) -> tuple[Int64s, np.ndarray[Any, Any]]:
    """The entries of those records among `rows` that are inner batches, as (rows, BATCH_ENTRY[n]).

    As with the broker, a record that does not state its base offset and number of messages gets no entry
    (``#putMessagePositionInfoWrapper``).
    """
    batches = columns.inner_batches()
    kept = rows[(batches.batch_num[rows] >= 0) & (batches.msg_base_offset[rows] >= 0)]
    entries = np.zeros(len(kept), BATCH_ENTRY)
    entries["physical_offset"] = columns.physical_offset[kept]
    entries["msg_size"] = columns.msg_size[kept]
    entries["tags_code"] = columns.tags_code[kept]
    entries["store_timestamp"] = columns.store_timestamp[kept]
    entries["msg_base_offset"] = batches.msg_base_offset[kept]
    entries["batch_size"] = batches.batch_num[kept]
    entries["compacted_offset"] = _NOT_COMPACTED
    return kept, entries


_HEAD = struct.Struct(">hqqh")
MIN_EXT_UNIT_SIZE = _HEAD.size
MAX_EXT_UNIT_SIZE = 2**15 - 1
assert MIN_EXT_UNIT_SIZE == 20

LONG_MIN = -(2**63)
MAX_ADDR = -(2**31) - 1
MAX_REAL_OFFSET = MAX_ADDR - LONG_MIN
assert MAX_REAL_OFFSET == 9223372034707292159

# The result of `put` if it puts no unit.
PUT_FAILED = 1
# The bytes at a file's end that no unit may take. If the next unit does not fit, a size of -1 is written, which takes
# only two of them.
END_BLANK_DATA_LENGTH = 4
_END_MARK_SIZE = 2
_PUT_TRIES = 3
# Each try of a unit that never fits ends a file, so a unit leaves at most this many marks and writes.
_WRITES_A_UNIT = _PUT_TRIES + 1

_MIN_SIZE, _MAX_SIZE = MIN_EXT_UNIT_SIZE, MAX_EXT_UNIT_SIZE
_END_BLANK, _LONG_MIN, _MAX_REAL = END_BLANK_DATA_LENGTH, LONG_MIN, MAX_REAL_OFFSET
_FAILED = PUT_FAILED


def is_ext_addr(address: int) -> bool:
    """Whether a ConsumeQueue entry's third field is a unit's address, not a tags code."""
    return address <= MAX_ADDR


def decorate(offset: int) -> int:
    """The address of the unit at byte `offset` of the queue's ext files; an address stays itself."""
    return offset if is_ext_addr(offset) else offset + LONG_MIN


def un_decorate(address: int) -> int:
    """The byte offset of an address; any other number stays itself."""
    return address - LONG_MIN if is_ext_addr(address) else address


@dataclass(frozen=True)
class CqExtUnit:
    """One unit: its `size` in bytes, and its fields; without a bitmap, `filter_bit_map` holds None."""

    size: int
    tags_code: int
    msg_store_time: int
    filter_bit_map: bytes | None

    @classmethod
    def read(cls, data: bytes) -> CqExtUnit | None:
        """The unit at the beginning of `data`; None if its size says that there is none.

        Raises
        ------
        ValueError
            `data` ends inside the unit.
        """
        if len(data) < _END_MARK_SIZE or (size := int.from_bytes(data[:2], "big", signed=True)) < 1:
            return None
        if len(data) < MIN_EXT_UNIT_SIZE:
            raise ValueError(len(data))
        _, tags_code, store_time, bit_map_size = _HEAD.unpack_from(data)
        if bit_map_size < 1:
            return cls(size, tags_code, store_time, None)
        bit_map = data[MIN_EXT_UNIT_SIZE : MIN_EXT_UNIT_SIZE + bit_map_size]
        if len(bit_map) < bit_map_size:
            raise ValueError(len(data))
        return cls(size, tags_code, store_time, bit_map)


@dataclass(frozen=True)
class ExtWrite:
    """Consecutive bytes of one file: `data` goes to byte `offset` of the queue's ext files."""

    offset: int
    data: memoryview


@dataclass(frozen=True)
class ExtAppend:
    """The places of units: `addresses` (int64[n]), the `writes`, at most one per file, and the queue's new `end`."""

    addresses: Int64s
    writes: tuple[ExtWrite, ...]
    end: int


def append_units(
    tags_codes: Int64s, store_timestamps: Int64s, bit_maps: Sequence[bytes | None], end: int, file_size: int
) -> ExtAppend:
    """Encode units one after the other from byte `end` of the queue, as ``ConsumeQueueExt#put`` does.

    A unit that does not fit ends the file with a mark and goes to the next file. A unit that fits in no file ends three
    files and gets `PUT_FAILED` for an address, as does one that is too large for its size field or for the queue.

    Parameters
    ----------
    tags_codes, store_timestamps
        int64[n].
    bit_maps
        One per unit; None and empty are the same.
    """
    sizes = np.array([MIN_EXT_UNIT_SIZE + len(bit_map or b"") for bit_map in bit_maps], np.int64)
    if not len(sizes) == len(tags_codes) == len(store_timestamps):
        msg = f"{len(tags_codes)} tags codes, {len(store_timestamps)} timestamps and {len(sizes)} bitmaps"
        raise ValueError(msg)
    addresses = np.empty(len(sizes), np.int64)
    # A refused unit takes no space, but a unit that fails in three files leaves three marks.
    data = np.empty(int(sizes.sum()) + _PUT_TRIES * _END_MARK_SIZE * len(sizes), np.uint8)
    writes = np.empty((_WRITES_A_UNIT * len(sizes), 2), np.int64)
    maps = np.frombuffer(b"".join(filter(None, bit_maps)), np.uint8)
    new_end, count, used = _put_units(
        np.ascontiguousarray(tags_codes, np.int64),
        np.ascontiguousarray(store_timestamps, np.int64),
        sizes,
        maps,
        end,
        file_size,
        addresses,
        data,
        writes,
    )
    view = data.data
    spans = zip(writes[:count, 0].tolist(), pairwise([*writes[:count, 1].tolist(), used]), strict=True)
    return ExtAppend(addresses, tuple(ExtWrite(offset, view[begin:to]) for offset, (begin, to) in spans), new_end)


@njit(cache=True)
def _put_units(
    tags_codes: Any,
    store_timestamps: Any,
    sizes: Any,
    maps: Any,
    end: int,
    file_size: int,
    addresses: Any,
    data: Any,
    writes: Any,
) -> tuple[int, int, int]:
    """Fill `addresses`, `data` and `writes` (offset in the queue, offset in `data`).

    Returns the queue's new end, the number of writes, and the number of bytes in `data`.
    """
    count = used = maps_at = 0
    is_open = False
    for row in range(sizes.size):
        size = sizes[row]
        maps_begin = maps_at
        maps_at += size - _MIN_SIZE
        addresses[row] = _FAILED
        if size > _MAX_SIZE or end > _MAX_REAL - size:
            continue
        for _ in range(_PUT_TRIES):
            if not is_open:
                writes[count, 0], writes[count, 1] = end, used
                count += 1
                is_open = True
            blank = file_size - end % file_size - _END_BLANK
            if size <= blank:
                addresses[row] = end + _LONG_MIN
                _encode(data, used, size, tags_codes[row], store_timestamps[row], maps, maps_begin)
                used += size
                end += size
                break
            data[used] = data[used + 1] = 0xFF
            used += _END_MARK_SIZE
            end += file_size - end % file_size
            is_open = False
    return end, count, used


@njit(cache=True)
def _encode(data: Any, at: int, size: int, tags_code: int, store_timestamp: int, maps: Any, maps_at: int) -> None:
    """Write one unit to `data` at `at`; its bitmap is in `maps` at `maps_at`."""
    map_size = size - _MIN_SIZE
    data[at], data[at + 1] = size >> 8, size & 0xFF
    for byte in range(8):
        shift = 56 - 8 * byte
        data[at + 2 + byte] = tags_code >> shift & 0xFF
        data[at + 10 + byte] = store_timestamp >> shift & 0xFF
    data[at + 18], data[at + 19] = map_size >> 8, map_size & 0xFF
    for byte in range(map_size):
        data[at + _MIN_SIZE + byte] = maps[maps_at + byte]


@njit(cache=True)
def skip_units(data: Any, file_size: int) -> int:
    """The number of bytes of a file that its units take, from the first on (``CqExtUnit#readBySkip``).

    The units end at a size of 0 or below. `data` (uint8) is the file's beginning; the rest of the file is zero. If a
    unit, or its size, at byte n runs over the file's end, the result is -1 - n.
    """
    at = 0
    while at + _END_MARK_SIZE <= file_size:
        high = data[at] if at < data.size else 0
        low = data[at + 1] if at + 1 < data.size else 0
        size = high << 8 | low
        if size == 0 or size > _MAX_SIZE:
            return at
        if size > file_size - at:
            break
        at += size
    return -1 - at
