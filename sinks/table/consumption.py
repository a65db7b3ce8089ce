"""The Delta table ``TABLE-consumption`` beside the message table: each move of a consumer group in a queue, a row each.

The ledger is its own record of how far it is: the last row of each queue says where the group was seen last.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.cleaning import clean_log
from reput.sinks.table.columns import CONSUMPTION_COMMENTS, CONSUMPTION_SCHEMA, commented
from reput.sinks.table.data_file import DataFile, live_batches
from reput.sinks.table.delta_table import DeltaTable, is_table
from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.sinks.table.storage import output_errors
from reput.source.times import milliseconds_of

#: The kinds of a move.
PROGRESS, RESET_BACK, FIRST_SEEN, GONE = "progress", "reset_back", "first_seen", "gone"

_COMMENT: Final = "Where RocketMQ's consumer groups stood: each move of a group's offset in a queue, a row each"
_KEY: Final = ("consumer_group", "topic", "queue_id")
_STATISTICS_COLUMNS: Final = ("broker", "consumer_group", "topic", "seen_after")
# This many small files of a broker become one; a file of this size is left alone.
_MERGED_AT: Final = 100
_LOOKED_AT_EVERY: Final = 20
_LARGE_BYTES: Final = 8 * 1024 * 1024
_NOTE: Final = {"what": "merged"}

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
    found = []
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


class ConsumptionTable:
    """One broker's rows of the ledger; several brokers may share one. The table is made with its first row."""

    def __init__(self, table: TableLocation, broker: str, versions_kept: int) -> None:
        """The ledger beside the message table `table`, of which `versions_kept` versions stay readable."""
        self.path = consumption_table_path(table)
        self._broker = broker
        self._app_id = f"reput/{broker}/consumption"
        self._versions_kept = versions_kept
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
        last = pa.concat_tables([self._last_rows(delta, file) for file in self._files(delta)] or [_EMPTY])
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
        delta = self._open(creates=True)
        assert delta is not None
        delta.append(
            [DataFile.of_rows(delta.storage, _rows(moves, self._broker), _STATISTICS_COLUMNS)],
            app_id=self._app_id,
            version=version,
        )

    def tidy(self) -> None:
        """After some commits, merge small files if there are many, and remove what no kept version needs.

        Raises
        ------
        OutputError
            The table cannot be read or written.
        """
        self._commits += 1
        delta = self._open()
        if delta is None or self._commits % _LOOKED_AT_EVERY != 1:
            return
        small = [file for file in self._files(delta) if self._is_small(file)]
        if len(small) < _MERGED_AT:
            return
        with output_errors(f"{self.path}: cannot read the ledger's rows", self.path):
            rows = pa.concat_tables([self._read(delta, file) for file in small])
        merged = DataFile.of_rows(delta.storage, rows.sort_by("seen_after"), _STATISTICS_COLUMNS)
        if delta.rewrite([file.path for file in small], [merged], 0, 1, {"broker": self._broker, **_NOTE}):
            clean_log(self.path, delta.version, self._versions_kept)

    def _open(self, *, creates: bool = False) -> DeltaTable | None:
        if self._delta is None and (creates or is_table(self.path.resolve())):
            self._delta = DeltaTable.open_or_create(
                self.path,
                commented(CONSUMPTION_SCHEMA, CONSUMPTION_COMMENTS),
                properties={"delta.dataSkippingStatsColumns": ",".join(_STATISTICS_COLUMNS)},
                comment=_COMMENT,
            )
        return self._delta

    def _files(self, delta: DeltaTable) -> list[DataFile]:
        """The files of this broker alone, or that may have rows of it."""
        return delta.files_of(self._broker)

    def _is_small(self, file: DataFile) -> bool:
        return file.vector is None and file.bounds.broker == self._broker and file.size_bytes < _LARGE_BYTES

    def _read(self, delta: DeltaTable, file: DataFile) -> pa.Table:
        batches = live_batches(delta.storage, file, CONSUMPTION_SCHEMA.names)
        return pa.Table.from_batches(batches, None).select(CONSUMPTION_SCHEMA.names).cast(CONSUMPTION_SCHEMA)

    def _last_rows(self, delta: DeltaTable, file: DataFile) -> pa.Table:
        with output_errors(f"{self.path}: cannot read the ledger's rows", self.path):
            rows = self._read(delta, file)
        return _last_of_each(rows.filter(pc.equal(rows["broker"], self._broker)))


_EMPTY: Final = CONSUMPTION_SCHEMA.empty_table()


def _last_of_each(rows: pa.Table) -> pa.Table:
    """The last row of each queue of each group; rows of one time stay in their order."""
    ordered = rows.sort_by("seen_after").append_column("number", pa.array(np.arange(rows.num_rows)))
    last = ordered.group_by([*_KEY]).aggregate([("number", "max")])["number_max"]
    return ordered.take(last).drop_columns("number")


def _rows(moves: Sequence[Move], broker: str) -> pa.Table:
    names = CONSUMPTION_SCHEMA.names
    columns: dict[str, Any] = dict(zip(names[1:], zip(*moves, strict=True), strict=True))
    columns["broker"] = pa.repeat(broker, len(columns["move"]))
    for name in ("seen_before", "seen_after"):
        columns[name] = pa.array(columns[name], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    return pa.table({name: columns[name] for name in names}).cast(CONSUMPTION_SCHEMA)
