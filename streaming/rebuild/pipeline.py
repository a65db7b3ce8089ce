"""How a rebuild goes through the log: tasks read one stretch after the other, and what is read is written in waves."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.scratch import Scratch
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.quarantine import count_causes, expired_range
from reput.sinks.table.message_table import MessageTable
from reput.source.log.log_reader import LogReader
from reput.source.log.range_cut import cut_ranges
from reput.streaming.config.pipeline import PipelineConfig, check_range_count
from reput.streaming.effects.effects import Effects
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.effects.waves import OnRange, Waves, worth_a_wave
from reput.streaming.effects.writers import EffectsWriter, TableWriter, write_side_by_side
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.output.quarantine_step import QuarantineStep
from reput.streaming.output.startup import aligned
from reput.streaming.rebuild.report import RebuildProgress
from reput.streaming.rebuild.request import RebuildRequest
from reput.streaming.rebuild.stretch_read import StretchRead
from reput.streaming.tasks.tasks import Tasks

_log = logging.getLogger("reput")

_READ_AT_ONCE = 2
# A wave is at least such a part of a stretch: the writers begin early and end soon after the readers. There are fewer
# where each is a commit of a table, or is written by tasks of a cluster, which write each index file in one.
_WAVES_A_STRETCH, _LARGE_WAVES_A_STRETCH = 8, 2


class RebuildPipeline:
    """Reads stretch after stretch, and writes what was read while more is read."""

    def __init__(
        self,
        tasks: Tasks,
        config: PipelineConfig,
        request: RebuildRequest,
        log: LogReader,
        root: Path,
        writers: Sequence[EffectsWriter],
        quarantine: QuarantineStep | None,
        progress: RebuildProgress,
    ) -> None:
        """The writers' sinks are recovered; `root` is where the rebuild works; without `quarantine`, damage ends it."""
        self._tasks = tasks
        self._config = config
        self._log = log
        self._writers = writers
        self._quarantine = quarantine
        self._progress = progress
        table = next((writer.table for writer in writers if isinstance(writer, TableWriter)), None)
        self._table: MessageTable | None = table
        self._bytes_a_range = (config.table if table else config.rebuild).max_bytes_per_partition
        self._bytes_a_stretch = config.rebuild.max_bytes_per_wave
        if tasks.is_on_cluster:  # no core is without a range
            self._bytes_a_stretch = max(self._bytes_a_stretch, self._bytes_a_range * tasks.parallelism)
        self._wanted = request.queue_filter
        needs = LogicSinks.open(config, DurableFiles(root)).needs
        queues, index = request.makes_queues(config), request.makes_index(config)
        self._needs = replace(needs, consume_queue=queues, index=index) if queues or index else None
        self._scratch = Scratch(DurableFiles(root))
        self._scratch.clear()
        # The end of this run's previous wave, and the last record so far.
        self._before: tuple[int, RecordFingerprint | None] = (-1, None)

    def run(self, start: int, end: int) -> None:
        """Read `[start, end)` and write its effects; records begin or end at both offsets."""
        name = "tableMaxBytesPerPartition" if self._table else "rebuildMaxBytesPerPartition"
        check_range_count(name, self._bytes_a_range, min(end - start, self._config.rebuild.max_bytes_per_wave))
        # A stretch and a wave end where a sink ends that is ahead of others: queues and index take a wave whole or not.
        # A table may end inside a range that has been damaged since, or is one damaged range under this onDamage.
        stops = {aligned(self._log, sink.end_offset) for writer in self._writers for sink in writer.sinks} | {end}
        waves = Waves(self._write, self._worth_a_wave, stops)
        waves.during(start, lambda on_range: self._read_all(start, end, stops, waves, on_range))
        for writer in self._writers:
            writer.finish()

    def pass_over(self, end: int, start: int) -> None:
        """Continue at `start`, durably: the segments of `[end, start)` are missing, and none of it was read."""
        _log.warning(
            "rebuild: the segments of [%d, %d) are missing, %d bytes; continuing after them", end, start, start - end
        )
        if self._quarantine is not None and self._quarantine.end_offset < start:
            self._quarantine.write(start, (expired_range(end, start),))
        for sink in (sink for writer in self._writers for sink in writer.sinks):
            if sink.end_offset < start:
                sink.pass_over(start)
        self._progress.on_missing(end, start)

    def _read_all(
        self, start: int, end: int, stops: Collection[int], waves: Waves, on_range: OnRange
    ) -> list[RangeEffects]:
        """Read `[start, end)`, and wait until it is written: no range of it is left.

        If the end of a stretch is known early, the next is begun at once: cores that run out of ranges of the one read
        ranges of the other.
        """
        reads: deque[StretchRead] = deque()
        begin: int | None = start
        while begin != end or reads:
            while begin is not None and begin < end and len(reads) < _READ_AT_ONCE:
                reads.append(self._read(begin, min(stop for stop in stops if begin < stop <= end), on_range))
                begin = reads[-1].end
            began = time.monotonic()
            results = reads.popleft().results()
            self._progress.add_seconds("read", time.monotonic() - began)
            begin = results[-1].end if begin is None and not reads else begin
            # So there are scratch files of three stretches at most.
            if not waves.wait_for(results[0].start):
                break
        waves.wait_for(end)
        return []

    def _worth_a_wave(self) -> int:
        sinks = [sink for writer in self._writers for sink in writer.sinks]
        is_large = self._table is not None or self._tasks.is_on_cluster
        waves = _LARGE_WAVES_A_STRETCH if is_large else _WAVES_A_STRETCH
        return min(self._bytes_a_stretch, worth_a_wave(self._bytes_a_stretch // waves, sinks))

    def _read(self, start: int, end: int, on_range: OnRange) -> StretchRead:
        table, decode = self._table, self._log.decode_options
        writer = None
        if table is not None:
            writer = table.file_writer(table.end_offset, decode)
        task = RangeTask(decode, self._needs, self._wanted, self._scratch.directory, writer)
        queue = self._log.queue()
        cuts = cut_ranges(queue, start, end, self._bytes_a_range, self._bytes_a_stretch)
        return StretchRead(self._tasks, queue, cuts, task, self._bytes_a_range, on_range)

    def _write(self, read: RangeEffects) -> None:
        began = time.monotonic()
        effects, quarantined = Effects.of(read).sifted(self._quarantine)
        anomalies = write_side_by_side(self._writers, effects, more_follow=True)
        anomalies += self._record_anomalies(effects.batch)
        self._scratch.remove(read.scratch_files)
        self._progress.add_seconds("write", time.monotonic() - began)
        self._progress.on_wave(read.end, effects.messages, effects.keys, anomalies, count_causes(quarantined))

    def _record_anomalies(self, batch: LogicBatch | None) -> AnomalyCounts:
        if batch is None:
            return NO_ANOMALIES
        end, before = self._before
        before = before if end == batch.start else None
        self._before = batch.end, batch.last_record or before
        return batch.anomalies(before)
