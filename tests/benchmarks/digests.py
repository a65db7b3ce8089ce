"""A digest of each queue and index file by what it holds, whatever of it is a hole on disk."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from support.store_compare import QUEUES

BLOCK_BYTES = 4096
READ_BYTES = 64 << 20

Digests = dict[str, str]


def store_digests(store: Path, *, index: bool = True) -> Digests:
    """Digests of a store's queue files by path and of its index files by number: an index file's name is a clock."""
    digests = {
        str(path.relative_to(store)): file_digest(path)
        for kind in QUEUES
        for path in sorted((store / kind).rglob("*"))
        if path.is_file()
    }
    if index and (store / "index").is_dir():
        for number, path in enumerate(sorted((store / "index").iterdir())):
            digests[f"index/{number}"] = file_digest(path)
    return digests


def differing_files(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Names of files that differ, or that only one side has."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def file_digest(path: Path) -> str:
    """Hash of the size and of every block that is not all zero, with its number; a hole and written zeros are equal."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        sha.update(struct.pack(">q", size))
        for start, end in _extents(file.fileno(), size):
            for at in range(start, end, READ_BYTES):
                data = os.pread(file.fileno(), min(READ_BYTES, end - at), at)
                blocks = np.frombuffer(data.ljust(-(-len(data) // BLOCK_BYTES) * BLOCK_BYTES, b"\0"), np.uint8)
                blocks = blocks.reshape(-1, BLOCK_BYTES)
                used = np.flatnonzero(blocks.any(axis=1))
                # Each block behind its own number: where holes are must not decide the order of what is hashed.
                numbers = (used + at // BLOCK_BYTES).astype(">i8").reshape(-1, 1).view(np.uint8)
                sha.update(np.concatenate([numbers, blocks[used]], axis=1).tobytes())
    return sha.hexdigest()


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the file has data, in whole blocks that do not overlap: 100,000 queue files are nearly all holes."""
    at = 0
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA) // BLOCK_BYTES * BLOCK_BYTES
        except OSError:
            return  # ENXIO: a hole up to the end
        end = min(size, -(-os.lseek(descriptor, start, os.SEEK_HOLE) // BLOCK_BYTES) * BLOCK_BYTES)
        yield max(start, at), end
        at = end
