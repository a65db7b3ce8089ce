"""The Delta table ``TABLE-consumption`` beside the message table: each move of a consumer group in a queue, a row each.

The ledger is its own record of how far it is: the last row of each queue says where the group was seen last.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.sinks.table.retention import ALL_FOREVER, ExpiryLimits, RowRetention
from reput.sinks.table.storage import output_errors
from reput.source.arrays import Int64s
from reput.source.times import milliseconds_of, time_of

_COMMENT: Final = "Where RocketMQ's consumer groups stood: each move of a group's offset in a queue, a row each"
_KEY: Final = ("topic", "queue_id", "consumer_group")
_STATISTICS_COLUMNS: Final = ("broker", "consumer_group", "topic", "seen_after")
# So many files with about as many rows become one, or fewer if they have this many rows together: each row is written
# again a few times only, and a month of 200 groups is about a hundred files. Half of this many rows are left alone.
_MERGED_AT: Final = 20
_LARGE_ROWS: Final = 1 << 20
_NOTE: Final = {"what": "merged"}
# Moves of few queues and of a short time are together, so that questions read little of a file.
_FORM: Final = {
    "row_group_size": 1 << 15,
    "use_dictionary": ["broker", "consumer_group", "topic", "move"],
    "column_encoding": dict.fromkeys(
        ("queue_id", "offset_before", "offset_after", "seen_before", "seen_after"), "DELTA_BINARY_PACKED"
    ),
}

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


class _NothingExpiredError(Exception):
    """No row of the ledger has expired that may go."""


class ConsumptionTable:
    """One broker's rows of the ledger; several brokers may share one. The table is made with its first row."""

    def __init__(
        self, table: TableLocation, broker: str, versions_kept: int, retention: RowRetention = ALL_FOREVER
    ) -> None:
        """The ledger beside the message table `table`, of which `versions_kept` versions stay readable."""
        self.path = consumption_table_path(table)
        self._broker = broker
        self._app_id = f"reput/{broker}/consumption"
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
        """Where each group was seen last, and a time (ms) after which no move has been missed; None is unknown.

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
        last = pa.concat_tables([self._last_rows(delta, file) for file in delta.files_of(self._broker)] or [_EMPTY])
        for row in _last_of_each(last).to_pylist():
            before, after = row["seen_before"], row["seen_after"]
            if latest is None or after > latest[0] or (after == latest[0] and before is not None):
                latest = after, before
            if row["offset_after"] is not None:
                queues = offsets.setdefault((row["consumer_group"], row["topic"]), {})
                queues[row["queue_id"]] = row["offset_after"]
        return offsets, None if latest is None or latest[1] is None else milliseconds_of(latest[1])

    def append(self, moves: Sequence[Move], version: int) -> None:
        """Add rows in one commit, with transaction `version`; raises what ``DeltaTable.append`` raises."""
        self.append_rows(_rows(moves, self._broker), version)

    def append_rows(self, rows: pa.Table, version: int) -> None:
        """Add rows as Arrow has them; see `append`."""
        delta = self._open(creates=True)
        assert delta is not None
        delta.append([self._file(delta, rows)], app_id=self._app_id, version=version)

    def tidy(self) -> None:
        """After some commits, merge small files if there are many, and remove what has expired or no version needs.

        Raises
        ------
        OutputError
            The table cannot be read or written.
        """
        self._commits += 1
        delta = self._open()
        if delta is None or self._commits % _MERGED_AT != 1:
            return
        has_changed = self._expire(delta, time.time())
        while (files := self._mergeable(delta)) and self._merge(delta, files):
            has_changed = True
        if has_changed:
            clean_log(self.path, delta.version, self._versions_kept)

    def _expire(self, delta: DeltaTable, now_s: float) -> bool:
        """Once a day, remove the moves before the first day that the retention of their topics keeps.

        The last of them of each queue stays, as the first sight of the offset that the group had reached.
        """
        limits = self._retention.limits(now_s)
        if limits.latest_ms is None or limits.today_ms == self._expired_on:
            return False
        self._expired_on = limits.today_ms
        try:
            delta.commit(lambda snapshot: self._without_expired(delta, snapshot.files_of(self._broker), limits))
        except _NothingExpiredError:
            return False
        return True

    def _without_expired(self, delta: DeltaTable, present: Iterable[DataFile], limits: ExpiryLimits) -> Change:
        """What takes the expired rows out of the files that a version has; raises _NothingExpiredError without any."""
        assert limits.latest_ms is not None
        least = time_of(limits.latest_ms)
        files, added, reached, expired = [], [], CONSUMPTION_SCHEMA.empty_table(), 0
        for file in present:
            first = logged_time(file.bounds.columns.get("seen_after", (None, None))[0])
            if file.vector is not None or file.bounds.broker != self._broker or (first and first >= least):
                continue
            with output_errors(f"{self.path}: cannot read the ledger's rows", self.path):
                rows = _read(delta, file, CONSUMPTION_SCHEMA.names).cast(CONSUMPTION_SCHEMA)
            topics = rows["topic"].combine_chunks().dictionary_encode()
            times = rows["seen_after"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
            mask = limits.mask(topics.indices.to_numpy(), topics.dictionary.to_pylist(), times)
            expired += int(mask.sum())
            reached = _last_of_each(pa.concat_tables([reached, rows.filter(pa.array(mask))]))
            files.append(file)
            if not mask.all():
                added.append(self._file(delta, rows.filter(pa.array(~mask))))
        if expired <= reached.num_rows:
            raise _NothingExpiredError
        if (first_rows := _as_first_seen(reached)).num_rows:
            added.append(self._file(delta, first_rows))
        note = {"broker": self._broker, "what": "expired", "retention": str(self._retention)}
        return Change(added, files, None, deleted=expired - first_rows.num_rows, note=note)

    def _mergeable(self, delta: DeltaTable) -> list[DataFile]:
        """Files that are to become one; none if there are few."""
        alike: dict[int, list[DataFile]] = defaultdict(list)
        for file in sorted(delta.files_of(self._broker), key=lambda file: file.modification_time_ms):
            rows = file.bounds.rows or _LARGE_ROWS
            if file.vector is None and file.bounds.broker == self._broker and rows < _LARGE_ROWS // 2:
                alike[int(math.log(rows, _MERGED_AT))].append(file)
        for files in alike.values():
            total = np.cumsum([file.bounds.rows for file in files])
            if len(files) >= _MERGED_AT or total[-1] >= _LARGE_ROWS:
                return files[: int(np.searchsorted(total, _LARGE_ROWS)) + 1]
        return []

    def _merge(self, delta: DeltaTable, files: Sequence[DataFile]) -> bool:
        """Write the rows of files into one; False if another writer changed one of them."""
        with output_errors(f"{self.path}: cannot read the ledger's rows", self.path):
            rows = pa.concat_tables([_read(delta, file, CONSUMPTION_SCHEMA.names) for file in files])
        merged = self._file(delta, rows.unify_dictionaries().take(_by_queue(rows)[0]).cast(CONSUMPTION_SCHEMA))
        return delta.rewrite([file.path for file in files], [merged], 0, 1, {"broker": self._broker, **_NOTE})

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

    def _last_rows(self, delta: DeltaTable, file: DataFile) -> pa.Table:
        with output_errors(f"{self.path}: cannot read the ledger's rows", self.path):
            rows = _read(delta, file, _LAST_COLUMNS)
        if file.bounds.broker != self._broker:
            rows = rows.filter(pc.equal(rows["broker"], self._broker))
        return _last_of_each(rows).cast(_EMPTY.schema)


_LAST_COLUMNS: Final = ("broker", *_KEY, "offset_after", "seen_before", "seen_after")
_EMPTY: Final = pa.schema([CONSUMPTION_SCHEMA.field(name) for name in _LAST_COLUMNS]).empty_table()


def _read(delta: DeltaTable, file: DataFile, names: Sequence[str]) -> pa.Table:
    """A file's rows, texts as dictionaries, which take a tenth of the memory and of the time."""
    fields = [CONSUMPTION_SCHEMA.field(name) for name in names]
    texts = {field.name: pa.dictionary(pa.int32(), pa.string()) for field in fields if field.type == pa.string()}
    batches = live_batches(delta.storage, file, names, read_dictionary=[*texts])
    schema = pa.schema([field.with_type(texts.get(field.name, field.type)) for field in fields])
    return pa.Table.from_batches(batches, None).select(list(names)).cast(schema)


def _by_queue(rows: pa.Table) -> tuple[Int64s, Int64s]:
    """The order of the rows by topic, queue and group, each queue's by time; and the number of each one's queue in it.

    Rows of one time stay in their order.
    """
    queues = np.zeros(rows.num_rows, np.int64)
    for name in _KEY:
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
    """Whether rows are in the order of their queues and times already, as those of merged files are."""
    steps = np.diff(queues)
    return bool(((steps > 0) | ((steps == 0) & (np.diff(times) >= 0))).all())


def _last_of_each(rows: pa.Table) -> pa.Table:
    """The last row of each queue of each group."""
    order, queues = _by_queue(rows)
    return rows.take(order[np.append(np.diff(queues) != 0, True)[: len(order)]])


def _as_first_seen(rows: pa.Table) -> pa.Table:
    """Last moves of queues as the first that is known of them: the offset is known, and not when it was reached."""
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
