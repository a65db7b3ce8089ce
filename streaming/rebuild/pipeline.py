"""The pipeline of a rebuild through the log, and its output: one line a second, and a report at the end.

Tasks read one stretch after the other, and the effects are written in waves.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.scratch import Scratch
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.quarantine import EXPIRED, count_causes, expired_range
from reput.sinks.table.message_table import MessageTable
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import RangeCut, cut_ranges, limit, split
from reput.source.options import shown
from reput.source.printable import counted
from reput.streaming.config.broker import rocksdb_needs
from reput.streaming.config.pipeline import PipelineConfig, check_range_count
from reput.streaming.effects.effects import Effects, EffectsWriter, QuarantineStep, TableWriter, write_side_by_side
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.effects.waves import OnRange, Waves, worth_a_wave
from reput.streaming.output.logic_sinks import LogicSinks, aligned
from reput.streaming.rebuild.plan import OutputCounts, RebuildRequest
from reput.streaming.status.batch_report import findings, size_text
from reput.streaming.tasks.tasks import OnResult, Tasks

_log = logging.getLogger("reput")
# ----------------------------------------------------------------------------------------------------------------------
# Reading a stretch of the log for a rebuild: its ranges are read side by side, and their ends are proven.
#
# A range is first read as if nothing were damaged. A range that fails is read again as ``onDamage`` says, once its ends
# are proven: a walk follows the records and passes over damage, so that no range begins or ends inside of damage.


class StretchRead:
    """A stretch that is being read: consecutive ranges of the log, of which the first one's start is proven.

    The last one ends where a record ends; if that end is not proven beforehand, only `results` tell it.
    """

    def __init__(
        self,
        tasks: Tasks,
        queue: MappedFileQueue,
        cuts: Sequence[RangeCut],
        task: RangeTask,
        bytes_a_range: int,
        on_range: OnRange,
    ) -> None:
        """Begin to read; `on_range` gets each range that is not empty as soon as its start is proven, in log order.

        It is called from any thread, the last time before `results` returns.
        """
        self._tasks = tasks
        self._queue = queue
        self._cuts = list(cuts)
        self._task = task
        self._bytes_a_range = bytes_a_range
        self._in_order = _InOrder(on_range)
        self._results = _begin(tasks, task, cuts, self._in_order.put)

    @property
    def end(self) -> int | None:
        """The end of the stretch; None if only its results have it."""
        return self._cuts[-1].end if self._cuts[-1].is_end_proven else None

    def results(self) -> list[RangeEffects]:
        """Wait for the tasks, and return its ranges as they were read, in log order; called once.

        Raises
        ------
        CorruptRecordError
            A record in the middle of the log fails its checks, and ``onDamage`` is ``stop`` (as the text of Spark's
            exception).
        """
        cuts, results, on_damage = self._cuts, self._results(), self._task.decode.on_damage
        while (bad := next((number for number, result in enumerate(results) if not result.is_whole), None)) is not None:
            # Each range before it was read to where the next begins, so this one's start is proven. From there the
            # records are followed to the last cut of its segment.
            begin = results[bad].start
            last = max(number for number, cut in enumerate(cuts) if cut.file == cuts[bad].file)
            stop = cuts[last].end
            if not cuts[last].is_end_proven:
                stop = limit(self._queue, begin, cuts[last].stop, max(1, stop - begin), None, on_damage)
            walked = [_proven(each) for each in split(self._queue, begin, stop, self._bytes_a_range, on_damage)]
            results[bad : last + 1] = _begin(self._tasks, self._task, walked)()
            cuts[bad : last + 1] = walked
        self._in_order.end(results)
        return results


class _InOrder:
    """Hands on ranges in the order of their numbers, each once, unless it is empty."""

    def __init__(self, on_range: OnRange) -> None:
        self._on_range = on_range
        self._lock = threading.Lock()
        self._waiting: dict[int, RangeEffects] = {}
        self._next = 0
        self._is_ended = False

    def put(self, number: int, read: RangeEffects) -> None:
        """Hand on a range after those before it: when they were read up to its start, the start is proven.

        Nothing is handed on after a range that is not whole.
        """
        with self._lock:
            if self._is_ended:
                return
            self._waiting[number] = read
            while (each := self._waiting.pop(self._next, None)) is not None and each.is_whole:
                self._hand_on(each)

    def end(self, results: Sequence[RangeEffects]) -> None:
        """Hand on the rest of the ranges; later results of tasks are ignored."""
        with self._lock:
            self._is_ended = True
            for each in results[self._next :]:
                self._hand_on(each)

    def _hand_on(self, read: RangeEffects) -> None:
        self._next += 1
        if read.start < read.end:
            self._on_range(read)


def _proven(span: OffsetRange) -> RangeCut:
    return RangeCut(span.file, span.start, span.end, span.end, is_start_proven=True, is_end_proven=True)


def _begin(
    tasks: Tasks, task: RangeTask, cuts: Sequence[RangeCut], on_result: OnResult[RangeEffects] | None = None
) -> Callable[[], list[RangeEffects]]:
    return tasks.start(lambda number: task(cuts[number]), len(cuts), on_result)


_READ_AT_ONCE = 2
# A stretch has at most this many waves: the writers begin early and end soon after the readers. There are fewer
# if each is a commit of a table, or is written by tasks of a cluster, one for each index file.
_WAVES_A_STRETCH, _LARGE_WAVES_A_STRETCH = 8, 2


class RebuildPipeline:
    """Reads stretch after stretch, and writes the effects while more is read."""

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
        if tasks.is_on_cluster:  # every core gets a range
            self._bytes_a_stretch = max(self._bytes_a_stretch, self._bytes_a_range * tasks.parallelism)
        self._wanted = request.queue_filter
        needs = LogicSinks.open(config, DurableFiles(root)).needs
        queues, index = request.makes_queues(config), request.makes_index(config)
        self._needs = replace(needs, consume_queue=queues, index=index) if queues or index else None
        if request.makes_rocksdb(config):
            self._needs = replace(rocksdb_needs(config, config.store), index=index, index_tags=needs.index_tags)
        self._scratch = Scratch(DurableFiles(root))
        self._scratch.clear()
        # The end of this run's previous wave, and the last record so far.
        self._before: tuple[int, RecordFingerprint | None] = (-1, None)

    def run(self, start: int, end: int) -> None:
        """Read `[start, end)` and write its effects; records begin or end at both offsets."""
        name = "tableMaxBytesPerPartition" if self._table else "rebuildMaxBytesPerPartition"
        check_range_count(name, self._bytes_a_range, min(end - start, self._config.rebuild.max_bytes_per_wave))
        # A stretch and a wave end where a sink ends that is ahead of others: queues and index take whole waves. A table
        # may end inside a range that has been damaged since, or is one damaged range under this onDamage.
        stops = {aligned(self._log, sink.end_offset) for writer in self._writers for sink in writer.sinks} | {end}
        waves = Waves(start, self._worth_a_wave, stops)
        with waves.written_beside(lambda: self._write_all(waves)):
            self._read_all(start, end, stops, waves)
        for writer in self._writers:
            writer.finish()

    def pass_over(self, end: int, start: int) -> None:
        """Continue at `start`, durably: the segments of `[end, start)` are missing, so none of it was read."""
        _log.warning(
            "rebuild: the segments of [%d, %d) are missing, %d bytes; continuing after them", end, start, start - end
        )
        if self._quarantine is not None and self._quarantine.end_offset < start:
            self._quarantine.write(start, (expired_range(end, start),))
        for sink in (sink for writer in self._writers for sink in writer.sinks):
            if sink.end_offset < start:
                sink.pass_over(start)
        self._progress.on_missing(end, start)

    def _read_all(self, start: int, end: int, stops: Collection[int], waves: Waves) -> None:
        """Read `[start, end)`, and wait until it is written.

        If the end of a stretch is known early, the next is begun at once: cores that run out of ranges of the one read
        ranges of the other.
        """
        reads: deque[StretchRead] = deque()
        begin: int | None = start
        while begin != end or reads:
            while begin is not None and begin < end and len(reads) < _READ_AT_ONCE:
                reads.append(self._read(begin, min(stop for stop in stops if begin < stop <= end), waves.put))
                begin = reads[-1].end
            began = time.monotonic()
            results = reads.popleft().results()
            self._progress.add_seconds("read", time.monotonic() - began)
            begin = results[-1].end if begin is None and not reads else begin
            # This limits the scratch files to those of three stretches.
            if not waves.wait_for(results[0].start):
                break
        waves.wait_for(end)

    def _write_all(self, waves: Waves) -> None:
        for wave in waves:
            self._write(wave)

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


_MB = 1_000_000
# A wave may take a tenth of a second.
_LINE_EVERY_S = 1.0
# At most this many queues with moved entries are named.
_SHOWN = 5


@dataclass(frozen=True)
class RebuildReport:
    """The result of a rebuild.

    Attributes
    ----------
    start, end
        The range of the log, `end` exclusive.
    resumed_at
        Where this run began: at `start`, or where an earlier one was stopped. The fields below count from here.
    messages, size_bytes
        Read in this run.
    keys
        Keys put into the index in this run.
    queues, queue_files, index_files
        How many were put in place.
    anomalies
        Counts above 0 by cause (docs/anomalies.md).
    quarantined
        How many ranges this run left out, by cause; segments that are missing are EXPIRED.
    missing
        Which stretches of the log this run passed over because their segments are missing: begin and end of each.
    entries_moved
        How many entries got a smaller number than their message's queue offset in this run, by queue (`topic-id`).
    seconds
        By phase: `start_up` (before the log is read), `read` and `write` (side by side), `swap`; `all` is wall time.
    messages_per_second, messages_per_second_in_all
        Without and with the start-up.
    """

    start: int
    end: int
    resumed_at: int
    messages: int
    size_bytes: int
    keys: int
    queues: int
    queue_files: int
    index_files: int
    anomalies: dict[str, int]
    quarantined: dict[str, int]
    missing: list[tuple[int, int]]
    entries_moved: dict[str, int]
    seconds: dict[str, float]
    messages_per_second: float
    messages_per_second_in_all: float

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(asdict(self), indent=1)

    def text(self) -> str:
        """The report as a few lines for people."""
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items() if name != "all")
        read = f"{counted(self.messages, 'message')}, {counted(self.keys, 'key')}"
        per_second = f"{counted(round(self.messages_per_second), 'message')}/s"
        queues = f"{counted(self.queues, 'queue')} in {counted(self.queue_files, 'file')}" if self.queues else ""
        index = counted(self.index_files, "index file") if self.index_files else ""
        made = ", ".join(filter(None, (queues, index))) or "no queue or index file"
        span = f"[{self.start}, {self.end})"
        lines = [
            f"rebuilt {span}: {read} in {self.seconds['all']:.1f} s, {per_second} without the start-up",
            f"{made}; {phases}",
        ]
        for what, counts in (("anomalies", self.anomalies), ("quarantined", self.quarantined)):
            if counts:
                lines.append(f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
        for begin, end in self.missing:
            lines.append(f"passed over: [{begin}, {end}), {counted(end - begin, 'byte')} of segments that are missing")
        if self.entries_moved:
            entries = counted(sum(self.entries_moved.values()), "entry has", "entries have")
            first = [f"{shown(queue)} ({count})" for queue, count in self.entries_moved.items()]
            lines.append(
                f"{entries} a smaller number than the message's queue offset, in {counted(len(first), 'queue')}: "
                f"{', '.join(first[:_SHOWN])}{', ...' if len(first) > _SHOWN else ''}"
            )
        return "\n".join(lines)


class RebuildProgress:
    """Counts the waves of one rebuild; the process began at `began` (seconds of ``time.monotonic``)."""

    def __init__(self, began: float | None = None) -> None:
        self._began = time.monotonic() if began is None else began
        self._reading_since = self._began
        self._range = (0, 0, 0)
        self._messages = self._keys = 0
        self.missing: list[tuple[int, int]] = []
        self._moved: dict[str, int] = {}
        self._anomalies = NO_ANOMALIES
        self._quarantined: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()
        self._said_at = self._began
        # Findings since that line.
        self._unsaid: tuple[AnomalyCounts, Counter[str]] = NO_ANOMALIES, Counter()

    def begin(self, start: int, resumed_at: int, end: int) -> None:
        """Note that the log is read from now on: `[resumed_at, end)` of `[start, end)`."""
        self._reading_since = time.monotonic()
        self._range = (start, resumed_at, end)

    def add_seconds(self, phase: str, seconds: float) -> None:
        """Add to the time that a phase took."""
        with self._lock:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def on_wave(self, end: int, messages: int, keys: int, anomalies: AnomalyCounts, quarantined: Counter[str]) -> None:
        """Note that a wave up to `end` is durable; `quarantined` counts the ranges that it left out, by cause.

        Once a second, and of the last wave, a line says how far it is and what was found.
        """
        now = time.monotonic()
        seconds = max(now - self._reading_since, 1e-9)
        self._messages += messages
        self._keys += keys
        self._anomalies += anomalies
        self._quarantined += quarantined
        start, resumed_at, stop = self._range
        rate = (end - resumed_at) / seconds
        unsaid = self._unsaid[0] + anomalies, self._unsaid[1] + quarantined
        if end < stop and now - self._said_at < _LINE_EVERY_S:
            self._unsaid = unsaid
            return
        self._said_at, self._unsaid = now, (NO_ANOMALIES, Counter())
        _log.info(
            "rebuild: %s of %s, %s/s, %.1f MB/s, %.0f s left%s",
            size_text(end - start),
            size_text(stop - start),
            counted(round(self._messages / seconds), "message"),
            rate / _MB,
            (stop - end) / max(rate, 1e-9),
            findings(*unsaid),
        )

    def on_missing(self, begin: int, end: int) -> None:
        """Note that `[begin, end)` of the log is passed over, since its segments are missing."""
        self.missing.append((begin, end))
        self._quarantined[EXPIRED] += 1

    def on_moved(self, counts: Mapping[tuple[bytes, int], int]) -> None:
        """Note how many entries have a smaller number than their message's queue offset, by queue."""
        names = {queue: f"{queue[0].decode('utf-8', 'backslashreplace')}-{queue[1]}" for queue in counts}
        self._moved = {names[queue]: count for queue, count in counts.items()}

    def report(self, counts: OutputCounts) -> RebuildReport:
        """The report of a rebuild whose result is in place."""
        now = time.monotonic()
        start, resumed_at, end = self._range
        seconds = {"start_up": self._reading_since - self._began, **self._seconds, "all": now - self._began}
        return RebuildReport(
            start,
            end,
            resumed_at,
            self._messages,
            end - resumed_at - sum(after - begin for begin, after in self.missing),
            self._keys,
            counts.queues,
            counts.queue_files,
            counts.index_files,
            {name: count for name, count in vars(self._anomalies).items() if count},
            dict(sorted(self._quarantined.items())),
            self.missing,
            self._moved,
            {name: round(value, 3) for name, value in seconds.items()},
            round(self._messages / max(now - self._reading_since, 1e-9), 1),
            round(self._messages / max(now - self._began, 1e-9), 1),
        )
