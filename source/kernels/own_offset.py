"""The compiled search for the next record that names its own physical offset."""

from __future__ import annotations

from typing import Any

from reput.source.kernels.byte_kernels import load_i32, load_i64
from reput.source.kernels.compile import kernel
from reput.source.record import dledger_entry as dle
from reput.source.record import message_format as fmt

_MAGIC_AT, _OFFSET_AT = fmt.MAGIC_AT, fmt.PHYSICAL_OFFSET_AT
_MESSAGE_MAGIC, _MESSAGE_MAGIC_V2 = fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2
_FIRST_BYTE = fmt.MESSAGE_MAGIC_CODE >> 24 & 0xFF
_ENTRY_POS_AT = dle.ENTRY_POS_AT
assert fmt.MESSAGE_MAGIC_CODE_V2 >> 24 & 0xFF == _FIRST_BYTE

#: How many bytes of a record the search looks at, its frame not counted.
LOOKED_AT = _OFFSET_AT + 8
NOT_FOUND = -1


@kernel
def find_own_offset(data: Any, at: int, limit: int, data_offset: int, frame: int) -> int:
    """The first index from `at` on where a record names its own physical offset, or NOT_FOUND.

    Such a record has a magic code, and its physical offset field holds its own offset; with a `frame`, so does its
    entry's. `data_offset` is the physical offset of ``data[0]``. Nothing from `limit` on is looked at.
    """
    for i in range(at, limit - frame - LOOKED_AT + 1):
        record = i + frame
        if data[record + _MAGIC_AT] != _FIRST_BYTE or load_i64(data, record + _OFFSET_AT) != data_offset + record:
            continue
        magic = load_i32(data, record + _MAGIC_AT)
        if magic not in (_MESSAGE_MAGIC, _MESSAGE_MAGIC_V2):
            continue
        if frame == 0 or load_i64(data, i + _ENTRY_POS_AT) == data_offset + i:
            return i
    return NOT_FOUND
