"""A record's body as its producer wrote it; a client may have compressed it (``CompressorFactory``, ``Compressor``)."""

from __future__ import annotations

import zlib

import pyarrow as pa

from reput.source.errors import CorruptRecordError
from reput.source.record.message_format import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, compression_type

# Far above the 4 MiB that a producer's maxMessageSize allows before it compresses.
BODY_BYTES_MAX = 64 * 1024 * 1024


def decompress_body(body: bytes, sys_flag: int, *, size_max: int = BODY_BYTES_MAX) -> bytes:
    """The body before it was compressed; `body` itself if it is empty or `sys_flag` has no compressed bit.

    Memory stays below about twice `size_max` bytes, whatever the body claims.

    Raises
    ------
    CorruptRecordError
        The body is not compressed as its sysFlag says, ends too early, or holds more than `size_max` bytes.
    """
    if not sys_flag & COMPRESSED_FLAG or not body:
        return body
    kind = compression_type(sys_flag)
    if kind is None:
        raise CorruptRecordError(
            f"a body has compression type {(sys_flag & COMPRESSION_TYPE_MASK) >> 8}, and 0 to 3 are known"
        )
    try:
        plain = _inflate(body, size_max) if kind == "zlib" else _decompress(body, kind, size_max)
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptRecordError(
            f"a body of {len(body)} bytes cannot be decompressed as {kind}, as sysFlag {sys_flag:#x} says: {error}"
        ) from error
    if len(plain) > size_max:
        raise CorruptRecordError(
            f"a body of {len(body)} bytes, compressed as {kind}, holds more than the {size_max} bytes allowed"
        )
    return plain


def _inflate(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, size_max + 1)
    if len(plain) <= size_max and not stream.eof:
        raise EOFError("the stream ends before its end mark")
    return plain


def _decompress(body: bytes, kind: str, size_max: int) -> bytes:
    """The content of LZ4 or Zstandard frames: at most one byte more than `size_max`."""
    with pa.CompressedInputStream(pa.BufferReader(body), kind) as stream:
        plain: bytes = stream.read(size_max + 1)
    return plain
