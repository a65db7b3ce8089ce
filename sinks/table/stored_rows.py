"""One broker's rows out of a table's data files, read without Spark, as they are compared with the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reput.sinks.table.delta_files import FileBounds
from reput.sinks.table.live_rows import is_of_broker
from reput.sinks.table.message_file import TABLE_SCHEMA, TEXT_COLUMNS
from reput.sinks.table.record_digest import COLUMNS, StretchSums, expired_rows, row_digests
from reput.sinks.table.row_retention import ExpiryLimits
from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Bools
from reput.source.printable import printable

_ROWS_AT_ONCE = 64 * 1024
# What a file raises that cannot be read.
_DAMAGED = (OSError, pa.ArrowException)


@dataclass(frozen=True)
class RowsFile:
    """A data file of the table's present version.

    `name` is its name as ``TableStorage`` has it; `kept` as in ``FileList.kept_rows``.
    """

    name: str
    bounds: FileBounds
    kept: Bools | None = None


@dataclass
class FileSums:
    """The sums over a file's rows; `problem` says why some of them could not be read, None if all were."""

    sums: StretchSums = field(default_factory=StretchSums)
    problem: str | None = None


@dataclass(frozen=True)
class RowsReader:
    """Reads the rows of `broker` that have not expired by `expired`, from the physical offset `least` on; None: all."""

    storage: TableStorage
    broker: str
    expired: ExpiryLimits
    least: int | None = None

    def batches(self, file: RowsFile) -> Iterator[pa.RecordBatch]:
        """The rows of a file, with those of ``record_digest.COLUMNS`` that it has, some at a time.

        Raises
        ------
        OSError, pa.ArrowException
            The file cannot be read.
        """
        first = 0
        with self.storage.open(file.name) as opened:
            known = pq.ParquetFile(opened)
            columns = [name for name in (*COLUMNS, "broker") if name in known.schema_arrow.names]
            texts = [name for name in TEXT_COLUMNS if name in columns]
            parquet = pq.ParquetFile(
                opened, metadata=known.metadata, coerce_int96_timestamp_unit="us", read_dictionary=texts
            )
            for batch in map(_without_views, parquet.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False)):
                keep = self._is_of_broker(batch)
                if file.kept is not None:
                    kept = file.kept[first : first + len(keep)]
                    keep[: len(kept)] &= kept
                first += len(keep)
                if self.least is not None:
                    keep &= _is_from(batch, self.least)
                if (expired := expired_rows(batch, self.expired)) is not None:
                    keep &= ~expired
                yield batch if keep.all() else batch.filter(pa.array(keep))

    def sums(self, file: RowsFile) -> FileSums:
        """The sums over a file's rows; of one that is damaged, over those before the damage."""
        found = FileSums()
        try:
            for rows in self.batches(file):
                found.sums.take(row_digests(rows))
        except _DAMAGED as error:
            said = printable(str(error).strip().partition("\n")[0])
            found.problem = f"cannot be read: {said}"
        return found

    def readable(self, file: RowsFile) -> Iterator[pa.RecordBatch]:
        """What `batches` gives, up to where the file is damaged."""
        with suppress(*_DAMAGED):
            yield from self.batches(file)

    def _is_of_broker(self, batch: pa.RecordBatch) -> Bools:
        if "broker" not in batch.schema.names:
            return np.zeros(batch.num_rows, np.bool_)
        return np.array(is_of_broker(batch, self.broker))  # a copy, which may be written


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain texts: deltalake's files have views, which pyarrow cannot filter."""
    columns = [
        column.cast(TABLE_SCHEMA.field(name).type) if "_view" in str(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_from(batch: pa.RecordBatch, least: int) -> Bools:
    if "physical_offset" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.bool_)
    offsets = batch.column("physical_offset").cast(pa.int64()).fill_null(-1).to_numpy()
    is_from: Bools = offsets >= least
    return is_from
