"""Thrift's compact protocol, as far as Parquet's headers and footers need it: encoding alone.

https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TRUE, _FALSE, _I16, _I32, _I64, _BINARY, _LIST, _STRUCT = 1, 2, 4, 5, 6, 8, 9, 12
# A list of this many elements or more has its size behind its first byte.
_LONG_LIST = 15


@dataclass(frozen=True)
class Encoded:
    """A value and the protocol's number for its type."""

    kind: int
    data: bytes


def varint(number: int) -> bytes:
    """A number that is not negative, seven bits a byte, the lowest first (ULEB128)."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _signed(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def i16(number: int) -> Encoded:
    """A signed integer of 16 bits."""
    return Encoded(_I16, _signed(number))


def i32(number: int) -> Encoded:
    """A signed integer of 32 bits, or a member of an enumeration."""
    return Encoded(_I32, _signed(number))


def i64(number: int) -> Encoded:
    """A signed integer of 64 bits."""
    return Encoded(_I64, _signed(number))


def boolean(value: bool) -> Encoded:
    """A field of a struct that is true or false."""
    return Encoded(_TRUE if value else _FALSE, b"")


def binary(data: bytes) -> Encoded:
    """Bytes, or a text in UTF-8."""
    return Encoded(_BINARY, varint(len(data)) + data)


def list_of(items: Sequence[Encoded]) -> Encoded:
    """A list of values of one type; an empty one is of structs."""
    kind = items[0].kind if items else _STRUCT
    size = len(items)
    head = bytes([size << 4 | kind]) if size < _LONG_LIST else bytes([_LONG_LIST << 4 | kind]) + varint(size)
    return Encoded(_LIST, head + b"".join(item.data for item in items))


def struct(fields: Mapping[int, Encoded | None]) -> Encoded:
    """A struct, or a union of one field; `fields` by number, rising; None leaves a field out.

    Raises
    ------
    ValueError
        A number does not rise by 1 to 15, for which the protocol has a longer form that Parquet never needs.
    """
    out = bytearray()
    before = 0
    for number, value in fields.items():
        if value is None:
            continue
        if not 1 <= number - before <= _LONG_LIST:
            msg = f"field {number} cannot follow field {before}"
            raise ValueError(msg)
        out.append(number - before << 4 | value.kind)
        out += value.data
        before = number
    out.append(0)
    return Encoded(_STRUCT, bytes(out))
