"""The parts of a rebuild on a cluster: the work of its tasks, which cores share, and that of its driver alone.

The tasks' parts are those of an existing log, on one core. The driver's are measured with tasks that do nothing: their
results are like those of the standard log, ten billion messages in ten thousand ranges, read by `CORES` cores. The
reads and writes of tasks are left out; everything else is the rebuild's own code: planning, joining blocks, making
index files and their headers, progress records.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.shapes import MadeLog
from reput.sinks.dispatch.entries import RUN
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexPut, IndexPutDone
from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import DecodeOptions, RangeCut
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config
from reput.streaming.effects import effects as writers
from reput.streaming.effects.effects import IndexPutTasks, IndexWriter, QueueWriter
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.rebuild import pipeline
from reput.streaming.rebuild.pipeline import RebuildProgress
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.tasks.tasks import OnResult, SerialTasks

MESSAGES, RANGES = 10_000_000_000, 10_000
CORES = 800
RECORD_BYTES = 517
QUEUES, TOPICS, KEYS = 64, 8, 2
PIECES_A_RANGE = 8
STORED = 1_700_000_000_000


class UnreadRanges(SerialTasks):
    """Makes the results of ranges; `seconds` of processor time are what that took, which no driver would need."""

    is_on_cluster = True

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def parallelism(self) -> int:
        return CORES

    def start(self, work: Callable[[int], Any], count: int, on_result: OnResult[Any] | None = None) -> Any:
        began = time.thread_time()
        results = [work(number) for number in range(count)]
        self.seconds += time.thread_time() - began
        if on_result is not None:
            for number, result in enumerate(results):
                on_result(number, result)
        return lambda: results


class UnreadRange:
    """Stands for ``RangeTask``: the result of a range of the standard log, with scratch files that are holes."""

    def __init__(self, decode: DecodeOptions, _needs: object, _wanted: object, scratch: Path, _writer: object) -> None:
        self.decode = decode
        self._scratch = scratch
        self._topics = np.frombuffer(b"".join(b"Topic%02d" % (queue % TOPICS) for queue in range(QUEUES)), np.uint8)

    def __call__(self, cut: RangeCut) -> RangeEffects:
        size = (cut.end - cut.start) // PIECES_A_RANGE
        ends = [cut.start + size * (number + 1) for number in range(PIECES_A_RANGE - 1)] + [cut.end]
        starts = [cut.start, *ends[:-1]]
        pieces = [self._piece(start, end) for start, end in zip(starts, ends, strict=True)]
        return RangeEffects(cut.start, cut.end, is_whole=True, pieces=pieces)

    def _piece(self, start: int, end: int) -> Any:
        first, after = start // RECORD_BYTES, end // RECORD_BYTES
        begins, ends = (-(-(number - np.arange(QUEUES)) // QUEUES) for number in (first, after))
        counts, runs = (ends - begins).astype(np.int64), np.zeros(QUEUES, RUN)
        runs["first_queue_offset"], runs["runs_on"] = begins, True
        runs["first_physical_offset"] = (begins * QUEUES + np.arange(QUEUES)) * RECORD_BYTES
        runs["first_end"] = runs["first_physical_offset"] + RECORD_BYTES
        runs["last_end"] = ((ends - 1) * QUEUES + np.arange(QUEUES) + 1) * RECORD_BYTES
        nothing, keys = np.empty(0, np.int64), KEYS * (after - first)
        known = {
            "topics": self._topics,
            "topic_sizes": np.full(QUEUES, 7),
            "queue_ids": np.arange(QUEUES, dtype=np.int32) // TOPICS,
            "counts": counts,
            "runs": runs,
            **dict.fromkeys(("queue_offsets", "store_timestamps", "bit_map_sizes"), nothing),
            **dict.fromkeys(("bit_maps", "batch_topics"), np.empty(0, np.uint8)),
            **dict.fromkeys(("batch_topic_sizes", "batch_counts"), nothing),
            "batch_queue_ids": np.empty(0, np.int32),
            "batch_entries": np.empty((0, 46), np.uint8),
        }
        holes = {
            "entries": ("|u1", (int(counts.sum()), 20)),
            "key_hashes": ("<i4", (keys,)),
            "key_offsets": ("<i8", (keys,)),
            "key_timestamps": ("<i8", (keys,)),
        }
        last = end - RECORD_BYTES
        return {
            "start": start,
            "end": end,
            "messages": after - first,
            "last_record": [last, RECORD_BYTES, STORED + last // 10**6, 1],
            "store_times": [STORED + start // 10**6, 0, STORED + last // 10**6],
            "queued_offset": last,
            "latest_store_time": STORED + last // 10**6,
            "arrivals": [],
            "arrays": _scratch_file(self._scratch / f"{start:020d}.scratch", known, holes),
        }


def _scratch_file(path: Path, known: dict[str, Any], holes: dict[str, tuple[str, tuple[int, ...]]]) -> Path:
    """A file as ``scratch.write_arrays`` writes it, of which some arrays are holes."""
    described: list[Any] = [[name, values.dtype.descr, values.shape] for name, values in known.items()]
    described += [[name, [["", kind]], shape] for name, (kind, shape) in holes.items()]
    header = json.dumps(described).encode()
    data = bytearray(len(header).to_bytes(8, "little") + header)
    for values in known.values():
        data += bytes(-len(data) % 64) + values.tobytes()
    size = len(data)
    for kind, shape in holes.values():
        size += -size % 64 + np.dtype(kind).itemsize * int(np.prod(shape))
    with path.open("wb") as file:
        file.write(data)
        os.truncate(file.fileno(), size)
    return path


class UnwrittenIndex(IndexPutTasks):
    """Stands for the tasks that put keys into index files."""

    def __call__(self, entries: PieceEntries, puts: list[IndexPut]) -> list[IndexPutDone]:
        return [IndexPutDone(put.header.followed_by(put.end - put.begin, (0, 0), (0, 0), 1), None) for put in puts]


@dataclass(frozen=True)
class Parts:
    """Microseconds of processor time a message: of tasks that read, write queues, write the index; of the driver."""

    reading: float
    queues: float
    index: float
    driver: float

    def on(self, cores: int) -> float:
        """Return microseconds a message on this many cores and a driver, without any other limit."""
        return (self.reading + self.queues + self.index) / cores + self.driver


def parts_of(log: MadeLog, work: Path) -> Parts:
    """The parts of a rebuild of the log, on one core."""
    with TemporaryDirectory(dir=work) as directory, mock.patch.object(writers, "_ENTRIES_A_JOB", 0):
        config, tasks = load_config(log.store), TimedTasks()
        with Rebuild(config, RebuildRequest(Path(directory)), RebuildProgress()) as job:
            report = job.run(tasks)
    of_task = {kind: tasks.seconds[kind] * 1e6 / report.messages for kind in tasks.seconds}
    return Parts(of_task["_begin"], of_task["QueueAppendTasks"], of_task["IndexPutTasks"], driver_micros(work))


class TimedTasks(SerialTasks):
    """Runs tasks here as if on a cluster: `seconds` is the processor time of each kind, by what began it."""

    is_on_cluster = True

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def start(self, work: Callable[[int], Any], count: int, on_result: OnResult[Any] | None = None) -> Any:
        kind = work.__qualname__.partition(".")[0]

        def results() -> list[Any]:
            found = []
            for number in range(count):
                began = time.thread_time()  # other threads write meanwhile
                found.append(work(number))
                self.seconds[kind] += time.thread_time() - began
            return found

        return results


def driver_micros(work: Path, messages: int = MESSAGES, ranges: int = RANGES) -> float:
    """Microseconds of the driver's processor time a message."""
    with TemporaryDirectory(dir=work) as directory, mock.patch.object(pipeline, "RangeTask", UnreadRange):
        root, log_directory = Path(directory) / "out", Path(directory) / "store" / "commitlog"
        range_bytes = messages // ranges * RECORD_BYTES
        segment_bytes = 2 * range_bytes
        log_directory.mkdir(parents=True)
        for number in range(ranges // 2):
            with (log_directory / f"{number * segment_bytes:020d}").open("wb") as file:
                os.truncate(file.fileno(), segment_bytes)
        sizes = (f"mappedFileSizeCommitLog={segment_bytes}", f"rebuildMaxBytesPerPartition={range_bytes}")
        config = load_config(log_directory.parent, overrides=sizes)
        log, tasks = LogReader(SourceOptions.parse(config.source_options())), UnreadRanges()
        with closing(DurableFiles(root)) as files:
            logic = LogicSinks.open(config, files)
            for sink in logic.sinks:
                sink.recover(0)
            assert logic.index is not None
            queues = [sink for sink in logic.sinks if sink is not logic.index]
            writers = [
                QueueWriter(queues, lambda entries, appends: None),
                IndexWriter(logic.index, UnwrittenIndex(tasks, root)),
            ]
            progress = RebuildProgress()
            run = pipeline.RebuildPipeline(tasks, config, RebuildRequest(root), log, root, writers, None, progress)
            before = time.process_time()
            run.run(0, ranges // 2 * segment_bytes)
            seconds = time.process_time() - before - tasks.seconds
        assert all(sink.end_offset == ranges // 2 * segment_bytes for sink in logic.sinks)
    return seconds * 1e6 / messages
