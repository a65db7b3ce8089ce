"""A data file of a Delta table: its entry in the log, its rows, and the files that reput writes.

A ``DataFile`` is one of a version of the table, or a new one that a commit adds; ``FileBounds`` are its statistics.
Rows that a deletion vector deletes are also found here, without Spark. A key filter is a Bloom filter beside the file,
by which a look-up knows without reading the file that it lacks a key.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from reput.sinks.files.file_system import now_for_ages
from reput.sinks.table.location import logged_name
from reput.sinks.table.storage import FileStatus, TableStorage, output_errors
from reput.source.arrays import Bools, Int64s
from reput.source.times import utc_text

# ----------------------------------------------------------------------------------------------------------------------
# The data files of a Delta table's present version: those that cannot be read, and those that may hold certain rows.


@dataclass(frozen=True)
class FileBounds:
    """The statistics of a file's rows; None in place of a bound that they lack.

    Attributes
    ----------
    rows
        Their number, including rows that a deletion vector deletes.
    least, greatest
        Physical offsets of the rows of all brokers, both included.
    brokers
        The first and the last broker; None if some rows may have none.
    columns
        The least and the greatest value of each column, in Delta's JSON form.
    """

    rows: int | None
    least: int | None
    greatest: int | None
    brokers: tuple[str, str] | None
    columns: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, statistics_json: str | None) -> FileBounds:
        """Read the bounds from Delta's statistics of a file."""
        statistics = json.loads(statistics_json or "{}")
        statistics = statistics if isinstance(statistics, dict) else {}
        low, high = statistics.get("minValues") or {}, statistics.get("maxValues") or {}
        brokers = (low["broker"], high["broker"]) if low.get("broker") and high.get("broker") else None
        nulls = (statistics.get("nullCount") or {}).get("broker")
        return cls(
            statistics.get("numRecords"),
            low.get("physical_offset"),
            high.get("physical_offset"),
            brokers if nulls == 0 else None,
            {name: (low.get(name), high.get(name)) for name in {**low, **high}},
        )

    @property
    def broker(self) -> str | None:
        """The broker of all rows; None if there may be several."""
        return self.brokers[0] if self.brokers and self.brokers[0] == self.brokers[1] else None

    @cached_property
    def store_times(self) -> tuple[datetime | None, datetime | None]:
        """The first and the last store time, rounded down to milliseconds in files of most writers."""
        first, last = self.columns.get("store_time", (None, None))
        return logged_time(first), logged_time(last)

    def may_hold(self, broker: str) -> bool:
        """Whether the file may hold rows of the broker."""
        return self.rows != 0 and (self.brokers is None or self.brokers[0] <= broker <= self.brokers[1])

    def may_reach(self, start: int, end: int) -> bool:
        """Whether the file may hold rows of `[start, end)`."""
        return self.least is None or self.greatest is None or (self.least < end and start <= self.greatest)

    def is_only(self, broker: str, start: int, end: int) -> bool:
        """Whether every row belongs to the broker and to `[start, end)`."""
        if self.brokers != (broker, broker) or self.least is None or self.greatest is None:
            return False
        return start <= self.least and self.greatest < end


def logged_time(text: Any) -> datetime | None:
    """A time in Delta's statistics; None for a missing or impossible one."""
    with suppress(ValueError):
        found = datetime.fromisoformat(text.replace("Z", "+00:00")) if isinstance(text, str) else None
        return found.replace(tzinfo=timezone.utc) if found and found.tzinfo is None else found
    return None


#: One action of the log: its kind, and its fields.
Action = dict[str, Any]
_KEPT_BY_REMOVAL = (
    *("path", "partitionValues", "size", "stats", "tags", "deletionVector"),
    *("baseRowId", "defaultRowCommitVersion"),
)
#: A file with half of these bytes or rows is not merged with others.
TARGET_BYTES, TARGET_ROWS = 32 * 1024 * 1024, 512 * 1024
#: The prefix of the name of a file that a merge wrote.
MERGED = "merged-"


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a version of the table, or a new one, which is not durable before a commit adds it.

    Attributes
    ----------
    path
        Its name as in ``TableStorage``; a new file's is below the table's root, without ``.``, ``..`` or ``:``.
    size_bytes, modification_time_ms
        Its length, which is checked, and its time in milliseconds since 1970 UTC.
    statistics_json
        Delta's ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``. Readers rely on them: they count rows by
        ``numRecords`` and skip a file whose minimum and maximum exclude a filter. Timestamps look like
        ``2026-11-21T00:00:00.000Z`` and are rounded down, also maxima, because readers add 1 ms to these. None in a
        file of a writer that gives none.
    logged
        The fields of its action in the log; empty for a new file.
    """

    path: str
    size_bytes: int
    modification_time_ms: int
    statistics_json: str | None
    logged: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, storage: TableStorage, logged: Mapping[str, Any]) -> DataFile:
        """The file that an ``add`` of the log names."""
        path, time_ms = logged_name(storage.location, str(logged["path"])), int(logged.get("modificationTime") or 0)
        return cls(path, int(logged["size"]), time_ms, logged.get("stats"), logged)

    @classmethod
    def put(cls, storage: TableStorage, name: str, data: pa.Buffer, statistics_json: str) -> DataFile:
        """Write the file; raises OutputError if it cannot be written."""
        storage.put(name, data, durable=False)
        return cls.new(name, data.size, statistics_json)

    @classmethod
    def of_rows(cls, storage: TableStorage, rows: pa.Table, columns: Sequence[str], **options: Any) -> DataFile:
        """Write rows into a new file, with statistics of some `columns`; raises OutputError if it cannot be written.

        `options` are those of Arrow's ``write_table``.
        """
        buffer = pa.BufferOutputStream()
        pq.write_table(rows, buffer, compression="zstd", **options)
        statistics = FileStatistics(columns)
        statistics.add(rows)
        return cls.put(storage, f"part-{uuid.uuid4()}.zstd.parquet", buffer.getvalue(), statistics.to_json())

    @classmethod
    def new(cls, name: str, size_bytes: int, statistics_json: str) -> DataFile:
        """A file that was written just now."""
        return cls(name, size_bytes, time.time_ns() // 1_000_000, statistics_json)

    @cached_property
    def bounds(self) -> FileBounds:
        """The bounds of its rows by its statistics."""
        return FileBounds.of(self.statistics_json)

    @property
    def vector(self) -> Mapping[str, Any] | None:
        """Its deletion vector in the log, or None."""
        return self.logged.get("deletionVector") or None

    @property
    def deleted(self) -> int:
        """The number of its rows that a deletion vector deletes."""
        return int((self.vector or {}).get("cardinality", 0))

    @cached_property
    def key(self) -> tuple[str, object]:
        """The values that identify it among the version's files: path and deletion vector."""
        return key_of(self.logged)

    @property
    def is_own(self) -> bool:
        """Whether reput wrote it."""
        return OWN_DATA_FILE.fullmatch(self.path) is not None

    @cached_property
    def share(self) -> float:
        """Its size relative to a target file's."""
        return max(self.size_bytes / TARGET_BYTES, (self.bounds.rows or 0) / TARGET_ROWS)

    @property
    def is_large(self) -> bool:
        """Whether it is no longer merged with others."""
        return self.share >= 0.5

    @property
    def is_sorted(self) -> bool:
        """Whether a merge wrote it."""
        return self.path.startswith(MERGED)

    @property
    def days(self) -> tuple[object, object]:
        """The days of its first and last row, which files to be merged must have in common."""
        first, last = self.bounds.store_times
        return first and first.date(), last and last.date()

    def removal(self, time_ms: int, *, changes_rows: bool, with_statistics: bool) -> Action:
        """The action that removes it."""
        kept = {name: self.logged[name] for name in _KEPT_BY_REMOVAL if self.logged.get(name) is not None}
        if not with_statistics:
            kept.pop("stats", None)
        told = {"deletionTimestamp": time_ms, "dataChange": changes_rows, "extendedFileMetadata": True}
        return {"remove": {**kept, **told}}


def key_of(logged: Mapping[str, Any]) -> tuple[str, object]:
    """The `DataFile.key` of a file that an action of the log adds or removes."""
    vector = logged.get("deletionVector")
    unique = vector and (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))
    return str(logged["path"]), unique or None


def bad_files(storage: TableStorage, files: Sequence[DataFile]) -> list[tuple[DataFile, str]]:
    """Files of the table that are missing or have another size, each with its fault; contents are not checked.

    Raises
    ------
    OutputError
        A file's size cannot be read.
    """
    with output_errors(f"cannot look at the files of {storage.location}", storage.location):
        found = storage.statuses([file.path for file in files])
    bad = []
    for file, there in zip(files, found, strict=True):
        if there is None or there.size_bytes != file.size_bytes:
            size = f"{file.size_bytes} were committed"
            bad.append((file, f"has {there.size_bytes} bytes, {size}" if there else "is not there"))
    return bad


class FileStatistics:
    """Delta's statistics of some columns of one file, collected row group by row group."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.rows = 0
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}
        self._nulls = dict.fromkeys(columns, 0)

    def add(self, table: pa.Table) -> None:
        """Add a row group, which has the columns; a dictionary is in one piece."""
        self.rows += table.num_rows
        for name in self._nulls:
            values = table[name]
            self._nulls[name] += values.null_count
            if pa.types.is_dictionary(values.type):  # it may have more texts than these rows
                texts = values.chunk(0)
                values = texts.dictionary.take(texts.indices.unique().drop_null())
            bounds = pc.min_max(values).as_py()
            if bounds["min"] is not None:
                self._least[name] = min(self._least.get(name, bounds["min"]), bounds["min"])
                self._greatest[name] = max(self._greatest.get(name, bounds["max"]), bounds["max"])

    def to_json(self) -> str:
        """The statistics as Delta keeps them."""
        return delta_statistics(self.rows, self._least, self._greatest, self._nulls)


def delta_statistics(rows: int, least: Mapping[str, Any], greatest: Mapping[str, Any], nulls: Mapping[str, int]) -> str:
    """Statistics of a file in the form of Delta's log; times are of UTC."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: _json_value(value) for name, value in least.items()},
            "maxValues": {name: _json_value(value) for name, value in greatest.items()},
            "nullCount": nulls,
        }
    )


def _json_value(value: Any) -> Any:
    # Whole milliseconds, as stored; readers add one to a maximum.
    return utc_text(value) if isinstance(value, datetime) else value


# ----------------------------------------------------------------------------------------------------------------------
# The rows that a deletion vector deletes from a data file, read without Spark and deltalake.

# The alphabet of Z85, and that of Python's `b85decode`.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = bytes.maketrans(_Z85, _B85)
_MAGIC, _HEADER_BYTES = 1681511377, 12
_UUID_LENGTH = 20
# Roaring's words for a bitmap without and with containers of runs.
_NO_RUNS, _WITH_RUNS = 12346, 12347
_OFFSETS_FROM = 4
_ARRAY_MAX = 4096
_BITSET_BYTES = 8192


def deleted_rows(storage: TableStorage, vector: Mapping[str, Any] | None) -> Int64s:
    """The numbers of the rows that a file's deletion vector deletes, ascending; empty without one.

    Raises
    ------
    OSError
        The vector cannot be read.
    """
    if vector is None:
        return np.empty(0, np.int64)
    try:
        found = _rows_of(_content(storage, vector))
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise OSError(f"a deletion vector cannot be read: {error}") from error
    if len(found) != int(vector["cardinality"]):
        raise OSError(f"a deletion vector has {len(found)} rows, not {vector['cardinality']}")
    return found


def _rows_of(data: bytes) -> Int64s:
    magic, count = struct.unpack_from("<Iq", data)
    if magic != _MAGIC:
        raise ValueError(f"it begins with {magic}")
    parts, at = [np.empty(0, np.int64)], _HEADER_BYTES
    for _ in range(count):
        (key,) = struct.unpack_from("<I", data, at)
        rows, at = _bitmap(data, at + 4)
        parts.append((key << 32) + rows)
    return np.concatenate(parts)


def _content(storage: TableStorage, vector: Mapping[str, Any]) -> bytes:
    kind, text = vector["storageType"], str(vector["pathOrInlineDv"])
    if kind == "i":
        return _z85(text)
    if kind == "u":
        prefix, name = text[:-_UUID_LENGTH], uuid.UUID(bytes=_z85(text[-_UUID_LENGTH:]))
        path = f"{prefix}/deletion_vector_{name}.bin".lstrip("/")
    elif kind == "p":
        path = logged_name(storage.location, text)
    else:
        raise ValueError(f"it is stored as {kind!r}")
    at, size = int(vector.get("offset") or 1), int(vector["sizeInBytes"])
    with storage.open(path) as file:
        file.seek(at)
        found = bytes(file.read(4 + size + 4))
    (length,), (checksum,) = struct.unpack_from(">i", found), struct.unpack_from(">I", found, 4 + size)
    data = found[4 : 4 + size]
    if length != size or checksum != zlib.crc32(data):
        raise ValueError(f"{path} is damaged at {at}")
    return data


def _z85(text: str) -> bytes:
    return base64.b85decode(text.encode("ascii").translate(_TO_B85))


def _bitmap(data: bytes, at: int) -> tuple[Int64s, int]:
    """The numbers in a roaring bitmap that begins at `at`, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    has_runs = cookie & 0xFFFF == _WITH_RUNS
    if has_runs:
        count, at = (cookie >> 16) + 1, at + 4
        flags = np.unpackbits(np.frombuffer(data, np.uint8, (count + 7) // 8, at), bitorder="little")[:count]
        at += (count + 7) // 8
    elif cookie == _NO_RUNS:
        (count,), at = struct.unpack_from("<I", data, at + 4), at + 8
        flags = np.zeros(count, np.uint8)
    else:
        raise ValueError(f"its bitmap begins with {cookie}")
    keys = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2).astype(np.int64)
    at += 4 * count + (4 * count if not has_runs or count >= _OFFSETS_FROM else 0)
    parts = [np.empty(0, np.int64)]
    for (key, rest), is_runs in zip(keys.tolist(), flags.tolist(), strict=True):
        rows, at = _container(data, at, rest + 1, is_runs=bool(is_runs))
        parts.append((key << 16) + rows)
    return np.concatenate(parts), at


def _container(data: bytes, at: int, count: int, *, is_runs: bool) -> tuple[Int64s, int]:
    if is_runs:
        (runs,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * runs, at + 2).reshape(-1, 2).astype(np.int64)
        ranges = [np.arange(first, first + more + 1) for first, more in pairs.tolist()]
        return np.concatenate([np.empty(0, np.int64), *ranges]), at + 2 + 4 * runs
    if count <= _ARRAY_MAX:
        return np.frombuffer(data, "<u2", count, at).astype(np.int64), at + 2 * count
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _BITSET_BYTES, at), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), at + _BITSET_BYTES


# ----------------------------------------------------------------------------------------------------------------------
# The rows of a version of a table, read without Spark: those that no deletion vector deletes.

_ROWS_AT_ONCE = 128 * 1024
_Rows = TypeVar("_Rows", pa.RecordBatch, pa.Table)
_OF_LAST_ROW = ("physical_offset", "msg_size", "store_time", "body_crc")


def live_numbers(storage: TableStorage, file: DataFile) -> Int64s | None:
    """The numbers of a file's rows that no deletion vector deletes, ascending; None for all.

    Raises
    ------
    OSError, pa.ArrowException
        The vector, or the number of rows, cannot be read.
    """
    if file.vector is None:
        return None
    return np.setdiff1d(np.arange(rows_in(storage, file)), deleted_rows(storage, file.vector), assume_unique=True)


def rows_in(storage: TableStorage, file: DataFile) -> int:
    """The number of a file's rows, including deleted ones; raises the errors of `live_numbers`."""
    if (rows := file.bounds.rows) is not None:
        return rows
    with storage.parquet(file.path) as parquet:
        return int(parquet.metadata.num_rows)


def live_batches(
    storage: TableStorage, file: DataFile, columns: Sequence[str], **options: Any
) -> Iterator[pa.RecordBatch]:
    """A file's rows with those of the columns that it has, some at a time; `options` are those of `rows_at`.

    Raises
    ------
    OSError, pa.ArrowException
        The file cannot be read.
    """
    yield from rows_at(storage, file.path, live_numbers(storage, file), columns, **options)


def rows_at(
    storage: TableStorage,
    path: str,
    live: Int64s | None,
    columns: Sequence[str] | None = None,
    *,
    texts: Collection[str] = (),
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with the numbers `live`, which ascend, or all; otherwise as in `live_batches`.

    `texts` are those of ``TableStorage.parquet``, `options` those of ``iter_batches``.
    """
    begin = 0
    with storage.parquet(path, texts=texts, coerce_int96_timestamp_unit="us") as parquet:
        there = [name for name in parquet.schema_arrow.names if columns is None or name in columns]
        options = {"batch_size": _ROWS_AT_ONCE, **options}
        for rows in map(without_views, parquet.iter_batches(columns=None if columns is None else there, **options)):
            end = begin + rows.num_rows
            if live is not None:
                here = live[np.searchsorted(live, begin) : np.searchsorted(live, end)] - begin
                rows = rows.take(pa.array(here))  # noqa: PLW2901
            begin = end
            yield rows


def without_views(rows: _Rows) -> _Rows:
    """Rows with plain texts: deltalake's DELETE and UPDATE write views, which Arrow can neither compare nor filter."""
    schema = pa.schema([field.with_type(_without_views(field.type)) for field in rows.schema])
    return rows if schema == rows.schema else rows.cast(schema)


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(kind.value_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def offsets_of(storage: TableStorage, file: DataFile, broker: str) -> Int64s:
    """The physical offsets of the broker's rows in a file, ascending; raises the errors of `live_batches`."""
    parts = [np.empty(0, np.int64)]
    for rows in live_batches(storage, file, ("broker", "physical_offset")):
        offsets = offsets_in(rows)
        parts.append(offsets[is_of_broker(rows, broker) & (offsets >= 0)])
    return np.sort(np.concatenate(parts))


def is_of_broker(rows: pa.RecordBatch, broker: str) -> Bools:
    """Which of some rows are the broker's; none in a file that lacks the column."""
    if "broker" not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    equal = pc.fill_null(pc.equal(rows["broker"].cast(pa.string()), broker), fill_value=False)
    found: Bools = equal.to_numpy(zero_copy_only=False)
    return found


def offsets_in(rows: pa.RecordBatch) -> Int64s:
    """The physical offsets of some rows; -1 for null, and in a file that lacks the column."""
    if "physical_offset" not in rows.schema.names:
        return np.full(rows.num_rows, -1, np.int64)
    found: Int64s = pc.fill_null(rows["physical_offset"].cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return found


def count_before(storage: TableStorage, files: Iterable[DataFile], broker: str, offsets: Sequence[int]) -> list[int]:
    """The number of the broker's rows before each offset; files whose statistics are enough are not opened.

    Raises the errors of `live_batches`.
    """
    wanted = np.array(offsets, np.int64)
    counts = np.zeros(len(wanted), np.int64)
    for file in files:
        bounds = file.bounds
        if not bounds.may_hold(broker):
            continue
        if file.vector is None and bounds.rows is not None and bounds.is_only(broker, -(2**63), 2**63):
            assert bounds.least is not None
            assert bounds.greatest is not None
            if not ((bounds.least < wanted) & (wanted <= bounds.greatest)).any():
                counts += np.where(wanted > bounds.greatest, bounds.rows, 0)
                continue
        counts += np.searchsorted(offsets_of(storage, file, broker), wanted)
    return [int(count) for count in counts]


def count_by_broker(storage: TableStorage, files: Iterable[DataFile]) -> dict[str, int]:
    """The number of rows of each broker, also of one that has lost all; raises the errors of `live_batches`."""
    counts: Counter[str] = Counter()
    for file in files:
        if (broker := file.bounds.broker) is not None:
            counts[broker] += rows_in(storage, file) - file.deleted
            continue
        for rows in live_batches(storage, file, ("broker",)):
            if rows.num_columns:
                for each in pc.value_counts(rows["broker"].cast(pa.string()).drop_null()).to_pylist():
                    counts[each["values"]] += each["counts"]
    return counts


def last_row(
    storage: TableStorage, files: Iterable[DataFile], broker: str, begin: int, end: int, *, passes_over: bool
) -> tuple[int, ...] | None:
    """The broker's last row with an offset in `[begin, end)`; None without any, or if a value of it is null.

    Its physical offset, size, store time in milliseconds since 1970, and the checksum of its body. Raises the errors of
    `live_batches`, unless it `passes_over` files that cannot be read.
    """
    found: list[int | None] = []
    by_end = sorted(files, key=lambda file: end if file.bounds.greatest is None else file.bounds.greatest, reverse=True)
    for file in by_end:
        greatest = file.bounds.greatest
        if found and greatest is not None and greatest <= (found[0] or 0):
            break
        if not file.bounds.may_hold(broker):
            continue
        try:
            for rows in live_batches(storage, file, ("broker", *_OF_LAST_ROW)):
                offsets = offsets_in(rows)
                here = np.flatnonzero(is_of_broker(rows, broker) & (offsets >= max(begin, 0)) & (offsets < end))
                if len(here) and (not found or offsets[here].max() > (found[0] or 0)):
                    found = _values_of(rows, int(here[np.argmax(offsets[here])]))
        except (OSError, pa.ArrowException):
            if not passes_over:
                raise
    values = tuple(value for value in found if value is not None)
    return values if found and len(values) == len(found) else None


def _values_of(rows: pa.RecordBatch, number: int) -> list[int | None]:
    """The values of `_OF_LAST_ROW` in a row."""
    values = []
    for name in _OF_LAST_ROW:
        column = rows[name].slice(number, 1) if name in rows.schema.names else pa.nulls(1, pa.int64())
        if pa.types.is_timestamp(column.type):
            column = pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000)
        values.append(column[0].as_py())
    return values


# ----------------------------------------------------------------------------------------------------------------------
# The files of a table that reput names, and those of them that no version has any more.

# The directory of the key filters; the name of a filter is its data file's path with an ending.
_KEYS_DIRECTORY, _KEYS_SUFFIX = "_keys", ".bloom"
# A working writer puts a file in place at least this often.
WRITTEN_WITHIN_S = 3600

_DATA = r"(?:(?:part|merged)-\d{20}-\d{20}|part-rest)-[0-9a-f-]{36}\.zstd\.parquet"
#: The name of a data file that reput wrote.
OWN_DATA_FILE = re.compile(_DATA)
# The temporary name that `DurableFiles` gives a file.
_TEMPORARY = re.compile(rf"\.{_DATA}\.tmp")


def keys_file(path: str) -> str:
    """The name of the key filter of the data file `path`."""
    return f"{_KEYS_DIRECTORY}/{path}{_KEYS_SUFFIX}"


def remove_data_files(storage: TableStorage, paths: Iterable[str], *, durable: bool = False) -> None:
    """Remove data files, by their names, and their key filters; missing ones are ignored.

    Raises
    ------
    OutputError
        A file cannot be removed.
    """
    storage.remove((name for path in paths for name in (path, keys_file(path))), durable=durable)


def orphans(storage: TableStorage, needed: Collection[str]) -> list[FileStatus]:
    """Files with names of reput that are not needed: `needed` lacks them, and no writer will commit them.

    A working writer may have files that it has not committed yet: `tail` for seconds, ``rebuild --only table`` for
    hours, in which it writes one after the other. So files that follow each other within `WRITTEN_WITHIN_S` are left,
    unless the last of them is older than that.
    """
    found = sorted(_unneeded(storage, needed), key=lambda file: file.modified_s, reverse=True)
    newer = now_for_ages()
    for number, file in enumerate(found):
        if newer - file.modified_s >= WRITTEN_WITHIN_S:
            return found[number:]
        newer = min(newer, file.modified_s)
    return []


def _unneeded(storage: TableStorage, needed: Collection[str]) -> Iterator[FileStatus]:
    for file in storage.files():
        match = OWN_DATA_FILE.fullmatch(file.name)
        if (match and file.name not in needed) or _TEMPORARY.fullmatch(file.name):
            yield file
    for file in storage.files(_KEYS_DIRECTORY, deep=True):
        data_file, ending, rest = file.name.partition("/")[2].rpartition(_KEYS_SUFFIX)
        is_temporary = rest == ".tmp" and file.name.rpartition("/")[2].startswith(".")
        if ending and (is_temporary or (not rest and data_file not in needed)):
            yield file


# ----------------------------------------------------------------------------------------------------------------------
# Bloom filters beside the data files, which say whether a file may have a message with a key.
#
# The filter of ``NAME`` is ``_keys/NAME.bloom`` below the table's root, where VACUUM leaves it alone. It is a
# split-block Bloom filter of Parquet's specification, including the header, over all values of `keys` and `uniq_key`: a
# look-up reads 32 bytes of it instead of the data file. If it is missing, the file itself must be searched.

#: The columns whose values are in a filter.
KEY_COLUMNS = ("uniq_key", "keys")
# One file in a thousand is searched in vain. A bitset's size is a power of two: two to four bytes per key.
_FALSE_POSITIVES = 0.001
# With this many keys a filter takes 16 MiB. Only files that others merged have more; these are searched.
_KEYS_MAX = 8 * 1024 * 1024
# Parquet's header in Thrift's compact form: field 1, an i32, is the number of bytes after the header; fields 2 to 4
# say that these are split blocks, xxHash and uncompressed.
_SIZE_FIELD, _OTHER_FIELDS = b"\x15", bytes.fromhex("1c1c0000" * 3 + "00")
_HEADER_BYTES_MAX = 32
_BLOCK_BYTES = 32
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def write_key_filter(storage: TableStorage, name: str, rows: pa.Table) -> None:
    """Write the filter of a data file with these rows, durably; raises OutputError."""
    keys = _keys_of(rows)
    if len(keys) <= _KEYS_MAX:
        storage.put(keys_file(name), _filter_of(keys), durable=True)


def write_key_filter_of(storage: TableStorage, name: str) -> None:
    """Write the filter of a data file by reading it; raises OutputError, and OSError if it cannot be read."""
    with storage.parquet(name) as file:
        wanted = [column for column in KEY_COLUMNS if column in file.schema_arrow.names]
        if file.metadata.num_rows <= _KEYS_MAX:
            write_key_filter(storage, name, file.read(wanted, use_threads=False))


def _keys_of(rows: pa.Table) -> pa.ChunkedArray:
    chunks = []
    if "uniq_key" in rows.column_names:
        chunks += rows["uniq_key"].cast(pa.string()).drop_null().chunks
    if "keys" in rows.column_names:
        chunks += pc.list_flatten(rows["keys"]).cast(pa.string()).drop_null().chunks
    return pa.chunked_array(chunks, pa.string())


def _filter_of(keys: pa.ChunkedArray) -> bytes:
    # Parquet's own writer hashes and sets the bits, and skips nulls; only the filter of its file is kept.
    if not len(keys):
        keys = pa.chunked_array([pa.nulls(1, pa.string())])
    buffer = pa.BufferOutputStream()
    options = {"key": {"ndv": len(keys), "fpp": _FALSE_POSITIVES}}
    pq.write_table(
        pa.table({"key": keys}),
        buffer,
        row_group_size=_KEYS_MAX,
        use_dictionary=False,
        compression="none",
        write_statistics=False,
        store_schema=False,
        bloom_filter_options=options,
    )
    data = buffer.getvalue()
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    start, size = column.bloom_filter_offset, column.bloom_filter_length
    return bytes(data[start : start + size])


class KeyProbe:
    """Asks filters for one key."""

    def __init__(self, key: str) -> None:
        digest = xxhash.xxh64_intdigest(key.encode())
        self._block_hash, low = digest >> 32, digest & 0xFFFFFFFF
        self._mask = sum(1 << (32 * word + ((low * salt & 0xFFFFFFFF) >> 27)) for word, salt in enumerate(_SALTS))

    def may_be_in(self, storage: TableStorage, name: str) -> bool | None:
        """Whether the data file may have the key; None without a sound filter."""
        with suppress(OSError), storage.open(keys_file(name)) as file:
            return self._ask(file)
        return None

    def _ask(self, file: Any) -> bool | None:
        header = bytes(file.read_at(_HEADER_BYTES_MAX, 0))
        start, bitset_bytes = _bitset(header)
        if bitset_bytes < _BLOCK_BYTES or start + bitset_bytes != file.size():
            return None
        block = self._block_hash * (bitset_bytes // _BLOCK_BYTES) >> 32
        bits = int.from_bytes(bytes(file.read_at(_BLOCK_BYTES, start + block * _BLOCK_BYTES)), "little")
        return bits & self._mask == self._mask


def _bitset(header: bytes) -> tuple[int, int]:
    """Where the bitset begins and its size in bytes; 0 and 0 if this is not the header of such a filter."""
    number = 0
    for at, byte in enumerate(header[1:6]):
        number |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            rest = at + 2
            is_sound = header.startswith(_SIZE_FIELD) and header.startswith(_OTHER_FIELDS, rest)
            return (rest + len(_OTHER_FIELDS), number >> 1) if is_sound else (0, 0)  # zigzag: a positive is doubled
    return 0, 0
