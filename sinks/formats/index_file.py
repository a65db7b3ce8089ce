"""The IndexFile: its header, hash slots and entries, the keys of a record, and how entries chain.

``IndexHeader``, ``IndexFile#putKey``, ``IndexService#buildIndex`` of 4.9.3.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from reput.source.kernels.byte_kernels import find_byte, inlined, kernel, store_i32, store_i64
from reput.source.kernels.property_kernels import KEYS, TAGS, UNIQ_KEY, java_hash
from reput.source.kernels.record_kernels import TOPIC, TOPIC_SIZE
from reput.source.record.message_format import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from reput.source.record.message_properties import hash_code

HEADER_SIZE = 40
SLOT_SIZE = 4
# Slots are written in pages of the file system, because a batch's keys hit slots all over the file.
SLOTS_A_PAGE = 4096 // SLOT_SIZE
ENTRY = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")])
ENTRY_SIZE = ENTRY.itemsize
assert ENTRY_SIZE == 20

_TYPE_MASK, _ROLLBACK_TYPE = TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
_KEY_SEPARATOR = ord(" ")
_TOPIC_KEY_SEPARATOR = ord("#")
_TAGS_MARK_HASH = hash_code("T#")  # of the key ``topic#T#tags``
_HASH_FACTOR = 31
_INT_MAX = 2**31 - 1
TIME_DIFF_MAX = _INT_MAX  # seconds


def index_file_size(max_hash_slot_num: int, max_index_num: int) -> int:
    """The size of a file in bytes."""
    return HEADER_SIZE + SLOT_SIZE * max_hash_slot_num + ENTRY_SIZE * max_index_num


@dataclass(frozen=True)
class IndexHeader:
    """The first 40 bytes. Timestamps are in milliseconds; `index_count` is the number of the next entry.

    Entries are numbered from 1; on disk `index_count` is 0 until the first key is put.
    """

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 0

    _FORMAT: ClassVar[struct.Struct] = struct.Struct(">qqqqii")

    def encode(self) -> bytes:
        """The header's bytes."""
        return self._FORMAT.pack(*astuple(self))

    @classmethod
    def decode(cls, data: bytes) -> IndexHeader:
        """The header of a file's first 40 bytes."""
        return cls(*cls._FORMAT.unpack(data[:HEADER_SIZE]))

    @property
    def next_entry(self) -> int:
        """The number of the next key's entry (``IndexHeader#load``: 0 reads as 1)."""
        return max(1, self.index_count)

    def followed_by(self, count: int, first: tuple[int, int], last: tuple[int, int], fresh: int) -> IndexHeader:
        """The header after `count` keys were put, which took `fresh` slots that were empty.

        `first` and `last` are the physical offset and the store timestamp (ms) of the first and the last of them.
        """
        begin = (self.begin_phy_offset, self.begin_timestamp) if self.next_entry > 1 else first
        return replace(
            self,
            begin_timestamp=begin[1],
            end_timestamp=last[1],
            begin_phy_offset=begin[0],
            end_phy_offset=last[0],
            hash_slot_count=self.hash_slot_count + fresh,
            index_count=self.next_entry + count,
        )


assert len(IndexHeader().encode()) == HEADER_SIZE


@inlined
def _put(
    data: Any,
    at: int,
    size: int,
    seed: int,
    offset: int,
    timestamp: int,
    count: int,
    hashes: Any,
    offsets: Any,
    timestamps: Any,
) -> None:
    """Set key `count` to the hash of a text that continues from `seed` (``IndexFile#indexKeyHashMethod``)."""
    value = abs(java_hash(data, at, size, seed))
    hashes[count] = value if value <= _INT_MAX else 0  # Math.abs(Integer.MIN_VALUE) is negative
    offsets[count] = offset
    timestamps[count] = timestamp


@inlined
def put_keys(
    data: Any,
    parts: Any,
    row: int,
    spans: Any,
    sys_flag: int,
    offset: int,
    timestamp: int,
    with_tags: bool,
    count: int,
    hashes: Any,
    offsets: Any,
    timestamps: Any,
) -> int:
    """Hash the keys of record `row`: the unique key, KEYS from left to right, TAGS on request.

    TAGS are a key of their own since 5.4.0, ``topic#T#tags``. Fills `hashes` (int32), `offsets` and `timestamps`
    (int64) from key number `count`; returns the new number of keys.
    """
    if sys_flag & _TYPE_MASK == _ROLLBACK_TYPE:
        return count
    uniq_size, keys_size = spans[row, UNIQ_KEY, 1], spans[row, KEYS, 1]
    tags_size = spans[row, TAGS, 1] if with_tags else 0
    if uniq_size == 0 and keys_size == 0 and tags_size == 0:
        return count
    seed = java_hash(data, parts[row, TOPIC], parts[row, TOPIC_SIZE], 0) * _HASH_FACTOR + _TOPIC_KEY_SEPARATOR
    if uniq_size > 0:
        at = spans[row, UNIQ_KEY, 0]
        _put(data, at, uniq_size, seed, offset, timestamp, count, hashes, offsets, timestamps)
        count += 1
    at = np.int64(spans[row, KEYS, 0])
    end = at + keys_size
    while at < end:
        stop = find_byte(data, at, end, _KEY_SEPARATOR)
        if stop > at:
            _put(data, at, stop - at, seed, offset, timestamp, count, hashes, offsets, timestamps)
            count += 1
        at = stop + 1
    if tags_size > 0:
        at = spans[row, TAGS, 0]
        marked = seed * _HASH_FACTOR**2 + _TAGS_MARK_HASH
        _put(data, at, tags_size, marked, offset, timestamp, count, hashes, offsets, timestamps)
        count += 1
    return count


@inlined
def key_count_max(keys_size: int) -> int:
    """The most keys of a record with `keys_size` bytes of KEYS, with its unique key and its tags."""
    return (keys_size + 1) // 2 + 2


@kernel
def chain_entries(slots: Any, hashes: Any, first_entry: int, previous: Any) -> int:
    """Put entries numbered from `first_entry` into the slots, newest first in each chain.

    `slots` (int32[maxHashSlotNum]) is changed; `previous` (int32, one per key) gets each entry's predecessor. Returns
    the number of slots that were empty before.
    """
    fresh = 0
    for i in range(hashes.size):
        slot = hashes[i] % slots.size
        before = slots[slot]
        if before <= 0 or before > first_entry + i:
            before = np.int32(0)
            fresh += 1
        previous[i] = before
        slots[slot] = first_entry + i
    return fresh


@kernel
def put_entries(
    slots: Any,
    touched: Any,
    ahead: Any,
    first_entry: int,
    begin_timestamp: int,
    first_begin_timestamp: int,
    hashes: Any,
    offsets: Any,
    timestamps: Any,
    entries: Any,
) -> int:
    """Put the entries numbered from `first_entry` into the slots, and encode them.

    Parameters
    ----------
    slots
        int32[maxHashSlotNum], changed.
    touched
        bool, one per SLOTS_A_PAGE slots: set if one of them is changed.
    ahead
        int64 scratch: the slots of keys that are looked up together.
    begin_timestamp, first_begin_timestamp
        The begins of time differences (ms): of all entries but the first, and of the first one.
    hashes, offsets, timestamps
        The keys: int32[n] not negative, int64[n], int64[n].
    entries
        uint8[n, 20], filled.

    Returns
    -------
    The number of slots that were empty before.
    """
    fresh = 0
    begin = first_begin_timestamp
    slot_count = np.uint32(slots.size)
    for start in range(0, hashes.size, ahead.size):
        end = min(start + ahead.size, hashes.size)
        for i in range(start, end):
            # This fetches the slot, which is rarely in the cache, along with others; its value may yet change.
            slot = np.uint32(hashes[i]) % slot_count
            ahead[i - start] = slot
            store_i32(entries, i, 16, slots[slot])
        for i in range(start, end):
            slot = np.uint32(ahead[i - start])
            before, number = np.int64(slots[slot]), first_entry + i
            if before <= 0 or before > number:
                before = np.int64(0)
                fresh += 1
            slots[slot] = number
            touched[slot // np.uint32(SLOTS_A_PAGE)] = True
            store_i32(entries, i, 0, hashes[i])
            store_i64(entries, i, 4, offsets[i])
            store_i64(entries, i, 12, _time_diff(timestamps[i], begin) << 32 | before)
            begin = begin_timestamp
    return fresh


@inlined
def _time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """The `time_diffs` of one key; the subtraction wraps as in Java."""
    difference = store_timestamp - begin_timestamp
    if begin_timestamp <= 0 or difference <= 0:
        return 0
    return min(difference // 1000, _INT_MAX)


def time_diffs(
    store_timestamps: np.ndarray[Any, np.dtype[np.int64]], begin_timestamp: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Whole seconds since `begin_timestamp` (milliseconds), from 0 to 2^31 - 1; 0 for earlier times."""
    if begin_timestamp <= 0:
        return np.zeros(len(store_timestamps), np.int64)
    # Java's division truncates and numpy's floors; below zero both are clipped to 0.
    return np.clip((store_timestamps - begin_timestamp) // 1000, 0, _INT_MAX)
