"""Which rows of a data file have expired by ``tableRetention``, and when the next one will."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.row_retention import NEVER_MS, NO_TIME, ExpiryLimits
from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Bools, Int64s

_ROWS_A_BATCH = 128 * 1024
_COLUMNS = ("broker", "topic", "store_time")


@dataclass
class Expired:
    """Rows that have expired, and the number of files that had them."""

    rows: int = 0
    files: int = 0


@dataclass(frozen=True)
class FileExpiry:
    """How many rows of a file have expired, and when the first of all does, or did, in milliseconds since 1970."""

    rows: int
    first_ms: int


@dataclass(frozen=True)
class ExpiredRows:
    """The rows of `broker` that have expired by `limits`."""

    broker: str
    limits: ExpiryLimits

    def mask(self, rows: pa.RecordBatch) -> Bools:
        """Which of the rows have expired."""
        codes, topics = _numbered(rows)
        return self._is_ours(rows) & self.limits.mask(codes, topics, _store_times_ms(rows))

    def look_into(self, storage: TableStorage, name: str) -> FileExpiry:
        """Look into a data file, also at rows that a deletion vector takes away.

        Raises
        ------
        OSError, LookupError, pa.ArrowException
            The file cannot be read.
        """
        expired, first_ms = 0, NEVER_MS
        with storage.parquet(name, coerce_int96_timestamp_unit="us") as file:
            for rows in file.iter_batches(_ROWS_A_BATCH, columns=list(_COLUMNS)):
                codes, topics = _numbered(rows)
                times = _store_times_ms(rows)
                counted = self._is_ours(rows) & (times != NO_TIME)
                expired += int(np.count_nonzero(counted & self.limits.mask(codes, topics, times)))
                least = np.full(len(topics) + 1, NEVER_MS, np.int64)  # the last is that of rows without a topic
                np.minimum.at(least, codes[counted], times[counted])
                oldest = dict(zip(topics, least.tolist(), strict=False))
                there = {topic: time_ms for topic, time_ms in oldest.items() if time_ms < NEVER_MS}
                first_ms = min(first_ms, self.limits.first_expiry_ms(there))
        return FileExpiry(expired, first_ms)

    def _is_ours(self, rows: pa.RecordBatch) -> Bools:
        ours = pc.fill_null(pc.equal(rows["broker"], self.broker), fill_value=False)
        found: Bools = ours.to_numpy(zero_copy_only=False)
        return found


def _numbered(rows: pa.RecordBatch) -> tuple[Int64s, list[str]]:
    """A number for each row's topic, -1 for a row without one, and the topics by number."""
    topics = rows["topic"]
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    codes: Int64s = pc.fill_null(topics.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return codes, topics.dictionary.to_pylist()


def _store_times_ms(rows: pa.RecordBatch) -> Int64s:
    micros = rows["store_time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    times: Int64s = pc.fill_null(micros, NO_TIME).to_numpy(zero_copy_only=False)
    return np.where(times == NO_TIME, times, times // 1000)
