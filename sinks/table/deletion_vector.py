"""The rows that a deletion vector takes away from a data file, read without Spark and deltalake."""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Int64s

# The alphabet of Z85, and that of Python's `b85decode`.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = bytes.maketrans(_Z85, _B85)
_MAGIC, _HEADER_BYTES = 1681511377, 12
_UUID_LENGTH = 20
# Roaring's words for a bitmap without and with containers of runs.
_NO_RUNS, _WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4
_ARRAY_MAX = 4096
_BITSET_BYTES = 8192


def deleted_rows(storage: TableStorage, vector: Mapping[str, Any]) -> Int64s:
    """The numbers of the rows that a vector takes away, ascending; `vector` is what the log says of it.

    Raises
    ------
    OSError
        It cannot be read.
    """
    try:
        found = _rows_of(_content(storage, vector))
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise OSError(f"a deletion vector cannot be read: {error}") from error
    if len(found) != int(vector["cardinality"]):
        raise OSError(f"a deletion vector has {len(found)} rows, not {vector['cardinality']}")
    return found


def _rows_of(data: bytes) -> Int64s:
    magic, count = struct.unpack_from("<Iq", data)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic}")
    parts, at = [np.empty(0, np.int64)], _HEADER_BYTES
    for _ in range(count):
        (key,) = struct.unpack_from("<I", data, at)
        rows, at = _bitmap(data, at + 4)
        parts.append((key << 32) + rows)
    return np.concatenate(parts)


def _content(storage: TableStorage, vector: Mapping[str, Any]) -> bytes:
    kind, text = vector["storageType"], str(vector["pathOrInlineDv"])
    if kind == "i":
        return _z85(text)
    if kind == "u":
        prefix, name = text[:-_UUID_LENGTH], uuid.UUID(bytes=_z85(text[-_UUID_LENGTH:]))
        path = f"{prefix}/deletion_vector_{name}.bin".lstrip("/")
    elif kind == "p":
        path = storage.name_of(text)
    else:
        raise ValueError(f"it is stored as {kind!r}")
    at, size = int(vector.get("offset") or 1), int(vector["sizeInBytes"])
    with storage.open(path) as file:
        file.seek(at)
        found = bytes(file.read(4 + size + 4))
    (length,), (checksum,) = struct.unpack_from(">i", found), struct.unpack_from(">I", found, 4 + size)
    data = found[4 : 4 + size]
    if length != size or checksum != zlib.crc32(data):
        raise ValueError(f"{path} is damaged at {at}")
    return data


def _z85(text: str) -> bytes:
    return base64.b85decode(text.encode("ascii").translate(_TO_B85))


def _bitmap(data: bytes, at: int) -> tuple[Int64s, int]:
    """The numbers in a roaring bitmap that begins at `at`, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    has_runs = cookie & 0xFFFF == _WITH_RUNS
    if has_runs:
        count, at = (cookie >> 16) + 1, at + 4
        flags = np.unpackbits(np.frombuffer(data, np.uint8, (count + 7) // 8, at), bitorder="little")[:count]
        at += (count + 7) // 8
    elif cookie == _NO_RUNS:
        (count,), at = struct.unpack_from("<I", data, at + 4), at + 8
        flags = np.zeros(count, np.uint8)
    else:
        raise ValueError(f"its bitmap begins with {cookie}")
    keys = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2).astype(np.int64)
    at += 4 * count + (4 * count if not has_runs or count >= _OFFSETS_FROM else 0)
    parts = [np.empty(0, np.int64)]
    for (key, rest), is_runs in zip(keys.tolist(), flags.tolist(), strict=True):
        rows, at = _container(data, at, rest + 1, is_runs=bool(is_runs))
        parts.append((key << 16) + rows)
    return np.concatenate(parts), at


def _container(data: bytes, at: int, count: int, *, is_runs: bool) -> tuple[Int64s, int]:
    if is_runs:
        (runs,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * runs, at + 2).reshape(-1, 2).astype(np.int64)
        ranges = [np.arange(first, first + more + 1) for first, more in pairs.tolist()]
        return np.concatenate([np.empty(0, np.int64), *ranges]), at + 2 + 4 * runs
    if count <= _ARRAY_MAX:
        return np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITSET_BYTES, at), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), at + _BITSET_BYTES
