"""Whether the log still explains what an output has; every command that replaces or removes files checks this first.

An output was made from records. Each sink's progress record names the last of them. Files of a broker, or of an output
without progress records, name theirs in queue entries and index headers. A log explains an output if it has the newest
of these records, or if they have expired from it and it begins no later than the output ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import has_files
from reput.sinks.files.sink_progress import ProgressFile, RecordFingerprint, SinkProgress
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX, index_file
from reput.sinks.formats.consume_queue import PRE_BLANK
from reput.sinks.index.index_reader import index_file_names, open_index_file
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import KIND as BATCH_KIND
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import KIND, ConsumeQueueSink
from reput.sinks.queue.queue_reader import QueueReader
from reput.source.errors import GIVE_YES, CommitLogRewoundError, ReputError, SinkError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.record.message_properties import PROPERTY_INNER_MULTI_DISPATCH
from reput.streaming.output.logic_sinks import check_fingerprint

_PRE_BLANK_SIZE = int(PRE_BLANK["msg_size"])


@dataclass(frozen=True)
class RecordTrace:
    """What one entry says about its record; None where it says nothing.

    `offset` is the record's physical offset, `size` is in bytes, `store_timestamp` in milliseconds.
    """

    offset: int
    size: int | None = None
    topic: bytes | None = None
    queue_id: int | None = None
    store_timestamp: int | None = None


def queue_traces(root: Path, least: int) -> Iterator[tuple[str, RecordTrace]]:
    """The last entry of each queue below `root`, and the first entry of a record at `least` or later.

    Each comes with the folder of its queue.
    """
    for kind in (KIND, BATCH_KIND):
        for topic, queue_id in kind.queues(root):
            # The settings say what size files should have; here each file is taken as it is.
            reader = QueueReader(root, kind, kind.unit.itemsize, topic, queue_id)
            for offset, size in _Queue(reader).first_and_last(least):
                yield kind.top, RecordTrace(offset, size, topic, queue_id)


def index_traces(root: Path) -> Iterator[RecordTrace]:
    """The first and the last record of each index file with a key, by its header."""
    for name in index_file_names(root):
        with suppress(OSError, ReputError), open_index_file(root.joinpath(*index_file(name))) as file:
            header = file.header()
            if header.next_entry > 1:
                yield RecordTrace(header.begin_phy_offset, store_timestamp=header.begin_timestamp)
                yield RecordTrace(header.end_phy_offset, store_timestamp=header.end_timestamp)


class _Queue:
    """One queue, read a unit at a time; a file whose units cannot be read has none."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader

    def first_and_last(self, least: int) -> Iterator[tuple[int, int]]:
        """Physical offset and size of the records that `queue_traces` wants."""
        files = self._reader.files
        last = next(filter(None, map(self._last_of, reversed(files))), None)
        if last is None:
            return
        yield last
        for file in files:
            in_file = self._last_of(file)
            if in_file is not None and in_file[0] >= least:
                yield self._first_of(file, least) or in_file
                return

    def _last_of(self, file: int) -> tuple[int, int] | None:
        with suppress(OSError, ReputError):
            return _entry(self._unit(file, self._find(file, lambda _, size: size <= 0) - 1))
        return None

    def _first_of(self, file: int, least: int) -> tuple[int, int] | None:
        with suppress(OSError, ReputError):
            return _entry(self._unit(file, self._find(file, lambda offset, size: size <= 0 or offset >= least)))
        return None

    def _find(self, file: int, is_behind: Callable[[int, int], bool]) -> int:
        """The number, in its file, of the first unit for which `is_behind` holds; it must hold for all that follow."""
        low, high = 0, self._reader.sizes[file] // self._reader.unit_size
        while low < high:
            middle = (low + high) // 2
            offset, size = self._unit(file, middle)
            if size != _PRE_BLANK_SIZE and is_behind(offset, size):
                high = middle
            else:
                low = middle + 1
        return low

    def _unit(self, file: int, number: int) -> tuple[int, int]:
        if number < 0:
            return 0, 0
        for unit in self._reader.units(file, number * self._reader.unit_size, 1):
            return int(unit["physical_offset"]), int(unit["msg_size"])
        return 0, 0  # the file was cut meanwhile


def _entry(unit: tuple[int, int]) -> tuple[int, int] | None:
    offset, size = unit
    return unit if offset >= 0 and 0 < size != _PRE_BLANK_SIZE else None


FOLDERS: Final = {
    ConsumeQueueSink.name: CONSUME_QUEUE,
    BatchConsumeQueueSink.name: BATCH_CONSUME_QUEUE,
    IndexSink.name: INDEX,
}
RECOVER: Final = "'reput recover' with the same --store and --output brings it back to what this log says"
# A log is another one if it has none of so many of an output's oldest and newest records.
_TRACES_LOOKED_FOR = 32


class Gap(Enum):
    """How a log fails to explain an output."""

    GONE = "the log has no record at all"
    PASSED = "the log begins behind the end of the output"
    OTHER = "the log has none of the output's records"
    CUT = "the log has older records of the output, and not the newest"


@dataclass(frozen=True)
class Unexplained:
    """What the log does not explain; `text` is the beginning of a sentence about it."""

    gap: Gap
    text: str


def check_explained(
    log: LogReader,
    output: Path,
    gaps: Collection[Gap] = tuple(Gap),
    *,
    way_out: str = GIVE_YES,
    made: Path | None = None,
) -> None:
    """Raise UnexplainedError if the log fails to explain the output in one of the ways `gaps`.

    `way_out` says what the user can do. `made` is where a stopped rebuild left its files.
    """
    found = find_unexplained(log, output, made=made)
    if found is not None and found.gap in gaps:
        raise UnexplainedError(found.text, advice=f"nothing was changed: {way_out}", file=output)


def find_unexplained(log: LogReader, output: Path, *, made: Path | None = None) -> Unexplained | None:
    """What the log does not explain of the output; None if it explains all. See `check_explained`."""
    segments = log.queue()
    least = segments.min_offset
    if not any(has_files(root / folder) for root in (output, made) if root for folder in FOLDERS.values()):
        return None
    where = ", ".join(str(path) for path in segments.paths)
    end = log.settled_end(least) if segments.files else least
    if end <= least:
        text = (
            f"the log in {where} has no record, and {output} has files that were made from one (is the volume mounted?)"
        )
        return Unexplained(Gap.GONE, text)
    known = _Known.load(output, least)
    if known.reach < 0:
        return None
    if known.reach < least:
        text = f"the log in {where} begins at {least}, and what stands in {output} ends at {known.reach}, before it"
        return Unexplained(Gap.PASSED, text)
    missing = known.missing_in(log, least, end)
    if missing is None:
        return None
    if known.has_any_in(log, output, least, end):
        text = (
            f"{output} was made from a log that had a record at {missing}, and the log in {where}, [{least}, {end}), "
            "has another one there, or none: the log was cut, or is a part of what it was"
        )
        return Unexplained(Gap.CUT, text)
    text = (
        f"the log in {where}, [{least}, {end}), has none of the records that {output} was made from: it is another log"
    )
    return Unexplained(Gap.OTHER, text)


@dataclass(frozen=True)
class _Known:
    """What an output itself records about the log that it was made from."""

    records: dict[str, SinkProgress]
    traces: tuple[RecordTrace, ...]

    @classmethod
    def load(cls, output: Path, least: int) -> _Known:
        """Load progress records, and for sinks without one the traces of records from `least` on in their files."""
        records = {}
        unrecorded = []
        for sink, folder in FOLDERS.items():
            if not has_files(output / folder):
                continue  # the files of such a record are lost: there is nothing to explain
            record = _record(output, sink)
            if record is None:
                unrecorded.append(folder)
            else:
                records[sink] = record
        return cls(records, tuple(_traces(output, unrecorded, least)))

    @property
    def reach(self) -> int:
        """The end of the newest record that the output was made from; -1 without one."""
        ends = [record.end_offset for record in self.records.values()]
        return max([*ends, *(trace.offset + (trace.size or 0) for trace in self.traces)], default=-1)

    def missing_in(self, log: LogReader, least: int, end: int) -> int | None:
        """The physical offset of a record that the log lacks but should have; None if none was found missing."""
        for sink, record in self.records.items():
            last = record.last_record
            if last is not None and not _has_last(log, sink, last, record.start_offset):
                return last.offset
        for of_queues in (True, False):  # an index has the times of records, queues have sizes and topics
            traces = [trace for trace in self.traces if (trace.topic is not None) == of_queues]
            newest = max(traces, key=lambda trace: trace.offset, default=None)
            if newest is not None and newest.offset >= least and not _has(log, newest, end):
                return newest.offset
        return None

    def has_any_in(self, log: LogReader, output: Path, least: int, end: int) -> bool:
        """Whether the log has at least one of the records; only the oldest and the newest are looked for."""
        for sink, record in self.records.items():
            last = record.last_record
            if last is not None and last.offset >= least and _has_last(log, sink, last, record.start_offset):
                return True
        traces = sorted(_traces(output, FOLDERS.values(), least), key=lambda trace: trace.offset)
        inside = [trace for trace in traces if least <= trace.offset < end]
        looked_for = {*inside[:_TRACES_LOOKED_FOR], *inside[-_TRACES_LOOKED_FOR:]}
        return any(_has(log, trace, end) for trace in looked_for)


def _record(output: Path, sink: str) -> SinkProgress | None:
    try:
        return ProgressFile(DurableFiles(output), sink).load()
    except SinkError:
        return None  # an unreadable record tells nothing, but the files do


def _traces(output: Path, folders: Iterable[str], least: int) -> Iterator[RecordTrace]:
    wanted = set(folders)
    if wanted & {CONSUME_QUEUE, BATCH_CONSUME_QUEUE}:
        yield from (trace for folder, trace in queue_traces(output, least) if folder in wanted)
    if INDEX in wanted:
        yield from index_traces(output)


def _has_last(log: LogReader, sink: str, known: RecordFingerprint, start_offset: int) -> bool:
    try:
        check_fingerprint(log, sink, known, start_offset)
    except CommitLogRewoundError:
        return False
    return True


def _has(log: LogReader, trace: RecordTrace, end: int) -> bool:
    """Whether the log has the record of `trace`, before `end`."""
    file = log.queue().find(trace.offset)
    if file is None:
        return False
    size = trace.size or int.from_bytes(log.look_at(trace.offset, 4)[2], "big")
    if not 0 < size <= min(end, file.end) - trace.offset:
        return False
    message = log.message_at(trace.offset, size)
    if message is None:
        return False
    name = None if trace.topic is None else trace.topic.decode("utf-8", "replace")
    own = (message.topic, message.queue_id) == (name, trace.queue_id)
    is_its = name is None or own or name in message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, "").split(",")
    is_then = trace.store_timestamp in (None, message.store_timestamp)
    return is_its and is_then and message.physical_offset == trace.offset
