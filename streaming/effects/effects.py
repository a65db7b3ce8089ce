"""The effects of a stretch of the log on queues, index and table, as the tasks that read it left them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.piece_entries import PieceEntries
from reput.sinks.files.scratch import Scratch
from reput.source.segments.damage import DamagedRange
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.output.quarantine_step import Lines, QuarantineStep


@dataclass(frozen=True)
class Effects:
    """What `[start, end)` of the log does.

    Attributes
    ----------
    batch
        Its records; None when neither queues nor index are made. Without `entries`, its effects too.
    entries
        Entries and keys.
    parts
        The table's files (``PART_SCHEMA``), None without a table.
    damaged
        What was passed over, in log order.
    refused
        What queues do not take of `entries`; see ``QueueAdmission.refused_of_entries``.
    """

    start: int
    end: int
    batch: LogicBatch | None
    entries: PieceEntries | None
    parts: pa.Table | None
    damaged: tuple[DamagedRange, ...] = ()
    refused: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        read: RangeEffects,
        scratch: Scratch,
        *,
        by_window: bool,
        wanted: Callable[[bytes, int], bool] = lambda *_: True,
    ) -> Effects:
        """What was read, from the files that the tasks left in `scratch`; `by_window` as the tasks had it.

        `wanted` says which queues are made, by topic and queue id; whole pieces have no others.
        """
        effects = cls(read.start, read.end, None, None, read.part_table() if read.parts else None, tuple(read.damaged))
        if not read.pieces:
            return effects
        if by_window:
            batch = LogicBatch.merge(scratch.read(read.scratch_files)).only(wanted)
            return replace(effects, batch=batch)
        return replace(
            effects, batch=LogicBatch.without_effects(read.pieces), entries=PieceEntries.read(read.scratch_files)
        )

    def sifted(self, quarantine: QuarantineStep | None) -> tuple[Effects, Lines]:
        """The effects without what queues cannot take, and what was written down; asked before any sink writes."""
        if quarantine is None:
            return self, ()
        if self.batch is None:
            return self, quarantine.write(self.end, self.damaged)
        if self.entries is None:
            batch, lines = quarantine(self.batch, self.damaged)
            return replace(self, batch=batch), lines
        refused, lines = quarantine.take_entries(self.start, self.end, self.entries, self.damaged)
        return replace(self, refused=refused), lines

    @property
    def messages(self) -> int:
        """How many records there are."""
        return self.batch.messages if self.batch else sum(self.parts["messages"].to_pylist() if self.parts else ())

    @property
    def keys(self) -> int:
        """How many keys there are for the index."""
        if self.batch is None:
            return 0
        return self.entries.key_count if self.entries else len(self.batch.keys.hashes)
