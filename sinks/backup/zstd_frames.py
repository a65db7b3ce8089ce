"""Compressed files that can be read from the middle: Zstandard's seekable format.

The content is cut into frames that are compressed one by one. A table of their sizes, with a checksum of each, follows
in a frame that decompressors skip, so ``zstd -d`` makes the content of the file again. The format is
``contrib/seekable_format/zstd_seekable_compression_format.md`` of Zstandard.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import xxhash

#: Bytes of content in a frame. Even for a single byte a whole frame is read and decompressed.
FRAME_BYTES: Final = 4 << 20
_LEVEL: Final = 3
_CODEC: Final = pa.Codec("zstd", compression_level=_LEVEL)
_SKIPPABLE: Final = struct.Struct("<II")
_SKIPPABLE_MAGIC: Final = 0x184D2A5E
# The sizes of the compressed and the decompressed frame in bytes, and the low half of the latter's XXH64.
_ENTRY: Final = struct.Struct("<III")
_FOOTER: Final = struct.Struct("<IBI")
_SEEKABLE_MAGIC: Final = 0x8F92EAB1
_HAS_CHECKSUMS: Final = 0x80


class BadFramesError(Exception):
    """`compressed` did not make the file, or it has changed; the text names the fault."""


def compressed(chunks: Iterable[bytes | memoryview]) -> bytes:
    """Return the file for a content whose frames are these chunks, each of at most 4 GiB."""
    frames, table = [], []
    for chunk in chunks:
        frame = _CODEC.compress(pa.py_buffer(chunk), asbytes=True)
        frames.append(frame)
        table.append(_ENTRY.pack(len(frame), len(chunk), _checksum(chunk)))
    entries = b"".join(table)
    head = _SKIPPABLE.pack(_SKIPPABLE_MAGIC, len(entries) + _FOOTER.size)
    return b"".join((*frames, head, entries, _FOOTER.pack(len(table), _HAS_CHECKSUMS, _SEEKABLE_MAGIC)))


def _checksum(data: bytes | memoryview) -> int:
    return xxhash.xxh64_intdigest(data) & 0xFFFFFFFF


@dataclass(frozen=True)
class _Frame:
    """A frame: where it is in the file, and where its content begins, both in bytes."""

    at: int
    size: int
    begin: int
    content_size: int
    checksum: int


class FramesReader:
    """Reads content of a compressed file, which has ``size()`` and ``read_at(size, offset)`` like Arrow's files."""

    def __init__(self, file: Any) -> None:
        """Read the table of the frames.

        Raises
        ------
        BadFramesError
            There is no such table.
        OSError
            The file cannot be read.
        """
        self._file = file
        size = file.size()
        if size < _FOOTER.size:
            raise BadFramesError(f"it has {size} bytes")
        count, flags, magic = _FOOTER.unpack(_read(file, size - _FOOTER.size, _FOOTER.size))
        table_size = count * _ENTRY.size
        table_at = size - _FOOTER.size - table_size
        if magic != _SEEKABLE_MAGIC or flags != _HAS_CHECKSUMS or table_at < _SKIPPABLE.size:
            raise BadFramesError("it does not end with a table of frames")
        head = _SKIPPABLE.unpack(_read(file, table_at - _SKIPPABLE.size, _SKIPPABLE.size))
        entries = list(_ENTRY.iter_unpack(_read(file, table_at, table_size)))
        frame_sizes, content_sizes = ([entry[field] for entry in entries] for field in (0, 1))
        if head != (_SKIPPABLE_MAGIC, table_size + _FOOTER.size) or sum(frame_sizes) != table_at - _SKIPPABLE.size:
            raise BadFramesError("its table of frames does not fit its frames")
        begins = zip(accumulate(frame_sizes, initial=0), accumulate(content_sizes, initial=0), strict=True)
        self._frames = [
            _Frame(at, entry[0], begin, entry[1], entry[2]) for (at, begin), entry in zip(begins, entries, strict=False)
        ]
        #: Bytes of the content.
        self.content_size = sum(content_sizes)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, begin: int = 0, end: int | None = None) -> Iterator[memoryview]:
        """Yield the bytes `[begin, end)` of the content, frame by frame.

        Raises
        ------
        BadFramesError
            A frame has changed.
        OSError
            The file cannot be read.
        """
        end = self.content_size if end is None else end
        for frame in self._frames:
            if frame.begin < end and frame.begin + frame.content_size > begin:
                content = self._content(frame)
                yield content[max(0, begin - frame.begin) : end - frame.begin]

    def _content(self, frame: _Frame) -> memoryview:
        data = _read(self._file, frame.at, frame.size)
        try:
            content = memoryview(_CODEC.decompress(data, frame.content_size, asbytes=True))
        except (pa.ArrowException, OSError) as error:
            raise BadFramesError(f"its frame at byte {frame.at} cannot be decompressed") from error
        if _checksum(content) != frame.checksum:
            raise BadFramesError(f"its frame at byte {frame.at} has another checksum")
        return content


def _read(file: Any, at: int, size: int) -> bytes:
    data = bytes(file.read_at(size, at))
    if len(data) != size:
        raise BadFramesError(f"it ends before byte {at + size}")
    return data
