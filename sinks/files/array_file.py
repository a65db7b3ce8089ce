"""Arrays in one scratch file, by name: what a task leaves for others, read where it lies."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.files.durable_file import write_scratch

# By name, an array, or several of one dimension that are to be one.
Arrays = Mapping[str, np.ndarray[Any, Any] | Sequence[np.ndarray[Any, Any]]]

_ALIGNMENT = 64
_HEADER_SIZE_BYTES = 8


def write_arrays(directory: Path, arrays: Arrays) -> Path:
    """Write C-contiguous arrays to a new file of `directory`; not durable."""
    named = {name: [values] if isinstance(values, np.ndarray) else values for name, values in arrays.items()}
    header = json.dumps([[name, values[0].dtype.descr, _shape(values)] for name, values in named.items()]).encode()
    parts = [memoryview(len(header).to_bytes(_HEADER_SIZE_BYTES, "little") + header)]
    at = len(parts[0])
    for values in named.values():
        parts += [memoryview(bytes(-at % _ALIGNMENT)), *(each.reshape(-1).view(np.uint8).data for each in values)]
        at += -at % _ALIGNMENT + sum(each.nbytes for each in values)
    return write_scratch(directory, *parts)


def _shape(values: Sequence[np.ndarray[Any, Any]]) -> list[int]:
    return [sum(len(each) for each in values), *values[0].shape[1:]]


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file that `write_arrays` wrote, mapped: only what is used is read; changes stay in memory."""
    with path.open("rb") as file:
        # Of read-only arrays, numba would compile every kernel once more.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    at = _HEADER_SIZE_BYTES + int.from_bytes(data[:_HEADER_SIZE_BYTES], "little")
    arrays = {}
    for name, fields, shape in json.loads(data[_HEADER_SIZE_BYTES:at]):
        dtype = np.dtype([tuple(field) for field in fields]) if fields[0][0] else np.dtype(fields[0][1])
        at += -at % _ALIGNMENT
        arrays[name] = np.frombuffer(data, dtype, int(np.prod(shape)), at).reshape(shape)
        at += arrays[name].nbytes
    return arrays
