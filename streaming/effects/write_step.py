"""One step of queues, index, checkpoint and table: leave records out, write the others, note the end.

`reput tail` takes a step for each wave of a micro-batch. Nothing here knows Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.arrival import ArrivalSummary
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.scratch import Scratch
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.quarantine import expired_range
from reput.sinks.sink import Sink
from reput.sinks.store_checkpoint import load_store_checkpoint, store_checkpoint
from reput.sinks.table.message_table import MessageTable
from reput.source.log.range_reader import DecodeOptions
from reput.streaming.effects.effects import (
    Effects,
    EffectsWriter,
    Lines,
    QuarantineStep,
    TableWriter,
    write_side_by_side,
    writers_of,
)
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.paths import LOGIC, TABLE


@dataclass(frozen=True)
class StepReport:
    """The report of a step that wrote `[start, end)` of the log.

    Attributes
    ----------
    messages
        How many there were, by what is kept: ``logic``, ``table``.
    arrivals
        The messages that arrived in each queue; None if not asked for.
    anomalies, quarantined
        The anomalies of its records, and the quarantine's new lines.
    sync_seconds
        How long the queues and the index waited for the disk.
    """

    start: int
    end: int
    messages: Mapping[str, int]
    arrivals: ArrivalSummary | None
    anomalies: AnomalyCounts
    quarantined: Lines
    sync_seconds: float


class WriteStep:
    """The recovered sinks of one query; `task` reads a range of the log for them, in any process."""

    def __init__(
        self,
        logic: LogicSinks | None,
        files: DurableFiles,
        decode: DecodeOptions,
        *,
        arrivals: bool = False,
        quarantine: QuarantineStep | None = None,
        table: MessageTable | None = None,
    ) -> None:
        """Keep queues and index with `logic`, the table with `table`, or both; None for what is not kept.

        `arrivals` asks for ``StepReport.arrivals``. Without a `quarantine`, damage ends the run.
        """
        self._logic = logic
        self._table = table
        self._table_writers = [] if table is None else [TableWriter(table)]
        self._writers: list[EffectsWriter] = [*([] if logic is None else writers_of(logic)), *self._table_writers]
        self._quarantine = quarantine
        self._files = files
        self._scratch: Scratch | None = None
        self._task = RangeTask(decode, None)
        if logic is not None:
            self._scratch = Scratch(files)
            self._scratch.clear()
            self._task = RangeTask(decode, replace(logic.needs, arrivals=arrivals), scratch=self._scratch.directory)
        self._has_waiting = False
        # From the previous step of this run; before the first step the record before it is not known.
        self._last_end = -1
        self._last_record: RecordFingerprint | None = None

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The queues and the index."""
        return () if self._logic is None else self._logic.sinks

    @property
    def task(self) -> RangeTask:
        """The task that reads the ranges of the next step."""
        if self._table is None:
            return self._task
        return replace(self._task, file_writer=self._table.file_writer(self._table.end_offset, self._task.decode))

    @property
    def ends(self) -> dict[str, int]:
        """The physical offset before which everything is durable, by what is kept: ``logic``, ``table``."""
        ends = {}
        if self._logic is not None:
            quarantine = [] if self._quarantine is None else [self._quarantine.end_offset]
            ends[LOGIC] = min([*(sink.end_offset for sink in self._logic.sinks), *quarantine])
        if self._table is not None:
            ends[TABLE] = self._table.end_offset
        return ends

    @property
    def last_records(self) -> list[RecordFingerprint | None]:
        """The last record of each sink."""
        return [sink.last_record for writer in self._writers for sink in writer.sinks]

    def follow(self, logic: LogicSinks) -> None:
        """Use these sinks from now on; they keep what the ones before kept. Nothing may wait for `complete`."""
        assert not self._has_waiting
        self._logic, self._writers = logic, [*writers_of(logic), *self._table_writers]
        assert self._task.needs is not None
        self._task = replace(self._task, needs=replace(logic.needs, arrivals=self._task.needs.arrivals))

    def clear_scratch(self) -> None:
        """Remove what lost tasks left; call it when everything that tasks have read is written."""
        if self._scratch is not None:
            self._scratch.sweep()

    def write(self, read: RangeEffects, *, more_follow: bool = False) -> StepReport:
        """Write the effects of consecutive ranges, durably and once: first the quarantine, then the sinks.

        With `more_follow`, a part waits for the last of them, or for `complete` (``EffectsWriter.write``).
        """
        self._has_waiting = False  # after a failure, recovery completes it
        synced_before = self._sync_seconds
        effects, quarantined = Effects.of(read).sifted(self._quarantine)
        anomalies = write_side_by_side(self._writers, effects, more_follow=more_follow)
        if effects.batch is not None:
            anomalies += self._note_records(effects.batch)
        if self._scratch is not None:
            self._scratch.remove(read.scratch_files)
        self._has_waiting = more_follow
        return StepReport(
            *(effects.start, effects.end, self._messages(effects)),
            None if effects.batch is None else effects.batch.arrivals,
            *(anomalies, quarantined, self._sync_seconds - synced_before),
        )

    def complete(self) -> None:
        """Write, durably, what still waits because more effects were to follow."""
        if self._has_waiting:
            self._has_waiting = False
            for writer in self._writers:
                writer.finish()

    def pass_over(self, name: str, start: int) -> None:
        """Move ``logic`` or ``table`` on to the physical offset `start`, durably: everything before it has expired."""
        if name == TABLE:
            assert self._table is not None
            self._table.pass_over(start)
            return
        if self._quarantine is not None and self._quarantine.end_offset < start:
            self._quarantine.write(start, (expired_range(self._quarantine.end_offset, start),))
        for sink in self.sinks:
            if sink.end_offset < start:
                sink.pass_over(start)

    @property
    def _sync_seconds(self) -> float:
        return 0.0 if self._logic is None else self._logic.sync_seconds

    def _messages(self, effects: Effects) -> dict[str, int]:
        messages = {}
        if effects.batch is not None:
            messages[LOGIC] = effects.batch.messages
        if effects.table_files is not None:
            messages[TABLE] = effects.rows
        return messages

    def _note_records(self, batch: LogicBatch) -> AnomalyCounts:
        """Bring the store's checkpoint up to the batch, which is written; return its anomalies."""
        before = self._last_record if self._last_end == batch.start else None
        self._last_end, self._last_record = batch.end, batch.last_record or before
        if self._logic is not None and self._logic.sinks and batch.last_record is not None:
            known = load_store_checkpoint(self._files)
            store_checkpoint(self._files, self._logic.advanced(known, batch.last_record.store_timestamp))
        return batch.anomalies(before)
