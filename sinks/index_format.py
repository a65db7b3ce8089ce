"""The IndexFile: header, hash slots, entries; which keys a record has, and how entries chain.

``IndexHeader``, ``IndexFile#putKey``, ``IndexService#buildIndex`` of 4.9.3.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit

from reput.source.message_sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from reput.source.property_kernels import KEYS, TAGS, UNIQ_KEY, java_hash
from reput.source.record_kernels import AT, TOPIC, TOPIC_SIZE

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")])
ENTRY_SIZE = ENTRY.itemsize
assert ENTRY_SIZE == 20

_TYPE_MASK, _ROLLBACK_TYPE = TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
_KEY_SEPARATOR = ord(" ")
_TOPIC_KEY_SEPARATOR = ord("#")
_TAGS_MARK = np.frombuffer(b"T#", np.uint8)  # of the key ``topic#T#tags``
TIME_DIFF_MAX = 2**31 - 1


def index_file_size(max_hash_slot_num: int, max_index_num: int) -> int:
    """Size of a file in bytes."""
    return HEADER_SIZE + SLOT_SIZE * max_hash_slot_num + ENTRY_SIZE * max_index_num


@dataclass(frozen=True)
class IndexHeader:
    """The first 40 bytes. Timestamps in milliseconds; `index_count` is the number of the next entry.

    On disk `index_count` is 0 until the first key is put; 1 is the number of the first entry.
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
        """The number the next key gets (``IndexHeader#load``: 0 reads as 1)."""
        return max(1, self.index_count)


assert len(IndexHeader().encode()) == HEADER_SIZE


@njit(cache=True)
def _key_hash(data: Any, at: int, size: int, seed: int) -> int:
    """``IndexFile#indexKeyHashMethod`` of the text whose beginning hashed to `seed`: never negative."""
    value = java_hash(data, at, size, seed)
    value = abs(value)
    return value if value <= TIME_DIFF_MAX else 0  # Math.abs(Integer.MIN_VALUE) is negative


@njit(cache=True)
def collect_keys(
    data: Any,
    parts: Any,
    spans: Any,
    place: int,
    sys_flags: Any,
    store_timestamps: Any,
    with_tags: bool,
    hashes: Any,
    offsets: Any,
    timestamps: Any,
) -> int:
    """Hash the keys of each record: the unique key, KEYS from left to right, and TAGS on request.

    TAGS are a key of their own since 5.4.0, ``topic#T#tags``. Fills `hashes` (int32), `offsets` and `timestamps`
    (int64), one a key, as far as they reach.

    Returns
    -------
    How many keys there are; when more than the arrays hold, call again with larger ones.
    """
    count = 0
    for row in range(sys_flags.size):
        if sys_flags[row] & _TYPE_MASK == _ROLLBACK_TYPE:
            continue
        uniq_size, keys_size = spans[row, UNIQ_KEY, 1], spans[row, KEYS, 1]
        tags_size = spans[row, TAGS, 1] if with_tags else 0
        if uniq_size == 0 and keys_size == 0 and tags_size == 0:
            continue
        seed = java_hash(data, parts[row, TOPIC], parts[row, TOPIC_SIZE], 0)
        seed = np.int64(np.int32((31 * seed + _TOPIC_KEY_SEPARATOR) & 0xFFFFFFFF))
        if uniq_size > 0:
            if count < hashes.size:
                hashes[count] = _key_hash(data, spans[row, UNIQ_KEY, 0], uniq_size, seed)
                offsets[count] = place + parts[row, AT]
                timestamps[count] = store_timestamps[row]
            count += 1
        at = spans[row, KEYS, 0]
        end = at + keys_size
        while at < end:
            stop = at
            while stop < end and data[stop] != _KEY_SEPARATOR:
                stop += 1
            if stop > at:
                if count < hashes.size:
                    hashes[count] = _key_hash(data, at, stop - at, seed)
                    offsets[count] = place + parts[row, AT]
                    timestamps[count] = store_timestamps[row]
                count += 1
            at = stop + 1
        if tags_size > 0:
            if count < hashes.size:
                mark = java_hash(_TAGS_MARK, 0, _TAGS_MARK.size, seed)
                hashes[count] = _key_hash(data, spans[row, TAGS, 0], tags_size, mark)
                offsets[count] = place + parts[row, AT]
                timestamps[count] = store_timestamps[row]
            count += 1
    return count


@njit(cache=True)
def chain_entries(slots: Any, hashes: Any, first_entry: int, previous: Any) -> int:
    """Put entries numbered from `first_entry` into the slots, newest first in each chain.

    `slots` is int32[maxHashSlotNum] and is changed; `previous` (int32, one a key) takes each entry's predecessor.
    Returns how many slots were empty before.
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


def time_diffs(
    store_timestamps: np.ndarray[Any, np.dtype[np.int64]], begin_timestamp: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Whole seconds since `begin_timestamp` (milliseconds), between 0 and 2^31 - 1; 0 without a begin."""
    if begin_timestamp <= 0:
        return np.zeros(len(store_timestamps), np.int64)
    # Java's division truncates and numpy's floors; below zero both end at 0.
    return np.clip((store_timestamps - begin_timestamp) // 1000, 0, TIME_DIFF_MAX)
