"""Ranges of the log, and their form as rows. A process that only passes them on loads no compiled code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from reput.source.log.mapped_file_queue import MappedFile

# A row is a range: `[start, end)` of the log inside the segment `file`, with its first byte, size and frame (bytes).
RANGE_SCHEMA = pa.schema(
    [
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("file_from_offset", pa.int64(), nullable=False),
        pa.field("file_size", pa.int64(), nullable=False),
        pa.field("frame", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class OffsetRange:
    """`[start, end)` of the log, inside one segment; a record or the blank begins at both offsets."""

    start: int
    end: int
    file: MappedFile


def ranges_of(batches: Iterable[pa.RecordBatch]) -> Iterator[OffsetRange]:
    """The ranges in rows of `RANGE_SCHEMA`."""
    for batch in batches:
        for row in batch.to_pylist():
            file = MappedFile(row["file_from_offset"], row["file_size"], row["file"], row["frame"])
            yield OffsetRange(row["start"], row["end"], file)
