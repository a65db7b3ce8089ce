"""The Delta table ``TABLE-consumption`` beside the message table: a row for each move of a consumer group in a queue.

The ledger itself records how far it has come: the last row of each queue says where the group was seen last.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.cleaning import clean_log
from reput.sinks.table.columns import (
    CONSUMPTION_COMMENTS,
    CONSUMPTION_SCHEMA,
    FIRST_SEEN,
    GONE,
    PROGRESS,
    RESET_BACK,
    commented,
)
from reput.sinks.table.data_file import DataFile, live_batches, logged_time
from reput.sinks.table.delta_table import Change, DeltaTable, is_table
from reput.sinks.table.history import EXPIRED
from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.sinks.table.log import Snapshot, read_snapshot
from reput.sinks.table.retention import ALL_FOREVER, Expired, ExpiryLimits, RowRetention, numbered, store_times_ms
from reput.sinks.table.storage import TableStorage, output_errors
from reput.source.arrays import Bools, Int64s
from reput.source.times import milliseconds_of, time_of

_COMMENT: Final = "Where RocketMQ's consumer groups were: each move of a group's offset in a queue, a row each"
_STATISTICS_COLUMNS: Final = ("broker", "consumer_group", "topic", "seen_after")
# The number of files with about as many rows that become one, and the number of rows for which fewer do. So each row is
# written again only a few times, and a month of 200 groups is about a hundred files. A file with half of these rows is
# not merged again.
_MERGED_AT: Final = 20
_LARGE_ROWS: Final = 1 << 20
_NOTE: Final = {"what": "merged"}
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
# Moves of a few queues and of a short time are together, so that questions read little of a file.
_FORM: Final = {
    "row_group_size": 1 << 15,
    "use_dictionary": ["broker", "consumer_group", "topic", "move"],
    "column_encoding": dict.fromkeys(
        ("queue_id", "offset_before", "offset_after", "seen_before", "seen_after"), "DELTA_BINARY_PACKED"
    ),
}

#: The columns that name a queue of a group.
KEY: Final = ("topic", "queue_id", "consumer_group")
#: Group and topic, and the offset of each queue.
Offsets: TypeAlias = dict[tuple[str, str], dict[int, int]]


class Move(NamedTuple):
    """A row of the ledger, without its broker; times are milliseconds since 1970 UTC."""

    group: str
    topic: str
    queue_id: int
    offset_before: int | None
    offset_after: int | None
    seen_before_ms: int | None
    seen_after_ms: int
    move: str


def moves_between(old: Offsets, new: Offsets, seen_before_ms: int | None, seen_after_ms: int) -> list[Move]:
    """The moves that lead from one state of the offsets to a later one, in the order of `new`."""
    times = seen_before_ms, seen_after_ms
    found: list[Move] = []
    if new is old:
        return found
    for (group, topic), queues in new.items():
        known = old.get((group, topic), {})
        if queues is known:
            continue
        for queue_id, offset in queues.items():
            before = known.get(queue_id)
            if before != offset:
                kind = FIRST_SEEN if before is None else PROGRESS if offset > before else RESET_BACK
                found.append(Move(group, topic, queue_id, before, offset, *times, kind))
    for (group, topic), known in old.items():
        left = new.get((group, topic), {})
        if left is not known:
            found += [
                Move(group, topic, queue_id, offset, None, *times, GONE)
                for queue_id, offset in known.items()
                if queue_id not in left
            ]
    return found


def consumption_transaction(broker: str) -> str:
    """The application id of a broker's transactions in the ledger; their version is the last `seen_after` in ms."""
    return f"reput/{broker}/consumption"


def ledger_brokers(table: TableLocation) -> list[str]:
    """The brokers that have files of their own in the ledger beside `table`, by name; empty without a ledger.

    Raises
    ------
    OutputError
        The ledger cannot be read.
    """
    path = consumption_table_path(table).resolve()
    files = read_snapshot(path).files() if is_table(path) else ()
    return sorted({file.bounds.broker for file in files if file.bounds.broker is not None})


@dataclass(frozen=True)
class _ExpiredMoves:
    """Files with expired rows, and masks of these; `reached` are the expired rows that stay, one per queue."""

    masks: Sequence[tuple[DataFile, Bools]]
    reached: pa.Table

    @property
    def rows(self) -> int:
        return sum(int(mask.sum()) for _, mask in self.masks) - int(self.reached.num_rows)


class ConsumptionTable:
    """One broker's rows of the ledger; several brokers may share one. The table is made with its first row."""

    def __init__(
        self, table: TableLocation, broker: str, versions_kept: int, retention: RowRetention = ALL_FOREVER
    ) -> None:
        """Take the ledger beside the message table `table`; its last `versions_kept` versions stay readable."""
        self.path = consumption_table_path(table)
        #: The name of the broker.
        self.broker = broker
        self._app_id = consumption_transaction(broker)
        self._versions_kept = versions_kept
        self._retention = retention
        self._expired_on: int | None = None
        self._delta: DeltaTable | None = None
        self._commits = 0

    @property
    def version(self) -> int | None:
        """The version of the broker's last transaction; None before the first, and without a table.

        Raises
        ------
        OutputError
            The table cannot be read, or belongs to another program.
        """
        delta = self._open()
        return None if delta is None else delta.last_transaction_version(self._app_id)

    def state(self) -> tuple[Offsets, int | None]:
        """Where each group was seen last, and a time (ms) after which no move was missed; None if that is unknown.

        Raises
        ------
        OutputError
            The table cannot be read.
        """
        delta = self._open()
        offsets: Offsets = {}
        latest: tuple[datetime, datetime | None] | None = None
        if delta is None:
            return offsets, None
        last = pa.concat_tables([self._last_rows(delta, file) for file in delta.files_of(self.broker)] or [_EMPTY])
        for row in last_of_each(last).to_pylist():
            before, after = row["seen_before"], row["seen_after"]
            if latest is None or after > latest[0] or (after == latest[0] and before is not None):
                latest = after, before
            if row["offset_after"] is not None:
                queues = offsets.setdefault((row["consumer_group"], row["topic"]), {})
                queues[row["queue_id"]] = row["offset_after"]
        return offsets, None if latest is None or latest[1] is None else milliseconds_of(latest[1])

    def append(self, moves: Sequence[Move], version: int) -> None:
        """Add rows in one commit, with transaction `version`; raises the errors of ``DeltaTable.append``."""
        self.append_rows(_rows(moves, self.broker), version)

    def append_rows(self, rows: pa.Table, version: int) -> None:
        """Add rows in Arrow's form; see `append`."""
        delta = self._open(creates=True)
        assert delta is not None
        delta.append([self._file(delta, rows)], app_id=self._app_id, version=version)

    def tidy(self) -> None:
        """After some commits, merge small files if there are many, and remove expired rows and unneeded files.

        Raises
        ------
        OutputError
            The table cannot be read or written.
        """
        self._commits += 1
        delta = self._open()
        if delta is None or self._commits % _MERGED_AT != 1:
            return
        has_changed = self._expire_daily(time.time())
        while (files := self._mergeable(delta)) and self._merge(delta, files):
            has_changed = True
        if has_changed:
            clean_log(self.path, delta.version, self._versions_kept)

    def _expire_daily(self, now_s: float) -> bool:
        """Call `expire` once per day of UTC; return whether it removed anything."""
        today_ms = self._retention.limits(now_s).today_ms
        if today_ms == self._expired_on:
            return False
        self._expired_on = today_ms
        return self.expire(now_s).rows > 0

    def expire(self, now_s: float) -> Expired:
        """Remove the moves before the first day that the retention of their topics keeps, in one commit.

        The last of them in each queue stays, as the first sight of the offset that the group had reached.

        Raises
        ------
        OutputError
            The table cannot be read or written.
        TransientError
            Other writers committed first again and again.
        """
        limits, delta, done = self._retention.limits(now_s), self._open(), Expired()
        if delta is None or limits.latest_ms is None:
            return done

        def change(snapshot: Snapshot) -> Change | None:
            found = self._expired_moves(delta, snapshot.files_of(self.broker), limits)
            if not found.rows:
                return None
            done.rows, done.files = found.rows, len(found.masks)
            return self._without(delta, found)

        delta.commit(change)
        return done

    def expired(self, now_s: float) -> Expired:
        """The number of rows that `expire` would remove, and of their files; nothing is changed.

        Raises
        ------
        OutputError
            The table cannot be read.
        """
        limits, delta = self._retention.limits(now_s), self._open()
        if delta is None or limits.latest_ms is None:
            return Expired()
        found = self._expired_moves(delta, delta.files_of(self.broker), limits)
        return Expired(found.rows, len(found.masks) if found.rows else 0)

    def _expired_moves(self, delta: DeltaTable, present: Iterable[DataFile], limits: ExpiryLimits) -> _ExpiredMoves:
        assert limits.latest_ms is not None
        least = time_of(limits.latest_ms)
        masks: list[tuple[DataFile, Bools]] = []
        reached = CONSUMPTION_SCHEMA.empty_table()
        for file in present:
            first = logged_time(file.bounds.columns.get("seen_after", (None, None))[0])
            if file.vector is not None or file.bounds.broker != self.broker or (first and first >= least):
                continue
            moves = self._read(delta, file, ("topic", "seen_after"))
            topics = numbered(moves["topic"].unify_dictionaries().combine_chunks())
            mask = limits.mask(*topics, store_times_ms(moves["seen_after"].combine_chunks()))
            if mask.any():
                masks.append((file, mask))
                rows = self._read(delta, file).filter(pa.array(mask)).cast(CONSUMPTION_SCHEMA)
                reached = last_of_each(pa.concat_tables([reached, rows]))
        return _ExpiredMoves(masks, _as_first_seen(reached))

    def _without(self, delta: DeltaTable, found: _ExpiredMoves) -> Change:
        """The change that removes expired rows from their files."""
        rest = (self._read(delta, file).filter(pa.array(~mask)) for file, mask in found.masks if not mask.all())
        added = [self._file(delta, rows.cast(CONSUMPTION_SCHEMA)) for rows in rest]
        if found.reached.num_rows:
            added.append(self._file(delta, found.reached))
        note = {"broker": self.broker, "what": EXPIRED, "retention": str(self._retention)}
        return Change(added, [file for file, _ in found.masks], None, deleted=found.rows, note=note)

    def _mergeable(self, delta: DeltaTable) -> list[DataFile]:
        """The files to merge into one; empty if there are few."""
        alike: dict[int, list[DataFile]] = defaultdict(list)
        for file in sorted(delta.files_of(self.broker), key=lambda file: file.modification_time_ms):
            rows = file.bounds.rows or _LARGE_ROWS
            if file.vector is None and file.bounds.broker == self.broker and rows < _LARGE_ROWS // 2:
                alike[int(math.log(rows, _MERGED_AT))].append(file)
        for files in alike.values():
            total = np.cumsum([file.bounds.rows for file in files])
            if len(files) >= _MERGED_AT or total[-1] >= _LARGE_ROWS:
                return files[: int(np.searchsorted(total, _LARGE_ROWS)) + 1]
        return []

    def _merge(self, delta: DeltaTable, files: Sequence[DataFile]) -> bool:
        """Write the rows of files into one; return False if another writer changed one of them."""
        rows = pa.concat_tables([self._read(delta, file) for file in files])
        merged = self._file(delta, rows.unify_dictionaries().take(by_queue(rows)[0]).cast(CONSUMPTION_SCHEMA))
        return delta.rewrite([file.path for file in files], [merged], {"broker": self.broker, **_NOTE})

    def _file(self, delta: DeltaTable, rows: pa.Table) -> DataFile:
        return DataFile.of_rows(delta.storage, rows, _STATISTICS_COLUMNS, **_FORM)

    def _open(self, *, creates: bool = False) -> DeltaTable | None:
        if self._delta is None and (creates or is_table(self.path.resolve())):
            self._delta = DeltaTable.open_or_create(
                self.path,
                commented(CONSUMPTION_SCHEMA, CONSUMPTION_COMMENTS),
                properties={"delta.dataSkippingStatsColumns": ",".join(_STATISTICS_COLUMNS)},
                comment=_COMMENT,
            )
        return self._delta

    def _read(self, delta: DeltaTable, file: DataFile, names: Sequence[str] = CONSUMPTION_SCHEMA.names) -> pa.Table:
        with output_errors(f"{self.path}: cannot read the ledger's rows", self.path):
            return read_moves(delta.storage, file, names)

    def _last_rows(self, delta: DeltaTable, file: DataFile) -> pa.Table:
        rows = of_broker(self._read(delta, file, _LAST_COLUMNS), file, self.broker)
        return last_of_each(rows).cast(_EMPTY.schema)


def read_moves(storage: TableStorage, file: DataFile, names: Sequence[str] = CONSUMPTION_SCHEMA.names) -> pa.Table:
    """A file's rows, texts as dictionaries, which take a tenth of the memory and of the time.

    Raises
    ------
    OSError, pa.ArrowException
        The file cannot be read.
    """
    fields = [CONSUMPTION_SCHEMA.field(name) for name in names]
    texts = {field.name: _DICTIONARY for field in fields if field.type == pa.string()}
    schema = pa.schema([field.with_type(texts.get(field.name, field.type)) for field in fields])
    batches = live_batches(storage, file, names, texts=texts)
    return pa.Table.from_batches(batches, None).select(list(names)).cast(schema)


def of_broker(rows: pa.Table, file: DataFile, broker: str) -> pa.Table:
    """The broker's rows of a file."""
    return rows if file.bounds.broker == broker else rows.filter(pc.equal(rows["broker"], broker))


_LAST_COLUMNS: Final = ("broker", *KEY, "offset_after", "seen_before", "seen_after")
_EMPTY: Final = pa.schema([CONSUMPTION_SCHEMA.field(name) for name in _LAST_COLUMNS]).empty_table()


def by_queue(rows: pa.Table) -> tuple[Int64s, Int64s]:
    """The order of the rows by topic, queue, group and time, and the number of each one's queue in that order.

    Rows of the same time keep their order.
    """
    queues = np.zeros(rows.num_rows, np.int64)
    for name in KEY:
        column = rows[name].unify_dictionaries().combine_chunks().dictionary_encode()
        values = column.dictionary.to_pylist()
        place = {value: number for number, value in enumerate(sorted(values))}
        numbers = np.array([place[value] for value in values], np.int64)
        if len(values):
            queues = queues * len(values) + numbers[column.indices.to_numpy(zero_copy_only=False)]
    times = rows["seen_after"].cast(pa.int64()).to_numpy()
    if len(queues) and not _ascend(queues, times):
        order = np.lexsort((times, queues))
        return order, queues[order]
    return np.arange(len(queues)), queues


def _ascend(queues: Int64s, times: Int64s) -> bool:
    """Whether rows are already in the order of their queues and times, as in merged files."""
    steps = np.diff(queues)
    return bool(((steps > 0) | ((steps == 0) & (np.diff(times) >= 0))).all())


def last_of_each(rows: pa.Table) -> pa.Table:
    """The last row of each queue of each group."""
    order, queues = by_queue(rows)
    return rows.take(order[np.append(np.diff(queues) != 0, True)[: len(order)]])


def _as_first_seen(rows: pa.Table) -> pa.Table:
    """Last moves of queues as first sights: the offset is known, and not when it was reached."""
    there = rows.filter(pc.is_valid(rows["offset_after"]))
    for name, value in (("offset_before", None), ("seen_before", None), ("move", FIRST_SEEN)):
        field = CONSUMPTION_SCHEMA.field(name)
        values = pa.repeat(pa.scalar(value, field.type), there.num_rows)
        there = there.set_column(CONSUMPTION_SCHEMA.get_field_index(name), field, values)
    return there


def _rows(moves: Sequence[Move], broker: str) -> pa.Table:
    names = CONSUMPTION_SCHEMA.names
    columns: dict[str, Any] = dict(zip(names[1:], zip(*moves, strict=True), strict=True))
    columns["broker"] = pa.repeat(broker, len(columns["move"]))
    for name in ("seen_before", "seen_after"):
        columns[name] = pa.array(columns[name], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    return pa.table({name: columns[name] for name in names}).cast(CONSUMPTION_SCHEMA)
