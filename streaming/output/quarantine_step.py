"""Before the sinks of queues and index get a stretch of the log, write down what they will not get of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.quarantine import EXPIRED, Quarantine, QuarantinedRange, load_quarantine
from reput.sinks.queue.consume_queue import ConsumeQueueSink, RefusedRecord
from reput.sinks.table.location import TableLocation
from reput.sinks.table.quarantine_table import QuarantineTable
from reput.source.log.log_reader import LogReader
from reput.source.record.damage import HEAD_BYTES, DamagedRange

Lines = tuple[QuarantinedRange, ...]
_log = logging.getLogger("reput")


def open_quarantine_table(
    table: TableLocation,
    broker: str,
    quarantine: Quarantine,
    output: Path,
    *,
    must_exist: bool = False,
) -> QuarantineTable:
    """Open the quarantine's table beside the message table `table`, and add the lines that it lacks.

    A run that died may have written lines only to `output`, which has the lines of `quarantine`. `must_exist` is as in
    ``DeltaTable.open_or_create``.
    """
    found = QuarantineTable(table, broker, must_exist=must_exist)
    lines = load_quarantine(output)
    found.repair(lines)
    found.write(quarantine.end_offset, lines)
    return found


@dataclass(frozen=True)
class QuarantineStep:
    """Writes down what is left out of a stretch of the log; each call returns the new lines.

    `queues` tells which records no queue can take; it is None if no queues are kept. `table` gets the same rows once
    they are in the output.
    """

    quarantine: Quarantine
    log: LogReader
    queues: ConsumeQueueSink | None
    table: QuarantineTable | None

    @property
    def end_offset(self) -> int:
        """What was left out before this physical offset is on disk."""
        return self.quarantine.end_offset

    def __call__(self, batch: LogicBatch, damaged: tuple[DamagedRange, ...]) -> tuple[LogicBatch, Lines]:
        """The batch without what the queues cannot take, and the new lines."""
        refused: tuple[RefusedRecord, ...] = ()
        if self.queues is not None:
            batch, refused = self.queues.admission.sift(batch, self.queues.end_offset, self.queues.is_begun)
        return batch, self.write(batch.end, damaged, refused)

    def write(self, end: int, damaged: tuple[DamagedRange, ...], refused: Iterable[RefusedRecord] = ()) -> Lines:
        """Write down what is left out of a stretch of the log that ends at `end`."""
        for record in refused:
            if record.physical_offset >= self.end_offset:
                begin, stop = record.physical_offset, record.physical_offset + record.msg_size
                damaged += (DamagedRange(begin, stop, record.cause, *self.log.look_at(begin, HEAD_BYTES)),)
        lines = self.quarantine.write(end, damaged)
        for line in lines:
            if line.cause == EXPIRED:  # logged where it is passed over
                continue
            _log.warning(
                "left out of the log at %d: %d bytes, %s, in %s",
                line.physical_offset,
                line.length,
                line.cause,
                line.file,
            )
        if self.table is not None and lines:
            self.table.write(end, lines)
        return lines
