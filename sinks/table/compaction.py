"""Fewer and larger files from a table's small ones, with rows of a topic together.

A file of a micro-batch has the rows of a few seconds in the order of the log. Files that follow each other there are
merged again and again, eight and more at a time, until they have `TARGET_BYTES` or `TARGET_ROWS`. A merged file is
sorted by topic, and by physical offset within a topic: readers that want a topic, an hour or an offset open few files,
and of these few row groups. Files are merged with files of the same day only, so that old days can be removed as files.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reput.sinks.table.commit import DataFile
from reput.sinks.table.key_filter import KeyFilterWriter
from reput.sinks.table.message_file import (
    DELTA_COLUMNS,
    DICTIONARY_NUMBERS,
    PREFIX_COLUMNS,
    TEXT_COLUMNS,
    FileStatistics,
    columns_with_bounds,
)
from reput.sinks.table.storage import TableStorage
from reput.source.log.store_layout import file_name

#: A file with half of these is not merged with others.
TARGET_BYTES, TARGET_ROWS = 32 * 1024 * 1024, 512 * 1024
# So many files of one level are merged, with the smaller ones between them. A level's files are that many times as
# large as those of the level below, so each row is written once for each level.
_MERGED_MIN, _MERGED_MAX = 8, 64
# What rows may take in the files, as they are encoded there, so that they and their sorted copy fit into 500 MB.
_ENCODED_BYTES = 96 * 1024 * 1024
# The texts of a dictionary that may stand in each row group.
_TEXTS_MAX = 1024
_MERGED = "merged-"
# Small groups, so that a reader of one topic reads little of the others.
_ROWS_A_GROUP = 32 * 1024
# Of these each row has another text, so that minima and maxima exclude nothing: each row group has Bloom filters, by
# which Spark and DuckDB pass over it.
_FILTERED_COLUMNS = ("first_key", "uniq_key", "msg_id")
_FALSE_POSITIVES = 0.01
# The values that a column's encoder gets at once: with Arrow's 1024, dictionaries' statistics cost more than the data.
_ROWS_A_WRITE = 16 * 1024


@dataclass(frozen=True)
class StoredFile:
    """A file of the table's present version that has rows of one broker only.

    `least` and `greatest` are the bounds of its physical offsets, both included; `first_time` and `last_time` those of
    its store times, None without.
    """

    path: str
    size_bytes: int
    rows: int
    least: int
    greatest: int
    first_time: datetime | None
    last_time: datetime | None

    @cached_property
    def share(self) -> float:
        """How much of a target file it is."""
        return max(self.size_bytes / TARGET_BYTES, self.rows / TARGET_ROWS)

    @property
    def is_large(self) -> bool:
        """Whether it is not merged with others any more."""
        return self.share >= 0.5

    @cached_property
    def level(self) -> int:
        """Which files it is merged with."""
        return math.floor(math.log(max(self.share, 1e-9), _MERGED_MIN))

    @property
    def is_sorted(self) -> bool:
        """Whether a merge wrote it."""
        return self.path.startswith(_MERGED)

    @property
    def day(self) -> tuple[object, object]:
        """What files must have in common to be merged."""
        return tuple(time and time.date() for time in (self.first_time, self.last_time))  # type: ignore[return-value]


def next_merge(files: Sequence[StoredFile]) -> list[StoredFile]:
    """The files to be merged next, consecutive in the log; none if the table is tidy.

    The smallest first, since these are the most; of a day that is over, whatever is left.
    """
    ordered = sorted(files, key=lambda file: file.least)
    days = [list(each) for _, each in groupby(ordered, lambda file: file.day)]
    for day in days[:-1]:
        for run in _runs(day, math.inf):
            if len(merged := _fitting(run)) > 1:
                return merged
    for level in sorted({file.level for file in files if not file.is_large}):
        for day in days:
            for run in _runs(day, level):
                if sum(file.level == level for file in run) >= _MERGED_MIN:
                    return _fitting(run)
    return []


def _runs(files: Sequence[StoredFile], level_max: float) -> Iterator[list[StoredFile]]:
    """The consecutive files that are neither large nor above a level."""
    for is_small, run in groupby(files, lambda file: not file.is_large and file.level <= level_max):
        if is_small:
            yield list(run)


def _fitting(run: Sequence[StoredFile]) -> list[StoredFile]:
    """The first files of the run that make a file of the target size together."""
    fitting: list[StoredFile] = []
    share = 0.0
    for file in run[:_MERGED_MAX]:
        if fitting and share + file.share > 1:
            break
        fitting.append(file)
        share += file.share
    return fitting


def next_unsorted(files: Sequence[StoredFile]) -> list[StoredFile]:
    """The oldest file that is large enough and in the order of the log, as a batch far behind writes them, or none."""
    wanted = [file for file in files if file.is_large and not file.is_sorted]
    return sorted(wanted, key=lambda file: file.least)[:1]


class Merge:
    """Merges `files` of a table into files that are sorted; nothing of the table's log is changed."""

    def __init__(self, storage: TableStorage, files: Sequence[StoredFile]) -> None:
        self._storage = storage
        self._filters = KeyFilterWriter(storage)
        self.files = tuple(files)

    def write(self) -> list[DataFile]:
        """Write the merged files, mostly one, with their key filters, and return them; a commit makes them durable.

        Raises
        ------
        OutputError
            A file cannot be written.
        OSError
            One of the files cannot be read.
        """
        return [self._write(group) for group in self._groups()]

    def _groups(self) -> Iterator[list[tuple[str, list[int]]]]:
        """The files' row groups, in the order of the log, as many at a time as fit into memory."""
        group: dict[str, list[int]] = {}
        encoded = 0
        for path in (file.path for file in self.files):
            with self._storage.parquet(path) as file:
                metadata = file.metadata
            for number in range(metadata.num_row_groups):
                size_bytes = metadata.row_group(number).total_byte_size
                if group and encoded + size_bytes > _ENCODED_BYTES:
                    yield list(group.items())
                    group, encoded = {}, 0
                group.setdefault(path, []).append(number)
                encoded += size_bytes
        yield list(group.items())

    def _write(self, group: Sequence[tuple[str, list[int]]]) -> DataFile:
        rows = sorted_by_topic(_read(self._storage, group))
        statistics, buffer = FileStatistics(), pa.BufferOutputStream()
        with _parquet_writer(buffer, rows.schema) as writer:
            writer.write_table(rows, row_group_size=_ROWS_A_GROUP)
        statistics.add(rows)
        least, greatest = pc.min_max(rows["physical_offset"]).as_py().values()
        name = f"{_MERGED}{file_name(least)}-{file_name(greatest)}-{uuid.uuid4()}.zstd.parquet"
        file = DataFile.put(self._storage, name, buffer.getvalue(), statistics.to_json())
        self._filters.write(name, rows)
        return file


def _read(storage: TableStorage, group: Sequence[tuple[str, list[int]]]) -> pa.Table:
    """The row groups' rows, one behind the other; columns that others added to some files are null in the rest."""
    tables = []
    for path, numbers in group:
        with storage.open(path) as opened:
            found = pq.read_schema(opened).names
            with pq.ParquetFile(opened, read_dictionary=[name for name in TEXT_COLUMNS if name in found]) as file:
                tables.append(file.read_row_groups(numbers, use_threads=False))
    rows = pa.concat_tables(tables, promote_options="default").unify_dictionaries().combine_chunks()
    for number, column in enumerate(rows.columns):
        # A row group gets the whole dictionary, whatever its rows have of it.
        if pa.types.is_dictionary(column.type) and len(column.chunk(0).dictionary) > _TEXTS_MAX:
            field = rows.schema.field(number).with_type(pa.string())
            rows = rows.set_column(number, field, column.cast(pa.string()))
    return rows


def sorted_by_topic(rows: pa.Table) -> pa.Table:
    """The rows by topic, and by physical offset within one."""
    topics = rows["topic"].dictionary_encode().unify_dictionaries().combine_chunks()
    ranks = pc.rank(topics.dictionary, tiebreaker="dense").to_numpy()
    codes = np.append(ranks, 0)[pc.fill_null(topics.indices, len(ranks)).to_numpy()]
    order = np.lexsort((rows["physical_offset"].to_numpy(), codes))
    return rows.take(pa.array(order))


def _parquet_writer(buffer: pa.BufferOutputStream, schema: pa.Schema) -> pq.ParquetWriter:
    """Arrow's writer, into memory: `schema` may have columns that others added, and filters are its."""
    options = {"ndv": _ROWS_A_GROUP, "fpp": _FALSE_POSITIVES}
    return pq.ParquetWriter(
        buffer,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[*TEXT_COLUMNS, "properties.key_value.key", *DICTIONARY_NUMBERS],
        column_encoding=dict.fromkeys(DELTA_COLUMNS, "DELTA_BINARY_PACKED")
        | dict.fromkeys(PREFIX_COLUMNS, "DELTA_BYTE_ARRAY"),
        write_statistics=columns_with_bounds(schema),
        write_batch_size=_ROWS_A_WRITE,
        store_schema=False,  # readers must see texts, not Arrow's dictionaries
        bloom_filter_options={name: options for name in _FILTERED_COLUMNS if name in schema.names} or None,
    )
