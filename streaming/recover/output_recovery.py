"""Comparing one output with its log, and bringing it into agreement."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import RecordFingerprint, SinkProgress
from reput.sinks.files.store_path import STORE_CHECKPOINT
from reput.sinks.store_checkpoint import StoreCheckpoint, load_store_checkpoint, store_checkpoint
from reput.source.errors import OutputError
from reput.source.log.log_reader import LogReader
from reput.streaming.config.broker import logic_needs
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.output.spark_checkpoint import SPARK_CHECKPOINT_OF_LOGIC, spark_offset
from reput.streaming.output.startup import fingerprint_at
from reput.streaming.recover.sink_repair import IndexRepair, QueueRepair, QueueReport, SinkFiles, SinkRepair

# How much of the log is compared at once.
_BATCH_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class SinkReport:
    """One sink: where its progress record ended (None without one) and will end, and what happens to its files."""

    name: str
    end_before: int | None
    end_after: int
    files: SinkFiles


class OutputRecovery:
    """Compares on construction, and changes nothing before `apply`.

    The log's records are the truth from its first segment on; what was derived from expired records stays.
    """

    def __init__(self, config: PipelineConfig, files: DurableFiles, log: LogReader) -> None:
        """Read the log once, from its beginning to the first record that queues or index disagree with.

        Raises
        ------
        ReputError
            The log cannot be read to its end, or the output's files were made with other settings.
        """
        self._files = files
        self._log = log
        self._least = log.queue().min_offset
        self.log_end = log.settled_end(self._least)
        needs = replace(logic_needs(config, config.store), filters=None, ext=False)
        self._task = RangeTask(log.decode_options, needs)
        self._batches: list[tuple[int, int, RecordFingerprint | None]] = []
        self._queue_repair = QueueRepair(config, files, self._begins_life, needs.batch_topics)
        index_repair = IndexRepair(config, files)
        wanted = [(self._queue_repair, needs.consume_queue), (index_repair, needs.index)]
        self._repairs: list[SinkRepair] = [repair for repair, is_on in wanted if is_on and self._open(repair)]
        self._compare()
        self._planned = [self._plan(repair) for repair in self._repairs]
        self._checkpoint = self._planned_checkpoint()

    # --- what was found --------------------------------------------------------------------------------------

    @property
    def rewound(self) -> bool:
        """Whether the last record that a sink has is no longer in the log."""
        known = [repair.record.last_record for repair in self._repairs if repair.record is not None]
        return any(record is not None and not self._is_in_log(record) for record in known)

    @property
    def spark_checkpoint_removed(self) -> bool:
        """Whether Spark's checkpoint of the `logic` query is ahead of the sinks, or cannot be read."""
        checkpoint = self._files.root.joinpath(*SPARK_CHECKPOINT_OF_LOGIC)
        if not checkpoint.is_dir() or not self._planned:
            return False
        try:
            offset = spark_offset(checkpoint)
        except OutputError:
            return True
        return offset is not None and offset > min(progress.end_offset for progress in self._planned)

    @property
    def sinks(self) -> tuple[SinkReport, ...]:
        """For each sink, where it was or will be brought back to."""
        return tuple(
            SinkReport(
                repair.name, repair.record.end_offset if repair.record else None, progress.end_offset, repair.changes()
            )
            for repair, progress in zip(self._repairs, self._planned, strict=True)
        )

    @property
    def queues(self) -> tuple[QueueReport, ...]:
        """The queues that remain."""
        return self._queue_repair.queues(self._least) if self._queue_repair in self._repairs else ()

    @property
    def is_changed(self) -> bool:
        """Whether `apply` writes anything."""
        sinks = any(map(self._is_changed, self._repairs, self._planned))
        return sinks or self.spark_checkpoint_removed or self._checkpoint is not None

    def apply(self) -> None:
        """Write what was planned, durably; if it is stopped anywhere, it can be run again.

        Spark's checkpoint is removed first: the next run would continue from it, after a record that no longer exists.
        """
        if self.spark_checkpoint_removed:
            self._files.remove_tree(*SPARK_CHECKPOINT_OF_LOGIC)
        for repair, progress in zip(self._repairs, self._planned, strict=True):
            if self._is_changed(repair, progress):
                repair.apply(progress)
        if self._checkpoint is not None:
            store_checkpoint(self._files, self._checkpoint)

    # --- comparing -------------------------------------------------------------------------------------------

    def _open(self, repair: SinkRepair) -> bool:
        repair.open(self._start(repair.record))
        if repair.start > self._least and repair.trusted_until > self._least:
            repair.open(self._least)  # a broker's files were taken over: they have entries before the record's start
        repair.limit = self._limit(repair.record)
        return not repair.is_empty

    def _start(self, record: SinkProgress | None) -> int:
        if record is None or record.start_offset <= self._least:
            return self._least
        return self._log.align_down(self._least, min(record.start_offset, self.log_end))

    def _limit(self, record: SinkProgress | None) -> int:
        """Where a sink's effects end: the end of the record that its progress reaches into, or of the log."""
        if record is None or record.end_offset >= self.log_end:
            return self.log_end
        if record.end_offset <= self._least:
            return self._least
        begin = self._log.align_down(self._least, record.end_offset)
        return begin if begin == record.end_offset else self._log.limit(begin, self.log_end, 1, None)

    def _compare(self) -> None:
        start = self._least
        while start < self.log_end:
            repairs = [
                repair for repair in self._repairs if repair.looks_further or (start < repair.limit and repair.agrees)
            ]
            if not repairs:
                return
            stop = min(at for repair in repairs for at in (repair.start, repair.limit, self.log_end) if at > start)
            end = self._log.limit(start, stop, _BATCH_BYTES, None)
            batch = self._batch(start, end)
            self._batches.append((start, end, batch.last_record))
            for repair in repairs:
                if repair.agrees and repair.start <= start < repair.limit:
                    repair.compare(batch)
                elif start >= repair.start:
                    repair.look_further(batch)
            start = end

    def _batch(self, start: int, end: int) -> LogicBatch:
        batch = RangeEffects.join([self._task.read(span) for span in self._log.split(start, end)]).batch()
        assert batch is not None
        return batch

    def _begins_life(self, topic: bytes, queue_id: int, offset: int) -> bool:
        """As ``QueueCheck.begins_life``."""
        # The log remembers where it was asked to read from as where a record begins.
        if not (self._least <= offset < self.log_end and self._log.align_down(self._least, offset) == offset):
            return False
        entries = self._batch(offset, self._log.limit(offset, self.log_end, 1, None)).entries
        found = (queue for queue in entries.all_queues() if (queue.topic, queue.queue_id) == (topic, queue_id))
        return any(queue.first_physical_offset == offset and queue.queue_offsets[0] == 0 for queue in found)

    # --- what to do ------------------------------------------------------------------------------------------

    def _plan(self, repair: SinkRepair) -> SinkProgress:
        last = self._last_before(repair.end)
        last_offset = last.offset if last is not None and last.offset >= repair.start else -1
        end, state = repair.plan(last_offset, self._store_timestamp)
        record = repair.record
        if record is None:
            return SinkProgress(min(repair.start, end), end, self._last_before(end), state)
        start = min(record.start_offset, end)
        if end < record.end_offset or record.end_offset < self._least:
            return SinkProgress(start, end, self._last_before(end), state)
        known = record.last_record
        if known is not None and not self._is_in_log(known):
            known = self._last_before(record.end_offset)
        return SinkProgress(start, record.end_offset, known, state)

    def _is_in_log(self, known: RecordFingerprint) -> bool:
        if known.offset < self._least:
            return True  # expired
        return known.offset + known.size <= self.log_end and fingerprint_at(self._log, known) == known

    def _last_before(self, end: int) -> RecordFingerprint | None:
        last = None
        end = self._log.align_down(self._least, end)
        for start, stop, record in self._batches:
            if stop <= end:
                last = record or last
            elif start < end:
                last = self._batch(start, end).last_record or last
        return last

    def _store_timestamp(self, offset: int) -> int | None:
        if offset < self._least:
            return None
        record = self._batch(offset, self._log.limit(offset, self.log_end, 1, None)).last_record
        return None if record is None else record.store_timestamp

    def _planned_checkpoint(self) -> StoreCheckpoint | None:
        """The new store checkpoint if the current one is ahead of what is left, None if it may stay."""
        if not (self._files.root / STORE_CHECKPOINT).exists():
            return None
        known = planned = load_store_checkpoint(self._files)
        for repair, progress in zip(self._repairs, self._planned, strict=True):
            if repair.disagrees_at is None and not (repair.record and progress.end_offset < repair.record.end_offset):
                continue
            if repair is self._queue_repair:
                logics = progress.last_record.store_timestamp if progress.last_record else 0
                last = progress.last_record.offset if progress.last_record else 0
                planned = planned.with_logics_physical_offset(min(known.logics_physical_offset, last))
                planned = replace(
                    planned,
                    logics_msg_timestamp=min(known.logics_msg_timestamp, logics),
                    physic_msg_timestamp=min(known.physic_msg_timestamp, logics),
                )
            else:
                index = min(known.index_msg_timestamp, progress.state["index_msg_timestamp"])
                planned = replace(planned, index_msg_timestamp=index)
        return planned if planned != known else None

    def _is_changed(self, repair: SinkRepair, planned: SinkProgress) -> bool:
        changes = repair.changes()
        return repair.record != planned or bool(changes.removed or changes.mended)
