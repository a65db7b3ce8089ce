"""The command `reput dump`: the log of a store, or one file of a store, a line for each record or entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from reput.source.errors import OptionError
from reput.source.printable import counted
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.settings import Settings
from reput.streaming.config.stored_sizes import index_options_of
from reput.streaming.dump.entry_files import (
    CheckpointDump,
    DumpedFile,
    EntryRange,
    ExtFileDump,
    FileKind,
    IndexFileDump,
    MessageRocksDBDump,
    QueueFileDump,
    RocksDBDump,
    Rows,
    recognise,
    segment_of,
)
from reput.streaming.dump.log_dump import (
    JsonPrinter,
    LogDump,
    LogPart,
    Printer,
    RecordSelection,
    Shown,
    TablePrinter,
    Totals,
)

FileDump = QueueFileDump | ExtFileDump | IndexFileDump | CheckpointDump | RocksDBDump | MessageRocksDBDump


@dataclass(frozen=True)
class DumpRequest:
    """The records to show: those in `[begin, end)` by physical offset that `selection` takes, at most `limit`.

    For a queue or the index, these are the records that entries lead to.
    """

    begin: int | None = None
    end: int | None = None
    selection: RecordSelection = field(default_factory=RecordSelection)
    shown: Shown = field(default_factory=Shown)
    limit: int | None = None
    as_json: bool = False


@dataclass(frozen=True)
class Streams:
    """The outputs of a dump: `out` gets the dump, `note` gets remarks, a line at a time."""

    out: TextIO
    note: Callable[[str], object]

    def printer(self, names: list[str], *, as_json: bool) -> Printer:
        """Return a printer of rows with columns of these names."""
        return JsonPrinter(names, self.out) if as_json else TablePrinter(names, self.out, self.note)


def dump_store(config: PipelineConfig, request: DumpRequest, streams: Streams) -> int:
    """Dump the log of a store up to its present end; return how many records were shown.

    Raises
    ------
    OptionError
        An option has a value that it does not allow.
    ReputError
        The log cannot be read.
    """
    return _dump_log(LogPart.of_store(config, streams.note, request.begin, request.end), request, streams)


def dump_file(path: Path, kind: FileKind | None, settings: Settings, request: DumpRequest, streams: Streams) -> None:
    """Dump one file of a store, which may be anywhere; its header comes first.

    Raises
    ------
    OptionError
        There is no such file, its kind cannot be dumped, or an option does not go with its kind.
    SinkError, StoreError
        It is not what its kind or `settings` say, or cannot be read.
    """
    file = recognise(path, kind)
    if file.kind is FileKind.COMMIT_LOG:
        segment = segment_of(file)
        names = _names(request)
        printer = streams.printer(names, as_json=request.as_json)
        printer.header(
            {
                "file": segment.path,
                "kind": file.kind.value,
                "file_from_offset": segment.file_from_offset,
                "size": segment.size,
                "is_dledger": bool(segment.frame),
            }
        )
        _dump_log(LogPart.of_segment(segment, settings.source), request, streams, printer)
        return
    _check_options(file.kind, request)
    _dump_entries(_file_dump(file, settings, request, streams.note), request, streams)


def _names(request: DumpRequest) -> list[str]:
    return request.shown.json_names if request.as_json else request.shown.table_names


def _dump_log(part: LogPart, request: DumpRequest, streams: Streams, printer: Printer | None = None) -> int:
    chosen = request.selection
    part = part.between(request.begin, request.end, streams.note)
    if chosen.since is not None:
        part = part.since(chosen.since)
    if chosen.until is not None:
        part = part.until(chosen.until)
    names = _names(request)
    printer = printer or streams.printer(names, as_json=request.as_json)
    dump = LogDump(part, chosen, request.shown, printer, names, request.limit)
    dump.run()
    return dump.totals.topics.total() + dump.totals.other_topics


def _check_options(kind: FileKind, request: DumpRequest) -> None:
    """Raise OptionError for an option that applies only to records; the index has a topic and a key, as a hash."""
    chosen = request.selection
    if kind is FileKind.INDEX:
        if (chosen.topic is None) != (chosen.key is None):
            raise OptionError("--topic and --key of an index file go together: it has the hash of both")
        chosen = replace(chosen, topic=None, key=None)
    if kind is FileKind.ROCKSDB:
        chosen = replace(chosen, topic=None, queue_id=None)
    if kind is FileKind.MESSAGE_ROCKSDB:
        chosen = replace(chosen, topic=None, key=None)
    if chosen.is_of_records or request.shown != Shown():
        raise OptionError(
            f"a file of kind {kind.value} has no records: --topic, --queue-id, --key, --since, --until, --properties "
            "and --body go with a log, --topic with --key also with an index file"
        )
    has_offsets = kind not in (FileKind.CONSUME_QUEUE_EXT, FileKind.CHECKPOINT)
    if not has_offsets and (request.begin is not None or request.end is not None):
        raise OptionError(f"--from and --to are physical offsets, and a file of kind {kind.value} has none")


def _file_dump(file: DumpedFile, settings: Settings, request: DumpRequest, note: Callable[[str], object]) -> FileDump:
    if file.kind is FileKind.CHECKPOINT:
        return CheckpointDump(file)
    if file.kind is FileKind.CONSUME_QUEUE_EXT:
        return ExtFileDump(file)
    chosen = EntryRange.of_key(request.begin, request.end, request.selection.topic, request.selection.key)
    if file.kind is FileKind.INDEX:
        return IndexFileDump(file, index_options_of(settings.index, file.path, note), chosen)
    if file.kind is FileKind.ROCKSDB:
        return RocksDBDump(file, chosen, request.selection.topic, request.selection.queue_id)
    if file.kind is FileKind.MESSAGE_ROCKSDB:
        return MessageRocksDBDump(file, chosen, request.selection.topic, request.selection.key)
    return QueueFileDump(file, chosen)


def _dump_entries(dump: FileDump, request: DumpRequest, streams: Streams) -> None:
    printer = streams.printer(list(dump.names), as_json=request.as_json)
    printer.header(dump.header())
    totals, left = Totals(), request.limit
    for part in dump.parts():
        if left == 0:
            break
        if isinstance(part, Rows):
            count = len(part.columns[0]) if left is None else min(left, len(part.columns[0]))
            if not count:
                continue
            printer.rows([column[:count] for column in part.columns])
            totals.add(part.verdict, count, part.size * count // len(part.columns[0]))
            left = None if left is None else left - count
            continue
        fields = {"position": part.position, "length": part.length, "verdict": part.verdict}
        if part.count is not None:
            fields["count"] = part.count
        first = [{**fields, **part.more}.get(name) for name in dump.names[: dump.names.index("verdict") + 1]]
        count_text = "" if part.count is None else f"{counted(part.count, 'time')}, "
        printer.other({**part.more, **fields}, first, f"{count_text}{part.length} bytes")
        totals.add(part.verdict, 1 if part.count is None else part.count, part.length)
    printer.totals(totals)
