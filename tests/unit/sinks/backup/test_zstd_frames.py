"""A compressed file is read from any byte to any other, and a plain decompressor reads it."""

from __future__ import annotations

import random
from contextlib import suppress

import pyarrow as pa
import pytest

from reput.sinks.backup.zstd_frames import BadFramesError, FramesReader, compressed


def content(size: int) -> bytes:
    return random.Random(size).randbytes(size // 2).ljust(size, b"a")


def reader(data: bytes) -> FramesReader:
    return FramesReader(pa.BufferReader(data))


@pytest.mark.parametrize("sizes", [[], [0], [1], [10, 10, 3], [1000, 1, 4000, 17]])
def test_any_range_is_read(sizes: list[int]) -> None:
    """Whatever the frames are; memory views, too."""
    chunks = [content(size) for size in sizes]
    whole = b"".join(chunks)
    found = reader(compressed(map(memoryview, chunks)))
    assert found.content_size == len(whole)
    assert b"".join(found.read()) == whole
    rng = random.Random(1)
    for _ in range(50):
        begin = rng.randint(0, len(whole))
        end = rng.randint(begin, len(whole))
        assert b"".join(found.read(begin, end)) == whole[begin:end]


def test_a_plain_decompressor_reads_it() -> None:
    """The table of frames is one that it skips."""
    data = compressed([content(100), content(5000)])
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        assert stream.read() == content(100) + content(5000)


def test_only_the_frames_that_are_wanted_are_read() -> None:
    """Damage elsewhere is not seen."""
    data = bytearray(compressed([content(2000), content(2000)]))
    data[8] ^= 1
    assert b"".join(reader(bytes(data)).read(2000, 2010)) == content(2000)[:10]
    with pytest.raises(BadFramesError, match="at byte 0"):
        list(reader(bytes(data)).read(0, 1))


@pytest.mark.parametrize("seed", range(5))
def test_any_changed_byte_is_noticed(seed: int) -> None:
    """In frames as in their table; so is every length."""
    data = compressed([content(300), content(40)])
    expected = content(300) + content(40)
    rng = random.Random(seed)
    for _ in range(60):
        at = rng.randrange(len(data))
        changed = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        with suppress(BadFramesError):
            assert b"".join(reader(changed).read()) == expected  # some bits of a frame's head mean nothing
    for size in range(len(data)):
        with pytest.raises(BadFramesError):
            list(reader(data[:size]).read())
