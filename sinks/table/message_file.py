"""One Parquet file of the message table: written by a task from the log, and rewritten without some of its rows."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from reput.sinks.dispatch.batch import RESULT_FIELDS, last_record_of
from reput.sinks.parquet.parquet_file import ParquetFile
from reput.sinks.table.columns import BODY_SCHEMA
from reput.sinks.table.data_file import DataFile, FileStatistics, live_numbers, rows_at
from reput.sinks.table.forgotten_rows import NONE_FORGOTTEN, ForgottenRows
from reput.sinks.table.log import Snapshot
from reput.sinks.table.storage import TableStorage, output_errors
from reput.source.arrays import Bools, Int64s
from reput.source.errors import CorruptRecordError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.log.segment_scan import Window
from reput.source.log.store_layout import file_name
from reput.source.record.message_body import decompress_body
from reput.source.record.message_format import COMPRESSED_FLAG
from reput.source.rows.message_rows import ENCODED_SCHEMA, MessageRows
from reput.source.rows.message_schema import MESSAGE_SCHEMA

# ----------------------------------------------------------------------------------------------------------------------
# The bodies of messages as two optional columns of the table: as text, or as bytes.

# The memory of a row beside its body.
_ROW_BYTES = 64


class BodyColumns:
    """The bodies of records, decompressed, until they are cleared; null for those of more than `bytes_max` bytes.

    A body that cannot be decompressed is also null. A body of UTF-8 is in `body`, any other in `body_bytes`.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._texts: list[str | None] = []
        self._bytes: list[bytes | None] = []
        self.size_bytes = 0

    def add(self, columns: RecordColumns, room: int) -> int:
        """Add the bodies of the first records, until they take `room` bytes; return how many, at least one of any.

        At most one body too many is decompressed: small bodies may hold much.
        """
        until = self.size_bytes + room
        data, spans = columns.data.data, columns.parts[:, [rk.BODY, rk.BODY_SIZE]].tolist()
        for count, ((start, size), sys_flag) in enumerate(zip(spans, columns.sys_flag.tolist(), strict=True)):
            if count and self.size_bytes >= until:
                return count
            self._add(bytes(data[start : start + size]), sys_flag)
        return len(columns)

    def _add(self, stored: bytes, sys_flag: int) -> None:
        plain = self._plain(stored, sys_flag) if sys_flag & COMPRESSED_FLAG else stored
        self.size_bytes += _ROW_BYTES
        text = other = None
        if plain is not None and len(plain) <= self._bytes_max:
            self.size_bytes += len(plain)
            try:
                text = plain.decode()
            except UnicodeDecodeError:
                other = plain
        self._texts.append(text)
        self._bytes.append(other)

    def _plain(self, stored: bytes, sys_flag: int) -> bytes | None:
        try:
            return decompress_body(stored, sys_flag, size_max=self._bytes_max)
        except CorruptRecordError:
            return None

    def arrays(self) -> list[pa.Array]:
        """The columns of `BODY_SCHEMA`."""
        columns = (self._texts, self._bytes)
        return [pa.array(values, kind) for values, kind in zip(columns, BODY_SCHEMA.types, strict=True)]

    def clear(self) -> None:
        """Forget all."""
        self._texts.clear()
        self._bytes.clear()
        self.size_bytes = 0


# The table's columns: the broker's name, then those of a message. All are nullable in Delta: a constraint on a column
# would cost every writer a check per row.
TABLE_SCHEMA = pa.schema(
    [pa.field(field.name, field.type) for field in [pa.field("broker", pa.string()), *MESSAGE_SCHEMA]]
)


def table_schema(*, include_body: bool) -> pa.Schema:
    """The table's columns: `TABLE_SCHEMA`, and those of ``columns.BODY_SCHEMA`` on request."""
    return pa.schema([*TABLE_SCHEMA, *BODY_SCHEMA]) if include_body else TABLE_SCHEMA


# Delta keeps minima and maxima only of these columns: statistics on all columns cost more than the data.
STATISTICS_COLUMNS = ("broker", "topic", "queue_id", "queue_offset", "physical_offset", "store_time")

# The types in which the columns are written: dictionaries go into the file unchanged.
_FILE_SCHEMA = pa.schema(
    [pa.field(field.name, field.type) for field in [ENCODED_SCHEMA.field("topic").with_name("broker"), *ENCODED_SCHEMA]]
)
_TEXT = _FILE_SCHEMA.field("broker").type
#: The columns that have a dictionary of texts in a file.
TEXT_COLUMNS = [field.name for field in _FILE_SCHEMA if field.type == _TEXT]
#: Numbers that repeat, and those that differ little from row to row.
DICTIONARY_NUMBERS = ("tags_code",)
DELTA_COLUMNS = ("queue_id", "queue_offset", "physical_offset", "msg_size", "body_size")
# Ids and keys count up: each begins like the one of the previous row.
PREFIX_COLUMNS = ("msg_id", "uniq_key", "first_key", "keys.list.element")
# Each column takes a pass over the window's records, which stay in the processor's second cache.
WINDOW_BYTES = 1024 * 1024
_ROWS_A_GROUP = 128 * 1024
# Arrow counts the bytes of a group's texts in 32 bits.
_TEXT_A_GROUP = 64 * 1024 * 1024
# Rows whose file is finished: the next file of this process reuses their memory, which has the size of a row group by
# then. Growing to that size, with each page cleared by the system, took a twentieth of the time.
_spare_rows: list[MessageRows] = []

TABLE_FILE_SCHEMA = pa.schema(
    [
        *RESULT_FIELDS,
        # The file below the table's root; null if the range has no message.
        pa.field("path", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("modification_time_ms", pa.int64()),
        pa.field("statistics_json", pa.string()),
    ]
)

#: The columns of it that a ``DataFile`` has.
FILE_COLUMNS = TABLE_FILE_SCHEMA.names[len(RESULT_FIELDS) :]


@dataclass(frozen=True)
class TableFileWriter:
    """Writes the messages of ranges below a table's root; made by the driver, used by its tasks.

    Attributes
    ----------
    table
        The table's files.
    broker
        The value of the column `broker`.
    trim_from
        Records before this physical offset are in the table already.
    decode
        How records are decoded.
    body_bytes_max
        The size of the largest body that the table gets, in bytes, decompressed; None for a table without bodies.
    forgotten
        Rows that are not made again.
    """

    table: TableStorage
    broker: str
    trim_from: int
    decode: DecodeOptions
    body_bytes_max: int | None = None
    forgotten: ForgottenRows = NONE_FORGOTTEN

    def write(self, span: OffsetRange, *, passes_over: bool = True) -> pa.RecordBatch:
        """Write the messages of a range as one file; return one row of `TABLE_FILE_SCHEMA`.

        `passes_over` as in ``read_windows``; memory as in `RangeFile`.
        """
        table_file = RangeFile(self, span)
        if table_file.start < span.end:
            read = span.file, table_file.start, span.end, self.decode, WINDOW_BYTES
            deque(table_file.passing(read_windows(*read, passes_over=passes_over)), maxlen=0)
        return pa.RecordBatch.from_pylist([table_file.finish()], TABLE_FILE_SCHEMA)


class RangeFile:
    """The file of a range while it is written, with the records from `start` on, which the table does not have yet.

    Memory: a row group of at most `_ROWS_A_GROUP` rows and `_TEXT_A_GROUP` of texts, each plus one window's, where a
    row with few properties takes about 350 bytes; and the file, which is compressed. Bodies count as texts; a group has
    at most one body too many.
    """

    def __init__(self, writer: TableFileWriter, span: OffsetRange) -> None:
        self._table = writer.table
        self._forgotten = writer.forgotten
        self._span = span
        self.start = max(span.start, writer.trim_from)
        self._broker = pa.array([writer.broker], pa.string())
        self._rows = _take_rows()
        self._bodies = None if writer.body_bytes_max is None else BodyColumns(writer.body_bytes_max)
        self._schema = _FILE_SCHEMA if self._bodies is None else pa.schema([*_FILE_SCHEMA, *BODY_SCHEMA])
        self._last_record: list[int] | None = None
        self._statistics = FileStatistics(STATISTICS_COLUMNS)
        self._file = ParquetFile(
            self._schema,
            by_difference=DELTA_COLUMNS,
            by_prefix=PREFIX_COLUMNS,
            by_number=DICTIONARY_NUMBERS,
            with_bounds=columns_with_bounds(self._schema),
        )

    def passing(self, windows: Iterable[Window]) -> Iterator[Window]:
        """The unchanged windows; the records of each are added before it is passed on."""
        for window in windows:
            if len(window.columns):
                self._add(self._forgotten.left_of(window.columns))
                self._last_record = last_record_of(window.columns)
            yield window

    def _add(self, columns: RecordColumns) -> None:
        while len(columns):
            taken = columns
            if self._bodies is not None:
                taken = columns.first(self._bodies.add(columns, _TEXT_A_GROUP - self._text_bytes))
            self._rows.add(taken)
            if len(self._rows) >= _ROWS_A_GROUP or self._text_bytes >= _TEXT_A_GROUP:
                self._write_group()
            columns = columns.behind(len(taken))

    @property
    def _text_bytes(self) -> int:
        return self._rows.text_bytes + (self._bodies.size_bytes if self._bodies is not None else 0)

    def _write_group(self) -> None:
        if not len(self._rows):
            return
        rows = self._rows.batch()
        broker = pa.DictionaryArray.from_arrays(np.zeros(rows.num_rows, np.int32), self._broker)
        bodies = [] if self._bodies is None else self._bodies.arrays()
        group = pa.RecordBatch.from_arrays([broker, *rows.columns, *bodies], schema=self._schema)
        self._file.write(group)
        self._statistics.add(pa.Table.from_batches([group]))
        self._rows.clear()
        if self._bodies is not None:
            self._bodies.clear()

    def finish(self) -> dict[str, Any]:
        """Write the added records, durable once committed; return a row of `TABLE_FILE_SCHEMA`, path None if empty."""
        self._write_group()
        data = self._file.finish()
        _spare_rows.append(self._rows)
        del self._rows
        row: dict[str, Any] = dict.fromkeys(TABLE_FILE_SCHEMA.names)
        row.update(start=self._span.start, end=self._span.end, messages=self._statistics.rows)
        row["last_record"] = self._last_record
        if not self._statistics.rows:
            return row
        # No name is used twice: other brokers share the table, and a committed file stays for ever.
        name = f"part-{file_name(self.start)}-{file_name(self._span.end)}-{uuid.uuid4()}.zstd.parquet"
        file = DataFile.put(self._table, name, data, self._statistics.to_json())
        return row | {name: getattr(file, name) for name in FILE_COLUMNS}


def _take_rows() -> MessageRows:
    try:
        return _spare_rows.pop()
    except IndexError:  # not checked before `pop`: other threads also take from the list
        return MessageRows()


def columns_with_bounds(schema: pa.Schema) -> list[str]:
    """The columns that have statistics in each row group.

    Readers skip no row group because of elements of lists and maps, or of bodies.
    """
    return [
        field.name for field in schema if not pa.types.is_nested(field.type) and field.name not in BODY_SCHEMA.names
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Rows that are removed from a table's files: each file that has such rows is replaced by one with its other rows.
#
# Rows are removed if they have expired (``upkeep``), are forgotten (``forget``), or are made again from the log
# (``replace``). Files with only such rows are just removed.


@dataclass(frozen=True)
class Rest:
    """The number of rows removed from a file, and the new file with the others, None without any."""

    taken: int
    file: DataFile | None


class _NothingToKeepError(Exception):
    """No new file is needed: no row is removed, or none stays."""


class RestOfFiles:
    """Writes the rows that stay of data files from which others are removed; the table's log is not changed.

    Columns that others added stay, and rows that a deletion vector deletes are not written.
    """

    def __init__(self, taken: Callable[[pa.RecordBatch], Bools]) -> None:
        """`taken` returns which of some rows are removed."""
        self._taken = taken
        # A written rest is still good if another writer was first and the commit is made again.
        self._known: dict[tuple[str, object], Rest] = {}

    def of_all(
        self, snapshot: Snapshot, files: Iterable[DataFile], *, always: bool = False
    ) -> tuple[dict[DataFile, int], list[DataFile]]:
        """A version's files that have rows to remove, with their numbers, and the rests of these files; see `of`."""
        removed, added = dict[DataFile, int](), list[DataFile]()
        for file in files:
            rest = self.of(snapshot, file, always=always)
            if rest.taken or always:
                removed[file] = rest.taken
                added += [] if rest.file is None else [rest.file]
        return removed, added

    def of(self, snapshot: Snapshot, file: DataFile, *, always: bool = False) -> Rest:
        """The rest of a file of a version; it is written if rows are removed, or `always`.

        Raises
        ------
        OutputError
            The file cannot be read, or its rest not be written.
        """
        if file.key not in self._known:
            path = snapshot.storage.location / file.path
            with output_errors(f"cannot read the deletion vector of {path}", path):
                live = live_numbers(snapshot.storage, file)
            self._known[file.key] = self.write(snapshot, file.path, live, always=always)
        return self._known[file.key]

    def write(self, snapshot: Snapshot, source: str, live: Int64s | None, *, always: bool = False) -> Rest:
        """The rest of the file `source`, considering only the rows with the numbers `live`, or all; see `of`."""
        name = f"part-rest-{uuid.uuid4()}.zstd.parquet"
        root, statistics, taken = snapshot.storage.location, FileStatistics(STATISTICS_COLUMNS), 0
        writer: pq.ParquetWriter | None = None
        what = f"cannot write the rows of {root / source} that stay to {root / name}"
        with suppress(_NothingToKeepError), output_errors(what, root / name), snapshot.storage.new(name) as file:
            with ExitStack() as stack:
                for batch, gone in self._batches(snapshot, source, live):
                    taken += int(np.count_nonzero(gone))
                    kept = pa.Table.from_batches([batch.filter(pa.array(~gone))])
                    if writer is None:
                        writer = pq.ParquetWriter(file, kept.schema, compression="zstd", store_schema=False)
                        stack.enter_context(writer)
                    if kept.num_rows:
                        writer.write_table(kept)
                        statistics.add(kept.combine_chunks())
            if not (taken or always) or not statistics.rows:
                raise _NothingToKeepError
            return Rest(taken, DataFile.new(name, file.tell(), statistics.to_json()))
        return Rest(taken, None)

    def _batches(self, snapshot: Snapshot, name: str, live: Int64s | None) -> Iterator[tuple[pa.RecordBatch, Bools]]:
        """The live rows of a file in batches, and which of them are removed."""
        times = [column["name"] for column in snapshot.columns if column["type"] == "timestamp"]
        for batch in rows_at(snapshot.storage, name, live):
            rows = _with_utc(batch, times)
            if rows.num_rows:
                yield rows, self._taken(rows)


def _with_utc(batch: pa.RecordBatch, times: Sequence[str]) -> pa.RecordBatch:
    """Mark the times as UTC: Spark may write them as INT96, which has no time zone."""
    columns = []
    for field, values in zip(batch.schema, batch.columns, strict=True):
        is_time = field.name in times and field.type != pa.timestamp("us", "UTC")
        columns.append(values.cast(pa.timestamp("us", "UTC")) if is_time else values)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
