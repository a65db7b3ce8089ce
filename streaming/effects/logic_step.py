"""One step of queues, index and the store's checkpoint: leave records out, write the others, note how far it came.

`reput tail` takes a step for each micro-batch. Nothing here knows Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.scratch import Scratch
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.store_checkpoint import load_store_checkpoint, store_checkpoint
from reput.sinks.table.message_table import MessageTable
from reput.source.log.range_reader import DecodeOptions
from reput.streaming.effects.effects import Effects
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.effects.writers import TableWriter, write_side_by_side, writers_of
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.quarantine_step import Lines, QuarantineStep


@dataclass(frozen=True)
class StepReport:
    """What a step did: its records, their anomalies, the quarantine's new lines, and seconds of waiting for disks."""

    batch: LogicBatch
    anomalies: AnomalyCounts
    quarantined: Lines
    sync_seconds: float = 0.0


class LogicStep:
    """The recovered sinks of one output; `task` reads a range of the log for them, in any process."""

    def __init__(
        self,
        logic: LogicSinks,
        files: DurableFiles,
        decode: DecodeOptions,
        *,
        arrivals: bool = False,
        quarantine: QuarantineStep | None = None,
        table: MessageTable | None = None,
    ) -> None:
        """`arrivals` asks for ``LogicBatch.arrivals``; `quarantine` is None if damage ends the run.

        `table` gets the table's files, if the ranges were read for it, too.
        """
        self.sinks = logic.sinks
        self.quarantine = quarantine
        self._logic = logic
        self._table = [] if table is None else [TableWriter(table)]
        self._writers = [*writers_of(logic), *self._table]
        self._files = files
        self._scratch = Scratch(files)
        self._scratch.clear()
        needs = replace(logic.needs, arrivals=arrivals)
        self.task = RangeTask(decode, needs, scratch=self._scratch.directory)
        self._has_waiting = False
        # The previous step of this run; without it, the record before a step is not known.
        self._last_end = -1
        self._last_record: RecordFingerprint | None = None

    @property
    def end_offset(self) -> int:
        """The least of the sinks' ends."""
        ends = [sink.end_offset for sink in self.sinks]
        return min(ends if self.quarantine is None else [*ends, self.quarantine.end_offset])

    def follow(self, logic: LogicSinks) -> None:
        """Go on with these sinks, which keep what those before kept; nothing may wait for `complete`."""
        assert not self._has_waiting
        self.sinks, self._logic, self._writers = logic.sinks, logic, [*writers_of(logic), *self._table]
        assert self.task.needs is not None
        self.task = replace(self.task, needs=replace(logic.needs, arrivals=self.task.needs.arrivals))

    def clear_scratch(self) -> None:
        """Remove what lost tasks left; call it when all that tasks read is written."""
        self._scratch.sweep()

    def write(self, read: RangeEffects, *, more_follow: bool = False) -> StepReport:
        """Write the effects of consecutive ranges, durably and once: first the quarantine, then the sinks.

        Where `more_follow` soon, some waits for the last of them, or for `complete` (``EffectsWriter.write``).
        """
        self._has_waiting = False  # after a failure, recovery is what completes
        synced_before = self._logic.sync_seconds
        effects, quarantined = Effects.of(read).sifted(self.quarantine)
        batch = effects.batch
        assert batch is not None
        before = self._last_record if self._last_end == batch.start else None
        anomalies = batch.anomalies(before) + write_side_by_side(self._writers, effects, more_follow=more_follow)
        self._last_end, self._last_record = batch.end, batch.last_record or before
        if batch.last_record is not None and self.sinks:
            known = load_store_checkpoint(self._files)
            store_checkpoint(self._files, self._logic.advanced(known, batch.last_record.store_timestamp))
        self._scratch.remove(read.scratch_files)
        self._has_waiting = more_follow
        return StepReport(batch, anomalies, quarantined, self._logic.sync_seconds - synced_before)

    def complete(self) -> None:
        """Write, durably, what still waits since more effects were to follow."""
        if self._has_waiting:
            self._has_waiting = False
            for writer in self._writers:
                writer.finish()
