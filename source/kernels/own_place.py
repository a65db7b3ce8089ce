"""The compiled search for the next place that looks like a record's own."""

from __future__ import annotations

from typing import Any

from reput.source.kernels.byte_kernels import load_i32, load_i64
from reput.source.kernels.compile import kernel
from reput.source.record import dledger_entry as dle
from reput.source.record import message_format as fmt

_MAGIC_AT, _PLACE_AT = fmt.MAGIC_AT, fmt.PHYSICAL_OFFSET_AT
_MESSAGE_MAGIC, _MESSAGE_MAGIC_V2 = fmt.MESSAGE_MAGIC_CODE, fmt.MESSAGE_MAGIC_CODE_V2
_FIRST_BYTE = fmt.MESSAGE_MAGIC_CODE >> 24 & 0xFF
_ENTRY_POS_AT = dle.ENTRY_POS_AT
assert fmt.MESSAGE_MAGIC_CODE_V2 >> 24 & 0xFF == _FIRST_BYTE

#: Bytes from a record's begin that the search looks at, its frame not counted.
LOOKED_AT = _PLACE_AT + 8
NOT_FOUND = -1


@kernel
def find_own_place(data: Any, at: int, limit: int, place: int, frame: int) -> int:
    """The first index from `at` where a record names its own place; NOT_FOUND without one.

    A magic code stands there, and the place (the entry's, too, with a `frame`) is the index's own: `place` is the
    place in the log of ``data[0]``. Nothing from `limit` on is looked at.
    """
    for i in range(at, limit - frame - LOOKED_AT + 1):
        record = i + frame
        if data[record + _MAGIC_AT] != _FIRST_BYTE or load_i64(data, record + _PLACE_AT) != place + record:
            continue
        magic = load_i32(data, record + _MAGIC_AT)
        if magic not in (_MESSAGE_MAGIC, _MESSAGE_MAGIC_V2):
            continue
        if frame == 0 or load_i64(data, i + _ENTRY_POS_AT) == place + i:
            return i
    return NOT_FOUND
