"""Deletion vectors as Delta's protocol has them: what each kind of container holds, and where a vector is."""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reput.sinks.table import data_file
from reput.sinks.table.data_file import deleted_rows
from reput.sinks.table.storage import table_storage

# One container as an array, one as a bitset; one of runs beside them, and numbers beyond 32 bits.
SPARSE, DENSE = [0, 3, 65535], [*range(70_000, 76_000, 1)]
FAR = [2**32 + 1, 2**32 + 2, 2**32 + 70_000]


def container(low: list[int]) -> bytes:
    if len(low) <= 4096:
        return np.array(low, "<u2").tobytes()
    bits = np.zeros(65536, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def bitmap(rows: list[int], *, runs: bool = False) -> bytes:
    keys = sorted({row >> 16 for row in rows})
    parts = [[row & 0xFFFF for row in rows if row >> 16 == key] for key in keys]
    described = b"".join(struct.pack("<HH", key, len(part) - 1) for key, part in zip(keys, parts, strict=True))
    if not runs:
        offsets = struct.pack(f"<{len(keys)}I", *[0] * len(keys))
        return struct.pack("<II", 12346, len(keys)) + described + offsets + b"".join(map(container, parts))
    flags = bytes([(1 << len(keys)) - 1])
    stored = b""
    for part in parts:
        cuts = [0, *(n for n in range(1, len(part)) if part[n] != part[n - 1] + 1), len(part)]
        pairs = [(part[begin], end - begin - 1) for begin, end in zip(cuts, cuts[1:], strict=False)]
        stored += struct.pack("<H", len(pairs)) + b"".join(struct.pack("<HH", *pair) for pair in pairs)
    offsets = struct.pack(f"<{len(keys)}I", *[0] * len(keys)) if len(keys) >= 4 else b""
    return struct.pack("<I", 12347 | (len(keys) - 1) << 16) + flags + described + offsets + stored


def vector(rows: list[int], *, runs: bool = False) -> bytes:
    keys = sorted({row >> 32 for row in rows})
    parts = [bitmap([row & 0xFFFFFFFF for row in rows if row >> 32 == key], runs=runs) for key in keys]
    stored = b"".join(struct.pack("<I", key) + part for key, part in zip(keys, parts, strict=True))
    return struct.pack("<Iq", 1681511377, len(keys)) + stored


def z85(data: bytes) -> str:
    from_b85 = bytes.maketrans(data_file._B85, data_file._Z85)
    return base64.b85encode(data).translate(from_b85).decode()


def in_file(root: Path, data: bytes, cardinality: int, prefix: str = "") -> dict[str, Any]:
    """A vector behind another one in a file."""
    name = uuid.uuid4()
    path = root / prefix / f"deletion_vector_{name}.bin"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x01other" + struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
    told = {"storageType": "u", "pathOrInlineDv": prefix + z85(name.bytes), "offset": 6}
    return {**told, "sizeInBytes": len(data), "cardinality": cardinality}


@pytest.mark.parametrize("prefix", ["", "ab"])
@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("rows", [SPARSE, DENSE, SPARSE + DENSE, SPARSE + DENSE + FAR, [*range(0, 2**19, 2**16)], []])
def test_what_is_in_a_file(rows: list[int], runs: bool, prefix: str, tmp_path: Path) -> None:
    told = in_file(tmp_path, vector(rows, runs=runs), len(rows), prefix)
    assert deleted_rows(table_storage(tmp_path), told).tolist() == rows
    if not prefix:
        name = next(tmp_path.glob("*.bin"))
        there = {**told, "storageType": "p", "pathOrInlineDv": name.as_uri()}
        assert deleted_rows(table_storage(tmp_path), there).tolist() == rows


def test_what_is_in_the_log(tmp_path: Path) -> None:
    """The example of Delta's protocol is one of these."""
    data = vector(SPARSE)
    data += bytes(-len(data) % 4)
    told = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data), "cardinality": 3}
    assert deleted_rows(table_storage(tmp_path), told).tolist() == SPARSE
    example = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    told = {"storageType": "i", "pathOrInlineDv": example, "sizeInBytes": 44, "cardinality": 6}
    assert deleted_rows(table_storage(tmp_path), told).tolist() == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize("damage", ["bit", "cut", "gone", "kind", "count"])
def test_damage(damage: str, tmp_path: Path) -> None:
    told = in_file(tmp_path, vector(SPARSE), 3)
    path = next(tmp_path.glob("*.bin"))
    content = path.read_bytes()
    if damage == "bit":
        path.write_bytes(content[:30] + bytes([content[30] ^ 1]) + content[31:])
    elif damage == "cut":
        path.write_bytes(content[:20])
    elif damage == "gone":
        path.unlink()
    else:
        told |= {"storageType": "x"} if damage == "kind" else {"cardinality": 2}
    with pytest.raises(OSError):
        deleted_rows(table_storage(tmp_path), told)
