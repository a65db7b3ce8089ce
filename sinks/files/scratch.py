"""Files by which tasks hand bulk results to the driver, instead of rows through the JVM.

A micro-batch's entries are tens of megabytes; as Spark rows they were copied ten times on the way, which took longer
than decoding the log. The files live in reput's own folder for as long as one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from reput.sinks.files.durable_file import DurableFiles, write_scratch
from reput.sinks.files.store_path import REPUT, SCRATCH


class Scratch:
    """The scratch files of one output."""

    def __init__(self, files: DurableFiles) -> None:
        self._files = files
        self.directory = files.root / REPUT / SCRATCH

    def clear(self) -> None:
        """Make the directory, and remove what a run that died left in it."""
        self._files.make_directory(REPUT, SCRATCH)
        for path in list(self.directory.iterdir()):
            self._files.remove(REPUT, SCRATCH, path.name)

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove files that tasks wrote."""
        for path in paths:
            self._files.remove(REPUT, SCRATCH, path.name)

    def read(self, paths: Iterable[Path]) -> pa.Table:
        """The tables that tasks wrote, as one, in this order."""
        tables = []
        for path in paths:
            with pa.OSFile(str(path)) as file:
                tables.append(pa.ipc.open_stream(file).read_all())
        return pa.concat_tables(tables)


def write_table(directory: Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Path:
    """Write `batches` to a new scratch file."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return write_scratch(directory, memoryview(buffer.getvalue()))
