"""Scratch files of named arrays, in which tasks hand bulk results to the driver, which maps them into memory.

A micro-batch's entries are tens of megabytes. As Spark rows they were copied ten times on the way, which took longer
than decoding the log. The files stay in reput's own folder for one micro-batch.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.durable_file import DurableFiles, write_scratch
from reput.sinks.files.store_path import REPUT, SCRATCH

_ALIGNMENT = 64
_HEADER_SIZE_BYTES = 8


class Scratch:
    """The scratch files of one output."""

    def __init__(self, files: DurableFiles) -> None:
        self._files = files
        self.directory = files.root / REPUT / SCRATCH

    def clear(self) -> None:
        """Make the directory, and remove the files of a run that died."""
        self._files.make_directory(REPUT, SCRATCH)
        self.sweep()

    def sweep(self) -> None:
        """Remove all files; do nothing if the directory, or the whole output, cannot be reached."""
        if self.directory.is_dir():
            for path in list(self.directory.iterdir()):
                self._files.remove(REPUT, SCRATCH, path.name)

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files that tasks wrote."""
        for path in paths:
            self._files.remove(REPUT, SCRATCH, path.name)


def write_arrays(directory: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    """Write C-contiguous arrays, by name, to a new file in `directory`, not durably."""
    header = json.dumps([[name, values.dtype.descr, values.shape] for name, values in arrays.items()]).encode()
    parts = [memoryview(len(header).to_bytes(_HEADER_SIZE_BYTES, "little") + header)]
    at = len(parts[0])
    for values in arrays.values():
        parts += [memoryview(bytes(-at % _ALIGNMENT)), values.reshape(-1).view(np.uint8).data]
        at += -at % _ALIGNMENT + values.nbytes
    return write_scratch(directory, *parts)


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Map the arrays of a file that `write_arrays` wrote: only used parts are read, and changes stay in memory."""
    with path.open("rb") as file:
        # For read-only arrays numba would compile every kernel again.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    at = _HEADER_SIZE_BYTES + int.from_bytes(data[:_HEADER_SIZE_BYTES], "little")
    arrays = {}
    for name, fields, shape in json.loads(data[_HEADER_SIZE_BYTES:at]):
        dtype = np.dtype([tuple(field) for field in fields]) if fields[0][0] else np.dtype(fields[0][1])
        at += -at % _ALIGNMENT
        arrays[name] = np.frombuffer(data, dtype, int(np.prod(shape)), at).reshape(shape)
        at += arrays[name].nbytes
    return arrays
