"""The hand-over of an output between reput and a broker, and whether the log explains the files of an output.

Without `abort` a broker trusts queues and index as they are and continues after them; a 5.x broker even passes over the
first record after its queues. With `abort` it removes the newest index file and dispatches again. So reput creates
`abort` before it changes a file of an output, and removes it once queues and index have every record of a whole log.
This is the broker's own rule (``DefaultMessageStore#shutdown`` keeps it while ``dispatchBehindBytes`` is above 0).

Every command that replaces or removes files of an output first checks whether the log still explains them. An output
was made from records. Each sink's progress record names the last of them. Files of a broker, or of an output without
progress records, name theirs in queue entries and index headers. A log explains an output if it has the newest of these
records, or if they have expired from it and it begins no later than the output ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from reput.sinks.abort_file import LeftBy, abort_left_by, clear_abort, mark_abort
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import has_files
from reput.sinks.files.sink_progress import ProgressFile, RecordFingerprint, SinkProgress
from reput.sinks.files.store_path import ABORT, BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX, index_file
from reput.sinks.formats.consume_queue import PRE_BLANK
from reput.sinks.index.index_reader import index_file_names, open_index_file
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import BATCH_KIND, BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import KIND, ConsumeQueueSink
from reput.sinks.queue.queue_reader import QueueReader
from reput.source.errors import GIVE_YES, CommitLogRewoundError, OutputError, ReputError, SinkError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import scan_windows
from reput.source.record.damage import STOP
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_properties import PROPERTY_INNER_MULTI_DISPATCH
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.logic_sinks import aligned, check_fingerprint, check_not_expired
from reput.streaming.output.recovery_start import broker_recovers_from

_log = logging.getLogger("reput")


class Ending(Protocol):
    """A sink that knows where it ends."""

    name: str

    @property
    def end_offset(self) -> int:
        """The end of the sink."""


@dataclass(frozen=True)
class HandOver:
    """The present or future state of an output's `abort`; `reason` says why it stays, and what to do."""

    is_cleared: bool
    reason: str | None = None

    def text(self, *, dry_run: bool = False) -> str:
        """The hand-over in one line."""
        if self.is_cleared:
            verb = "would be removed" if dry_run else "is removed"
            return f"{ABORT} {verb}: a broker may start here as after a clean stop"
        return f"{ABORT} {'would stay' if dry_run else 'stays'}: {self.reason}"


# --- taking over ---------------------------------------------------------------------------------------------


def check_taken_over(output: Path, sinks: Sequence[str], log: LogReader, *, fail_on_data_loss: bool) -> None:
    """Check the files of `sinks` in the output, before any sink changes them.

    Raises
    ------
    OutputError
        A sink would take over files of a broker that stopped uncleanly, or of a killed reput whose progress records are
        lost. Their last pages may be missing, and their index headers outdated (``DefaultMessageStore#load`` does not
        trust them either).
    UnexplainedError
        The log does not explain the files that a sink would take over.
    CommitLogRewoundError
        The last record that a sink has is no longer where it was.
    DataLossError
        Records after a sink's end have expired unread, and `fail_on_data_loss` is set.
    """
    taken_over = False
    for sink in sinks:
        record = ProgressFile(DurableFiles(output), sink).load()
        if not has_files(output / FOLDERS[sink]):
            continue
        if record is None:
            taken_over = True
            _check_trusted(output, output / FOLDERS[sink])
            continue
        if record.last_record is not None:
            check_fingerprint(log, sink, record.last_record, record.start_offset)
        check_not_expired(log, sink, record.end_offset, fail_on_data_loss=fail_on_data_loss)
    if taken_over:
        check_explained(log, output, [Gap.GONE, Gap.OTHER, Gap.CUT], way_out=RECOVER)


def _check_trusted(output: Path, folder: Path) -> None:
    left_by = abort_left_by(output)
    if left_by is LeftBy.NOBODY:
        return
    stopped = "broker which left" if left_by is LeftBy.BROKER else "reput which wrote"
    raise OutputError(
        f"{output / ABORT} says that the {stopped} {folder} stopped uncleanly: its last writes may be missing or torn",
        advice="'reput recover' with the same --store and --output brings it into agreement with the log",
        file=output / ABORT,
    )


# --- handing over --------------------------------------------------------------------------------------------


@contextmanager
def abort_while_written(
    files: DurableFiles, sinks: Callable[[], Sequence[Ending] | None], log: LogReader
) -> Iterator[None]:
    """Keep `abort` in the output while sinks write there, and after a failure.

    A clean stop removes it if the `sinks` that are returned then are at the end of the log; None means that they failed
    and were not recovered since. A broker's `abort` from before stays.
    """
    if abort_left_by(files.root) is not LeftBy.BROKER:
        mark_abort(files)
    yield
    if abort_left_by(files.root) is LeftBy.BROKER:
        _log.info("%s is a broker's and stays: 'reput recover' looks the log over and removes it", files.root / ABORT)
        return
    ending = sinks()
    if ending is None:
        _log.info("%s stays: the last batch failed; the next start makes it good", files.root / ABORT)
        return
    try:
        behind = why_behind(log, [(sink.name, sink.end_offset) for sink in ending])
    except (ReputError, OSError) as error:  # the stop stays clean even if the store is gone
        behind = str(error)
    if behind is None:
        clear_abort(files)
    else:
        _log.info("%s stays, for a broker that is started here: %s", files.root / ABORT, behind)


@contextmanager
def abort_while_changed(files: DurableFiles) -> Iterator[None]:
    """Keep `abort` in the output during a change that leaves the output as fit for a broker as before."""
    before = abort_left_by(files.root)
    if before is LeftBy.NOBODY:
        mark_abort(files)
    yield
    if before is LeftBy.NOBODY:
        clear_abort(files)


def why_behind(log: LogReader, ends: Sequence[tuple[str, int]]) -> str | None:
    """Return why queues and index, which end at `ends`, are not at the log's end, and what to do; None if they are."""
    name, end = min(ends, key=lambda each: each[1])
    begin = max(log.queue().min_offset, aligned(log, end))
    # A live log always grows; only the end of one that seems to have ended is worth a wait.
    log_end = log.end(begin)
    if log_end <= end:
        log_end = log.settled_end(begin)
    if log_end <= end:
        return None
    return (
        f"{name} ends at {end}, the log at {log_end}; 'reput tail --available-now' with the same --store and --output "
        f"continues to there and removes {ABORT}"
    )


def hand_over(
    files: DurableFiles,
    log: LogReader,
    ends: Sequence[tuple[str, int]],
    doubt: str | None,
    *,
    dry_run: bool = False,
) -> HandOver | None:
    """Remove the output's `abort` if queues and index agree with a whole log; return None without an `abort`.

    `ends` is where each of them ends once it agrees; `doubt` is the earlier result of `doubt_of_log`. A broker's
    `abort` becomes reput's own if queues and index only have yet to reach the end of the log.
    """
    left_by = abort_left_by(files.root)
    if left_by is LeftBy.NOBODY:
        return None
    if doubt is not None:
        return HandOver(is_cleared=False, reason=doubt)
    behind = why_behind(log, ends)
    if not dry_run:
        if behind is None:
            clear_abort(files)
        elif left_by is LeftBy.BROKER:
            mark_abort(files)
    return HandOver(is_cleared=behind is None, reason=behind)


def doubt_of_log(files: DurableFiles, log: LogReader, config: PipelineConfig) -> str | None:
    """Return why the broker that left `abort` must find it at its start; None if it loses no message without it.

    With `abort` the broker of `config` reads from an older segment on, chosen by the store's checkpoint, and cuts the
    log at the first record that fails its checks. If all records pass, the log ends at the same offset either way.

    A run that leaves damage out (``onDamage``) knows that a record may fail, and that the broker would cut the good
    records after it. For such a run, only the records count that the broker reads without `abort`, once its queues have
    the whole log.
    """
    segments = log.queue()
    if not segments.files or abort_left_by(files.root) is not LeftBy.BROKER:
        return None
    end, leaves_out = log.settled_end(segments.min_offset), log.decode_options.on_damage != STOP
    offset = broker_recovers_from(files, segments, config, unclean=not leaves_out, queued_to=end)
    options = replace(log.decode_options, check_crc=True, on_damage=STOP)
    verdict = Verdict.EMPTY
    file = segments.find(offset)
    while file is not None:
        for window in scan_windows(file, file.file_from_offset, file.end, options):
            offset, verdict = window.end, window.verdict
        if verdict is not Verdict.BLANK:
            break
        file = segments.following(file)
    if offset >= end and (leaves_out or verdict in (Verdict.EMPTY, Verdict.BLANK)):
        return None
    why = f"the bytes of the log at {offset} are not a whole record ({verdict.name})"
    if leaves_out:
        return f"{why}; a broker cuts the log there without {ABORT}: 'reput doctor' says what it does with it"
    return f"{why}; a broker that finds {ABORT} cuts the log there and dispatches again"


_PRE_BLANK_SIZE = int(PRE_BLANK["msg_size"])


@dataclass(frozen=True)
class RecordTrace:
    """The facts about a record in one entry; None for what the entry does not have.

    `offset` is the record's physical offset, `size` is in bytes, `store_timestamp` in milliseconds.
    """

    offset: int
    size: int | None = None
    topic: bytes | None = None
    queue_id: int | None = None
    store_timestamp: int | None = None


def queue_traces(root: Path, least: int) -> Iterator[tuple[str, RecordTrace]]:
    """Yield the last entry of each queue below `root`, and the first entry of a record at `least` or later.

    Each comes with the folder of its queue.
    """
    for kind in (KIND, BATCH_KIND):
        for topic, queue_id in kind.queues(root):
            # Take each file as it is, whatever size the settings give it.
            reader = QueueReader(root, kind, kind.unit.itemsize, topic, queue_id)
            for offset, size in _Queue(reader).first_and_last(least):
                yield kind.top, RecordTrace(offset, size, topic, queue_id)


def index_traces(root: Path) -> Iterator[RecordTrace]:
    """Yield the first and the last record of each index file with a key, by its header."""
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
        """Yield physical offset and size of the records that `queue_traces` wants."""
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
        """Return the number, in its file, of the first unit with `is_behind`, which must hold for all later ones."""
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
# A log is another one if it has none of this many of an output's oldest and newest records.
_TRACES_LOOKED_FOR = 32


class Gap(Enum):
    """The ways in which a log fails to explain an output."""

    GONE = "the log has no record at all"
    PASSED = "the log begins after the end of the output"
    OTHER = "the log has none of the output's records"
    CUT = "the log has older records of the output, and not the newest"


@dataclass(frozen=True)
class Unexplained:
    """A gap between log and output; `text` is the beginning of a sentence about it."""

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
    """Return how the log fails to explain the output; None if it explains everything. See `check_explained`."""
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
        text = f"the log in {where} begins at {least}, and the output {output} ends at {known.reach}, before it"
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
    """An output's own records of the log that it was made from."""

    records: dict[str, SinkProgress]
    traces: tuple[RecordTrace, ...]

    @classmethod
    def load(cls, output: Path, least: int) -> _Known:
        """Load progress records, and for sinks without one the traces of records from `least` on in their files."""
        records = {}
        unrecorded = []
        for sink, folder in FOLDERS.items():
            if not has_files(output / folder):
                continue  # the sink's files are lost: there is nothing to explain
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
        """Return the physical offset of a record that the log lacks but should have; None if none was found missing."""
        for sink, record in self.records.items():
            last = record.last_record
            if last is not None and not _has_last(log, sink, last, record.start_offset):
                return last.offset
        for of_queues in (True, False):  # an index has only the times of records, queues have sizes and topics
            traces = [trace for trace in self.traces if (trace.topic is not None) == of_queues]
            newest = max(traces, key=lambda trace: trace.offset, default=None)
            if newest is not None and newest.offset >= least and not _has(log, newest, end):
                return newest.offset
        return None

    def has_any_in(self, log: LogReader, output: Path, least: int, end: int) -> bool:
        """Whether the log has at least one of the records; only the oldest and the newest are looked up."""
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
        return None  # the files show more than an unreadable record


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
