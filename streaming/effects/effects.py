"""The effects of a stretch of the log on queues, index and table, as the tasks that read it left them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from reput.sinks.dispatch.batch import LogicBatch
from reput.source.record.damage import DamagedRange
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.output.quarantine_step import Lines, QuarantineStep


@dataclass(frozen=True)
class Effects:
    """The effects of `[start, end)` of the log.

    Attributes
    ----------
    batch
        Its records, entries and keys; None if neither queues nor index are made.
    table_files
        The table's files (``TABLE_FILE_SCHEMA``), None without a table.
    damaged
        What was passed over, in log order.
    """

    start: int
    end: int
    batch: LogicBatch | None
    table_files: pa.Table | None
    damaged: tuple[DamagedRange, ...] = ()

    @classmethod
    def of(cls, read: RangeEffects) -> Effects:
        """The effects of what was read."""
        table_files = read.table_file_rows() if read.table_files else None
        return cls(read.start, read.end, read.batch(), table_files, tuple(read.damaged))

    def sifted(self, quarantine: QuarantineStep | None) -> tuple[Effects, Lines]:
        """The effects without what queues cannot take, and the quarantine's new lines; called before sinks write."""
        if quarantine is None:
            return self, ()
        if self.batch is None:
            return self, quarantine.write(self.end, self.damaged)
        batch, lines = quarantine(self.batch, self.damaged)
        return replace(self, batch=batch), lines

    @property
    def messages(self) -> int:
        """The number of records."""
        return self.batch.messages if self.batch else self.rows

    @property
    def rows(self) -> int:
        """The number of records that have a row in the table's files."""
        return 0 if self.table_files is None else sum(self.table_files["messages"].to_pylist())

    @property
    def keys(self) -> int:
        """The number of keys for the index."""
        return self.batch.entries.key_count if self.batch else 0
