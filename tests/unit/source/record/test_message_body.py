"""Bodies as producers wrote them: each kind of compression, and bodies that are not compressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.source.errors import CorruptRecordError
from reput.source.record.message_body import decompress_body
from reput.source.record.message_format import compression_type

PLAIN = b"lorem ipsum dolor sit amet " * 1000


def frame(kind: str) -> Callable[[bytes], bytes]:
    """The compressor of LZ4 or Zstandard frames that reput does not use."""
    return lambda data: pa.compress(data, codec=kind, asbytes=True)


KINDS = {0x001: zlib.compress, 0x101: frame("lz4"), 0x201: frame("zstd"), 0x301: zlib.compress}
each_kind = pytest.mark.parametrize("sys_flag", KINDS, ids=hex)


@each_kind
@given(plain=st.binary(max_size=2000))
def test_bodies_come_back(sys_flag: int, plain: bytes) -> None:
    """Any body of any compression, whatever other bits sysFlag has."""
    assert plain == decompress_body(KINDS[sys_flag](plain), sys_flag)
    assert plain == decompress_body(KINDS[sys_flag](plain), sys_flag | 0xF8)


@pytest.mark.parametrize("sys_flag", [0, 0x100, 0x2F0, 0x700])
def test_a_body_that_is_not_compressed(sys_flag: int) -> None:
    """The type of compression says nothing without the bit that says so."""
    assert decompress_body(PLAIN, sys_flag) is PLAIN


@each_kind
def test_an_empty_body_is_empty(sys_flag: int) -> None:
    """A record of a batch may carry the bit and no body."""
    assert decompress_body(b"", sys_flag) == b""


@each_kind
@pytest.mark.parametrize("damage", ["cut", "cut early", "text", "other"])
def test_what_is_no_compressed_body(sys_flag: int, damage: str) -> None:
    """The kind, the size and the sysFlag are named."""
    body = KINDS[sys_flag](PLAIN)
    damaged = {
        "cut": body[:-1],
        "cut early": body[:3],
        "text": PLAIN[:100],
        "other": zlib.compress(PLAIN) if sys_flag in (0x101, 0x201) else KINDS[0x101](PLAIN),
    }[damage]
    with pytest.raises(CorruptRecordError) as raised:
        decompress_body(damaged, sys_flag)
    kind = compression_type(sys_flag)
    words = f"a body of {len(damaged)} bytes cannot be decompressed as {kind}, as sysFlag {sys_flag:#x} says: "
    assert str(raised.value).startswith(words)


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_compression_types_that_nobody_knows(sys_flag: int) -> None:
    """As in the client, they are an error and not a guess."""
    with pytest.raises(CorruptRecordError, match=f"compression type {sys_flag >> 8}, and 0 to 3 are known"):
        decompress_body(PLAIN, sys_flag)


@each_kind
def test_a_body_larger_than_allowed(sys_flag: int) -> None:
    """A few bytes that claim a gigabyte cost no gigabyte: the limit is exact."""
    body = KINDS[sys_flag](PLAIN)
    assert PLAIN == decompress_body(body, sys_flag, size_max=len(PLAIN))
    with pytest.raises(CorruptRecordError, match=f"holds more than the {len(PLAIN) - 1} bytes allowed"):
        decompress_body(body, sys_flag, size_max=len(PLAIN) - 1)
