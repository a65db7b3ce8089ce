"""One broker's rows out of a table's data files, read without Spark, as they are compared with the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.delta_files import FileBounds
from reput.sinks.table.record_digest import COMPARED, StretchSums, table_fields
from reput.sinks.table.row_retention import ExpiryLimits
from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Bools, Int64s
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

    def fields(self, file: RowsFile) -> Iterator[list[Int64s]]:
        """The rows of a file as the columns of ``record_digest.COMPARED``, some at a time.

        Raises
        ------
        OSError, pa.ArrowException
            The file cannot be read.
        """
        first = 0
        with self.storage.parquet(file.name, coerce_int96_timestamp_unit="us") as parquet:
            wanted = (*COMPARED, "broker", *(() if self.expired.latest_ms is None else ("topic",)))
            columns = [name for name in wanted if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
                keep = self._is_of_broker(batch)
                if file.kept is not None:
                    kept = file.kept[first : first + len(keep)]
                    keep[: len(kept)] &= kept
                first += len(keep)
                fields = table_fields(batch)
                if self.least is not None:
                    keep &= fields[0] >= self.least
                if self.expired.latest_ms is not None:
                    keep &= ~self._has_expired(batch, fields[COMPARED.index("store_time")])
                yield [values[keep] for values in fields]

    def sums(self, file: RowsFile) -> FileSums:
        """The sums over a file's rows; of one that is damaged, over those before the damage."""
        found = FileSums()
        try:
            for fields in self.fields(file):
                found.sums.take(fields)
        except _DAMAGED as error:
            said = printable(str(error).strip().partition("\n")[0])
            found.problem = f"cannot be read: {said}"
        return found

    def readable_fields(self, file: RowsFile) -> Iterator[list[Int64s]]:
        """What `fields` gives, up to where the file is damaged."""
        with suppress(*_DAMAGED):
            yield from self.fields(file)

    def _is_of_broker(self, batch: pa.RecordBatch) -> Bools:
        if "broker" not in batch.schema.names:
            return np.zeros(batch.num_rows, np.bool_)
        equal = pc.fill_null(pc.equal(batch.column("broker").cast(pa.string()), self.broker), fill_value=False)
        return np.array(equal.to_numpy(zero_copy_only=False), np.bool_)

    def _has_expired(self, batch: pa.RecordBatch, store_times_ms: Int64s) -> Bools:
        if "topic" not in batch.schema.names:
            return np.zeros(batch.num_rows, np.bool_)
        topics = batch.column("topic").cast(pa.string()).dictionary_encode()
        codes = pc.fill_null(topics.indices, -1).to_numpy()
        return self.expired.mask(codes, topics.dictionary.to_pylist(), store_times_ms)
