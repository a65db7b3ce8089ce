"""Run the sinks of the `logic` query over a log without Spark, at any cut points, and read back what they leave."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from unittest import mock

import numpy as np
from support.model import Record, Settings, consume_queue_files, index_file_contents

from reput.sinks.anomalies import NO_ANOMALIES
from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.entries import find_runs
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.piece import Piece, PieceEntries, PieceRow, QueueFilter, make_pieces
from reput.sinks.files import durable_file, file_system
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import RecordFingerprint
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.sink import Sink
from reput.sinks.store_checkpoint import load_store_checkpoint, store_checkpoint
from reput.source.arrays import Bytes, Int64s
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import DecodeOptions, read_windows, split
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.effects.write_step import WriteStep
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.tail.upkeep import CleanConsumeQueueService

#: Where files are kept in memory: thousands of small ones wait for nothing there. None: the usual place.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
#: Files that roll often.
SMALL = Settings(mapped_file_size_consume_queue=60, max_hash_slot_num=7, max_index_num=10)
#: 2023-11-14 22:13:20 UTC, for ever: what a run names its index files after.
STUCK_CLOCK_SECONDS = 1_700_000_000.0


def stuck_clock() -> float:
    """Tell the same time at every call."""
    return STUCK_CLOCK_SECONDS


class LogBatches:
    """Makes the batch of any `[start, end)` of a commitlog, as the tasks and the driver of a micro-batch do."""

    def __init__(
        self,
        commitlog: Path | Sequence[Path],
        range_bytes: int = 700,
        window_bytes: int = 300,
        needs: LogicNeeds | None = None,
        *,
        dledger: bool = False,
        scratch: Path | None = None,
    ) -> None:
        """Ranges and windows are small, so that a batch is put together from many; pieces are files in `scratch`."""
        self._needs = needs or LogicNeeds()
        paths = [commitlog] if isinstance(commitlog, Path) else commitlog
        self._queue = MappedFileQueue.load(paths, dledger=dledger)
        self._range_bytes = range_bytes
        self._window_bytes = window_bytes
        self._scratch = scratch

    def __call__(self, start: int, end: int) -> LogicBatch:
        """The batch; both must be places where a record or the blank begins, or where the records end."""
        given = self._needs, self._window_bytes, None, self._scratch
        spans = split(self._queue, start, end, self._range_bytes)
        return LogicBatch.merge([row for span in spans for row in pieces_of(span, *given)])


def pieces_of(
    span: OffsetRange,
    needs: LogicNeeds,
    window_bytes: int,
    decode: DecodeOptions | None = None,
    scratch: Path | None = None,
) -> Iterator[PieceRow]:
    """Make the pieces of a range for queues and index, from windows of this many bytes; in memory without `scratch`."""
    decode = decode or DecodeOptions()
    windows = read_windows(span.file, span.start, span.end, decode, window_bytes)
    return make_pieces(windows, span.file, needs, decode.delays_ms, QueueFilter(), scratch)


def record_bounds(records: Iterable[Record], frame: int = 0) -> list[int]:
    """Where a batch may begin or end: at each record's frame, and behind the record, where that is a blank."""
    return sorted({physical_offset for at, _, size in records for physical_offset in (at - frame, at + size)})


def dispatch_store(config: PipelineConfig, output: Path) -> None:
    """Do without Spark what `reput tail --available-now` does for a store's queues and index, in one batch."""
    log = LogReader(SourceOptions.parse(config.source_options()))
    files = DurableFiles(output)
    logic = LogicSinks.open(config, files)
    start = log.initial_offset()
    for sink in logic.sinks:
        sink.recover(start)
    take_step(WriteStep(logic, files, log.decode_options), log, start, log.settled_end(start))
    files.close()


def take_step(step: WriteStep, log: LogReader, start: int, end: int) -> None:
    """Do without Spark what a micro-batch of `[start, end)` does."""
    step.write(RangeEffects.join([step.task.read(span) for span in log.split(start, end)]))


def batch_of(topic: bytes, queue_id: int, placed: Sequence[tuple[int, int]], msg_size: int = 100) -> LogicBatch:
    """A batch of one queue without a log: records of `msg_size` bytes at (physical offset, queue offset)."""
    entries = np.array([(at, msg_size, 0) for at, _ in placed], ENTRY).view(np.uint8).reshape(-1, ENTRY.itemsize)
    queue_offsets = np.array([offset for _, offset in placed], np.int64)
    with_entries = entries_of({(topic, queue_id): (entries, queue_offsets)})
    return LogicBatch(0, max(at for at, _ in placed) + msg_size, len(placed), None, with_entries)


def entries_of(queues: Mapping[tuple[bytes, int], tuple[Bytes, Int64s]]) -> PieceEntries:
    """Entries (uint8[n, 20]) and their queue offsets by queue, as one piece without a key has them."""
    piece = Piece(LogicNeeds(), (), 0).arrays(QueueFilter())
    counts = np.array([len(entries) for entries, _ in queues.values()], np.int64)
    piece["topics"] = np.frombuffer(b"".join(topic for topic, _ in queues), np.uint8)
    piece["topic_sizes"] = np.array([len(topic) for topic, _ in queues], np.int64)
    piece["queue_ids"] = np.array([queue_id for _, queue_id in queues], np.int32)
    piece["counts"] = counts
    piece["entries"] = np.concatenate([entries for entries, _ in queues.values()])
    piece["queue_offsets"] = np.concatenate([queue_offsets for _, queue_offsets in queues.values()])
    piece["runs"] = find_runs(piece["entries"], piece["queue_offsets"], counts)
    return PieceEntries([piece])


class SinkRun:
    """The sinks of one output, from recovery to close, and the store checkpoint, as of 5.5.0, after each batch."""

    def __init__(
        self,
        root: Path,
        settings: Settings,
        start: int = 0,
        clock: Callable[[], float] = stuck_clock,
        ext_file_size: int | None = None,
        batch_file_size: int | None = None,
    ) -> None:
        """Without `batch_file_size` there is no BatchConsumeQueue."""
        self.files = DurableFiles(root)
        self.queues = ConsumeQueueSink(self.files, settings.mapped_file_size_consume_queue, ext_file_size)
        self.index = IndexSink(self.files, settings.max_hash_slot_num, settings.max_index_num, clock)
        batch_queues = [] if batch_file_size is None else [BatchConsumeQueueSink(self.files, batch_file_size)]
        self.sinks: tuple[Sink, ...] = (self.queues, *batch_queues, self.index)
        #: By sink: everything before this place was promised to last.
        self.returned: dict[str, int] = {}
        #: The anomalies since the run began.
        self.anomalies = NO_ANOMALIES
        self._before: tuple[int, RecordFingerprint | None] = (-1, None)
        self._start = start

    def __enter__(self) -> SinkRun:
        try:
            self.recover()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def end(self) -> int:
        """All sinks have every record before this place."""
        return min(sink.end_offset for sink in self.sinks)

    def recover(self) -> None:
        """Bring all sinks to what their progress records say."""
        for sink in self.sinks:
            self.returned[sink.name] = sink.recover(self._start).end_offset

    def write(self, batch: LogicBatch, *, more_follow: bool = False) -> None:
        """Do with a batch what the `logic` query does; with `more_follow`, it is a wave and not the last one."""
        end, before = self._before
        before = before if end == batch.start else None
        self._before = batch.end, batch.last_record or before
        self.anomalies += batch.anomalies(before)
        for sink in self.sinks:
            named = {"slots_later": more_follow} if sink is self.index else {}
            self.anomalies += sink.write(batch, **named)
            self.returned[sink.name] = max(batch.end, self.returned.get(sink.name, 0))
        if batch.last_record is not None:
            times = batch.last_record.store_timestamp, self.queues.logics_msg_timestamp, self.index.index_msg_timestamp
            known = load_store_checkpoint(self.files)
            store_checkpoint(self.files, known.advanced(*times, self.queues.logics_physical_offset))

    def close(self) -> None:
        """Close the files."""
        self.files.close()


def service_of(
    run: SinkRun, commitlog: Path, interval_ms: int = 10_000, clock: Callable[[], float] = time.monotonic
) -> CleanConsumeQueueService:
    """Return the service of `reput tail` that removes expired files of the run's sinks."""
    log = LogReader(SourceOptions.parse({"path": str(commitlog), "tailGuardMs": "0"}))
    return CleanConsumeQueueService(run.sinks, log, interval_ms, clock)


def run_sinks(
    root: Path, batches: LogBatches, cuts: Iterable[int], settings: Settings, clock: Callable[[], float] = stuck_clock
) -> None:
    """Dispatch the log in one run, a batch between each two cuts."""
    cuts = list(cuts)
    with SinkRun(root, settings, cuts[0], clock) as run:
        for start, end in itertools.pairwise(cuts):
            run.write(batches(start, end))


def files_below(root: Path) -> dict[str, bytes]:
    """Every file by its path below `root`, in the order of names."""
    found, top = {}, len(str(root)) + 1
    for directory, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = f"{directory}/{name}"
            with open(path, "rb") as file:  # noqa: PTH123  thousands of small files: a Path of each takes longer
                found[path[top:]] = file.read()
    return found


def queue_files(root: Path) -> dict[str, bytes]:
    """The ConsumeQueue files by their path below `root`."""
    return {path: data for path, data in files_below(root).items() if path.startswith("consumequeue/")}


def index_contents(root: Path) -> list[bytes]:
    """The index files' contents, oldest first: their names are a clock's."""
    return [data for path, data in files_below(root).items() if path.startswith("index/")]


def expected_queue_files(records: Iterable[Record], settings: Settings) -> dict[str, bytes]:
    """Return the right `queue_files`, by the model."""
    return {
        f"consumequeue/{topic}/{queue_id}/{offset:020d}": content
        for (topic, queue_id), files in consume_queue_files(records, settings).items()
        for offset, content in files.items()
    }


def check_output(root: Path, records: Sequence[Record], settings: Settings) -> None:
    """The output holds what the model says, the progress records and the checkpoint, and nothing else."""
    queues = expected_queue_files(records, settings)
    assert queue_files(root) == queues
    assert index_contents(root) == index_file_contents(records, settings)
    own = ["reput/progress/consumequeue.json", "reput/progress/index.json"]
    others = {path for path in files_below(root) if not path.startswith(("consumequeue/", "index/"))}
    assert others == {*own, *(["checkpoint"] if records else [])}


class OneThread:
    """Replaces a thread pool: does the work at once, in order."""

    def __init__(self, _: int) -> None:
        self.map = map

    def __enter__(self) -> OneThread:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _rename(source: str | Path, target: str | Path) -> None:
    Path(target).unlink(missing_ok=True)  # replacing a file makes some file systems wait for the new one's data
    Path(source).rename(target)


@contextmanager
def no_fsync() -> Iterator[None]:
    """Leave out the waiting for the disk, for the tests that run thousands of batches and pull no plug."""
    with (
        mock.patch.object(durable_file.os, "fsync"),
        mock.patch.object(file_system, "_sync"),
        mock.patch.object(durable_file.os, "replace", _rename),
        mock.patch.object(durable_file, "ThreadPoolExecutor", OneThread),
    ):
        yield
