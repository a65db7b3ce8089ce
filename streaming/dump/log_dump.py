"""The records of a part of a log, or of one segment, in log order; and the printers of every dump.

Records are found as by every other command. A dump is a table for people, or a line of JSON for each record, with
totals at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.source.errors import CorruptRecordError, OptionError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import (
    DecodeOptions,
    align_down,
    find_timestamp,
    first_store_timestamp,
    read_record,
    read_windows,
    split,
)
from reput.source.log.segment_scan import SOUND_VERDICTS, Window
from reput.source.options import LONG_MAX, LogOptions
from reput.source.printable import printable, printable_json
from reput.source.record.damage import BROKER, QUARANTINE, STOP
from reput.source.record.message_body import decompress_body
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import MAGIC_AT, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2, flag_names
from reput.source.rows.message_rows import message_batch
from reput.source.rows.message_schema import MESSAGE_SCHEMA
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.process.terminal import terminal_width
from reput.streaming.process.text_table import TextTable

# Small enough that rows appear at once and take little memory, large beside the cost of a call.
_WINDOW_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class LogPart:
    """`[start, end)` of a row of segments; both are where a record or the blank begins.

    `over_holes` says that segments may be missing from it.
    """

    queue: MappedFileQueue
    start: int
    end: int
    decode: DecodeOptions
    over_holes: bool = False

    @classmethod
    def of_store(
        cls, config: PipelineConfig, note: Callable[[str], object], begin: int | None = None, end: int | None = None
    ) -> LogPart:
        """Return all of a store's log up to now; `note` gets the anomaly at its end, if there is one.

        If segments are missing, return the row of segments that holds `[begin, end)`.

        Raises
        ------
        ReputError
            The log cannot be read.
        """
        decode = decode_options(config.source)
        check_crc = "all" if decode.check_crc else "none"
        log = LogReader(config.log_options(onDamage=decode.on_damage, checkCrc=check_crc))
        log.warns = False
        queue = log.queue()
        rows = queue.rows(queue.min_offset, queue.end_of_files)
        if config.source.fail_on_data_loss and len(rows) > 1:
            first, stop = next(((a, b) for a, b in reversed(rows) if begin is not None and a <= begin), rows[0])
            if end is not None and end <= stop < queue.end_of_files:
                files = tuple(file for file in queue.files if first <= file.file_from_offset < stop)
                return cls(MappedFileQueue(files, queue.paths), first, stop, decode)
            settled = log.settled_end(first)
            files = tuple(file for file in log.queue().files if file.file_from_offset >= first)
            return cls(MappedFileQueue(files, queue.paths), first, settled, decode)
        end = log.settled_end(queue.min_offset)
        queue = log.queue()
        if log.bad_end is not None:
            note(f"the log ends at {end}: the bytes there are not a complete record yet ({log.bad_end.name})")
        return cls(queue, queue.min_offset, end, decode, over_holes=not config.source.fail_on_data_loss)

    @classmethod
    def of_segment(cls, file: MappedFile, options: LogOptions) -> LogPart:
        """Return one segment by itself, whatever its bytes are."""
        queue = MappedFileQueue((file,), (Path(file.path).parent,))
        return cls(queue, file.file_from_offset, file.end, decode_options(options))

    def between(self, begin: int | None, end: int | None, note: Callable[[str], object]) -> LogPart:
        """Return the records that begin in `[begin, end)`; `note` gets a line if `begin` has to be moved."""
        start, stop = self.start, self.end
        if begin is not None and end is not None and begin > end:
            raise OptionError(f"--from {begin} is after --to {end}")
        if begin is not None:
            if begin < self.start:
                note(f"--from {begin}: the log begins at {self.start}")
            elif begin > self.end:
                note(f"--from {begin}: the log ends at {self.end}")
            start, inside = self._boundary(begin)
            if inside is not None:
                note(f"--from {begin} is inside {inside}: beginning at {start}")
        if end is not None:
            stop = self._boundary(end)[0]
        return replace(self, start=start, end=max(start, stop))

    def since(self, timestamp_ms: int) -> LogPart:
        """Begin at the first record that was stored then or later, if store times rise from segment to segment."""
        found = find_timestamp(self.queue, self.end, timestamp_ms, self.decode.on_damage)
        return replace(self, start=min(max(self.start, found), self.end))

    def until(self, timestamp_ms: int) -> LogPart:
        """Leave out segments that begin at that time or later, if store times rise from segment to segment."""
        for file in self.queue.files:
            first = first_store_timestamp(file) if file.file_from_offset > self.start else None
            if first is not None and first >= timestamp_ms:
                return replace(self, end=max(self.start, min(self.end, file.file_from_offset)))
        return self

    def windows(self) -> Iterator[tuple[MappedFile, Window]]:
        """Yield the windows of the part, with columns; skip damage."""
        for span in self._spans():
            for window in read_windows(span.file, span.start, span.end, self.decode, _WINDOW_BYTES):
                yield span.file, window

    def _spans(self) -> Iterator[OffsetRange]:
        return split(self.queue, self.start, self.end, LONG_MAX, self.decode.on_damage, over_holes=self.over_holes)

    def _boundary(self, offset: int) -> tuple[int, str | None]:
        """Return the first boundary at `offset` or later, and the thing that `offset` is inside of, if any."""
        offset = min(max(offset, self.start), self.end)
        file = self.queue.find(offset)
        if file is None or offset == self.end:
            return offset, None
        before = align_down(file, max(self.start, file.file_from_offset), offset, self.decode.on_damage)
        if offset in (before, before + file.frame):  # a record under DLedger begins after its entry's header
            return before, None
        window = next(read_windows(file, before, min(self.end, file.end), self.decode, _WINDOW_BYTES))
        if not len(window):
            what = "the blank" if window.damaged is None else "a damaged range"
            return window.end, f"{what} at {before}"
        end = window.offset_of(1) if len(window) > 1 else window.end
        return end, f"the record at {before + file.frame}"


def decode_options(options: LogOptions) -> DecodeOptions:
    """Return how a dump reads a log: as `options` say, but it compares checksums and continues after damage.

    A dump keeps nothing, so damage needs no decision: with ``onDamage=stop`` it shows what ``quarantine`` would leave
    out. A broker's replay compares no checksum, and ``checkCrc=none`` asks for none.
    """
    on_damage = QUARANTINE if options.on_damage == STOP else options.on_damage
    check_crc = options.check_crc != "none" and on_damage != BROKER
    return DecodeOptions(check_crc, options.delays_ms, on_damage)


class LogDump:
    """Prints the records of a part of a log, at most `limit` of them; None prints all."""

    def __init__(
        self,
        part: LogPart,
        selection: RecordSelection,
        shown: Shown,
        printer: Printer,
        names: list[str],
        limit: int | None,
    ) -> None:
        self._part, self._selection, self._shown = part, selection, shown
        self._printer, self._names = printer, names
        self._left = limit
        self.totals = Totals(facts={"begin": part.start, "end": part.end})

    def run(self) -> None:
        """Print the records, and the totals."""
        for file, window in self._part.windows():
            if self._left == 0:
                break
            if len(window):
                self._records(window, Verdict.MESSAGE)
            elif window.end > window.start:
                self._no_record(file, window)
        self._printer.totals(self.totals)

    def _records(self, window: Window, verdict: Verdict) -> None:
        rows = ShownRecords(window.columns, self._selection, self._shown, verdict.name)
        if self._left is not None:
            rows.first(self._left)
            self._left -= len(rows)
        if not len(rows):
            return
        if self._left == 0:
            self.totals.facts["end"] = rows.end
        self._printer.rows(rows.values(self._names))
        self.totals.add(verdict.name, len(rows), rows.msg_bytes)
        self.totals.add_topics(rows.topics())

    def _no_record(self, file: MappedFile, window: Window) -> None:
        """Print the blank, or a damaged range; a record with only a wrong checksum is printed as a record."""
        damaged, length = window.damaged, window.end - window.start
        cause = Verdict.BLANK if damaged is None else Verdict.__members__[damaged.cause]
        if cause in SOUND_VERDICTS:
            unchecked = replace(self._part.decode, check_crc=False, on_damage=STOP)
            record = read_record(file, window.start, window.end, unchecked, decodes=True)
            if len(record):
                self._records(record, cause)
                return
        position = window.start - file.file_from_offset
        fields: dict[str, Any] = {
            "physical_offset": window.start,
            "length": length,
            "verdict": cause.name,
            "next_offset": window.end,
            "file": file.path,
            "position": position,
        }
        text = f"the log continues at {window.end}"
        if cause is Verdict.EMPTY and window.end == file.end:
            text = "nothing was written from here to the file's end"
        elif damaged is not None:
            fields["head"] = damaged.head.hex()
            text = f"{length} bytes passed over, {text}; {file.path} byte {position}, begins {damaged.head[:16].hex()}"
        self._printer.other(fields, (window.start, length, cause.name), text)
        self.totals.add(cause.name, 1, length)


# ----------------------------------------------------------------------------------------------------------------------
# Records of a window as rows: the table's columns, what the record adds, its properties and its body on request.
#
# Rows are made column by column, from the columns that the message table gets.

BODY_TEXT: Final = "text"
BODY_HEX: Final = "hex"

_FIRST = ("physical_offset", "msg_size", "verdict", "magic_version")
_TABLE = ("topic", "queue_id", "queue_offset", "store_time", "flags", "body_size", "tags", "keys", "uniq_key", "msg_id")
# The last byte of either magic code tells them apart.
_MAGIC_VERSIONS = {MESSAGE_MAGIC_CODE & 0xFF: 1, MESSAGE_MAGIC_CODE_V2 & 0xFF: 2}
_LAST_BYTE = 3


@dataclass(frozen=True)
class Shown:
    """The columns and fields to show of each record, and at most `body_bytes_max` bytes of its body."""

    properties: bool = False
    body: str | None = None
    body_bytes_max: int = 256

    def __post_init__(self) -> None:
        if self.body not in (None, BODY_TEXT, BODY_HEX):
            raise OptionError(f"--body {self.body}: {BODY_TEXT} or {BODY_HEX} wanted")

    @property
    def table_names(self) -> list[str]:
        """The columns of a table for people."""
        return [*_FIRST, *_TABLE, *self._more()]

    @property
    def json_names(self) -> list[str]:
        """The fields of a line of JSON: those of ``reput query --format json``, and those of a record alone."""
        names = list(_FIRST)
        for name in MESSAGE_SCHEMA.names:
            if name not in (*_FIRST, "properties"):
                names.append(name)
                names += [f"{name}stamp"] if name.endswith("_time") else ["flags"] if name == "sys_flag" else []
        return [*names, *self._more()]

    def _more(self) -> Iterator[str]:
        if self.properties:
            yield "properties"
        if self.body is not None:
            yield "body" if self.body == BODY_TEXT else "body_hex"
            yield "body_bytes_left_out"


@dataclass(frozen=True)
class RecordSelection:
    """The records to show; None takes all. Store times are `[since, until)`, in milliseconds."""

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def is_of_records(self) -> bool:
        """Whether it has a condition that only a record can meet."""
        return self != RecordSelection()

    def rows(self, batch: pa.RecordBatch, store_timestamps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """Return which rows of a batch of ``MESSAGE_SCHEMA`` are chosen, bool[n]; None for all of them."""
        if not self.is_of_records:
            return None
        chosen = np.ones(len(batch), bool)
        if self.topic is not None:
            chosen &= pc.equal(batch["topic"], self.topic).to_numpy(zero_copy_only=False)
        if self.queue_id is not None:
            chosen &= batch["queue_id"].to_numpy() == self.queue_id
        if self.since is not None:
            chosen &= store_timestamps >= self.since
        if self.until is not None:
            chosen &= store_timestamps < self.until
        if self.key is not None:
            chosen &= self._has_key(batch)
        return chosen

    def _has_key(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Whether the key is in KEYS, or is the unique key."""
        keys = batch["keys"]
        same = pc.equal(pc.list_flatten(keys), self.key).to_numpy(zero_copy_only=False)
        is_unique_key = pc.fill_null(pc.equal(batch["uniq_key"], self.key), False)
        found = np.array(is_unique_key.to_numpy(zero_copy_only=False))
        found[pc.list_parent_indices(keys).to_numpy()[same]] = True
        return found


class ShownRecords:
    """Some records of a window, by column."""

    def __init__(self, columns: RecordColumns, selection: RecordSelection, shown: Shown, verdict: str) -> None:
        batch, rows = message_batch(columns), np.arange(len(columns))
        chosen = selection.rows(batch, columns.store_timestamp)
        if chosen is not None:
            batch, rows = batch.filter(pa.array(chosen)), rows[chosen]
        self._columns, self._batch, self._rows = columns, batch, rows
        self._shown, self._verdict = shown, verdict

    def __len__(self) -> int:
        return len(self._rows)

    def first(self, count: int) -> None:
        """Keep only the first `count` of them."""
        self._batch, self._rows = self._batch.slice(0, count), self._rows[:count]

    @property
    def msg_bytes(self) -> int:
        """The size of all of them in bytes."""
        return int(self._columns.msg_size[self._rows].sum())

    @property
    def end(self) -> int:
        """The physical offset after the last of them."""
        return int(self._columns.physical_offset[self._rows[-1]] + self._columns.msg_size[self._rows[-1]])

    def topics(self) -> dict[str, int]:
        """Return the number of records of each topic."""
        return {each["values"]: each["counts"] for each in pc.value_counts(self._batch["topic"]).to_pylist()}

    def values(self, names: list[str]) -> list[list[Any]]:
        """Return the columns of these names, as plain values."""
        texts, left_out = self._bodies() if self._shown.body is not None else ([], [])
        more: dict[str, list[Any]] = {"body": texts, "body_hex": texts, "body_bytes_left_out": left_out}
        return [more[name] if name in more else self._column(name) for name in names]

    def _column(self, name: str) -> list[Any]:
        if name == "verdict":
            return [self._verdict] * len(self)
        if name == "magic_version":
            at = self._columns.parts[self._rows, rk.AT] + MAGIC_AT + _LAST_BYTE
            return [_MAGIC_VERSIONS[code] for code in self._columns.data[at].tolist()]
        if name == "flags":
            return [flag_names(flag) for flag in self._batch["sys_flag"].to_pylist()]
        if name == "properties":
            return [dict(pairs) for pairs in self._batch[name].to_pylist()]
        if name == "store_timestamp":
            return list(self._columns.store_timestamp[self._rows].tolist())
        if name == "born_timestamp":
            return list(self._columns.other_fields().born_timestamp[self._rows].tolist())
        if name.endswith("_timestamp"):
            return list(self._milliseconds(name.removesuffix("stamp")).to_pylist())
        if name.endswith("_time"):
            return _time_texts(self._milliseconds(name))
        return list(self._batch[name].to_pylist())

    def _milliseconds(self, name: str) -> pa.Array:
        return pc.divide(self._batch[name].cast(pa.int64()), 1000)

    def _bodies(self) -> tuple[list[str], list[int]]:
        """Return the part of each body that is shown, decompressed if it is text, and how many bytes are left out."""
        texts, left_out = [], []
        for row in self._rows.tolist():
            at, size = (int(self._columns.parts[row, part]) for part in (rk.BODY, rk.BODY_SIZE))
            body = self._columns.data[at : at + size].tobytes()
            if self._shown.body == BODY_TEXT:
                with suppress(CorruptRecordError):  # then its bytes in the log are shown
                    body = decompress_body(body, int(self._columns.sys_flag[row]))
            part = body[: self._shown.body_bytes_max]
            is_text = self._shown.body == BODY_TEXT
            texts.append(part.decode(errors="backslashreplace") if is_text else part.hex())
            left_out.append(len(body) - len(part))
        return texts, left_out


def _time_texts(milliseconds: pa.Array) -> list[str | None]:
    """Return times as ``times.time_text`` writes them; None stays None."""
    valid = milliseconds.is_valid().to_numpy(zero_copy_only=False)
    times = pc.fill_null(milliseconds, 0).to_numpy().astype("datetime64[ms]")
    texts = np.datetime_as_string(times, unit="ms").tolist()
    return [f"{text}Z" if is_known else None for text, is_known in zip(texts, valid.tolist(), strict=True)]


# At most this many topics are counted by name: a forged log could have one for each record.
_TOPICS_MAX = 10_000
_TOPICS_SHOWN = 10


@dataclass
class Totals:
    """The number and the bytes of what was shown, by verdict; records also by topic."""

    counts: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    other_topics: int = 0
    #: Facts about the whole, such as its ends.
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, verdict: str, count: int, size: int) -> None:
        """Add `count` of one verdict, which take `size` bytes."""
        self.counts[verdict] += count
        self.sizes[verdict] += size

    def add_topics(self, topics: Mapping[str, int]) -> None:
        """Add records by topic."""
        for topic, count in topics.items():
            if topic in self.topics or len(self.topics) < _TOPICS_MAX:
                self.topics[topic] += count
            else:
                self.other_topics += count

    def as_dict(self) -> dict[str, Any]:
        """Return the totals for JSON."""
        verdicts = {name: {"count": count, "bytes": self.sizes[name]} for name, count in sorted(self.counts.items())}
        topics: dict[str, Any] = {"topics": dict(sorted(self.topics.items()))} if self.topics else {}
        if self.other_topics:
            topics["other_topics"] = self.other_topics
        return {**self.facts, "verdicts": verdicts, **topics}

    def lines(self) -> list[str]:
        """Return the totals for people."""
        counts = [f"{count} {name} ({self.sizes[name]} bytes)" for name, count in sorted(self.counts.items())]
        text = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        lines = [": ".join(filter(None, (text, ", ".join(counts) or "nothing")))]
        if self.topics:
            named = [f"{topic} {count}" for topic, count in self.topics.most_common(_TOPICS_SHOWN)]
            more = len(self.topics) - len(named)
            lines.append(f"topics: {', '.join(named)}{f', and {more} more' if more else ''}")
        return lines


class Printer(Protocol):
    """Writes a dump in one form."""

    def header(self, fields: Mapping[str, Any]) -> None:
        """Write what comes before the rows."""

    def rows(self, columns: Sequence[Sequence[Any]]) -> None:
        """Write rows, given by column, in the order of the printer's names."""

    def other(self, fields: Mapping[str, Any], first: Sequence[Any], text: str) -> None:
        """Write a row of another kind: its `fields`, or for people the `first` columns and a `text`."""

    def totals(self, totals: Totals) -> None:
        """Write the totals."""


class JsonPrinter:
    """One object a line; the header's is in ``header``, the totals' in ``totals``."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self._names, self._out = names, out

    def header(self, fields: Mapping[str, Any]) -> None:
        """Write the header."""
        self._write({"header": dict(fields)})

    def rows(self, columns: Sequence[Sequence[Any]]) -> None:
        """Write rows; a field without a value is null."""
        self._out.writelines(
            f"{printable_json(dict(zip(self._names, values, strict=True)))}\n" for values in zip(*columns, strict=True)
        )

    def other(self, fields: Mapping[str, Any], first: Sequence[Any], text: str) -> None:  # noqa: ARG002
        """Write the fields."""
        self._write(fields)

    def totals(self, totals: Totals) -> None:
        """Write the totals."""
        self._write({"totals": totals.as_dict()})

    def _write(self, value: Mapping[str, Any]) -> None:
        self._out.write(f"{printable_json(value)}\n")


class TablePrinter:
    """A header of names and values, then aligned columns; the totals go to `note`, line by line."""

    def __init__(self, names: Sequence[str], out: TextIO, note: Callable[[str], object]) -> None:
        self._table, self._out, self._note = TextTable(names, terminal_width(out)), out, note

    def header(self, fields: Mapping[str, Any]) -> None:
        """Write the header."""
        self._lines(f"{name}: {printable(str(value))}" for name, value in fields.items() if value is not None)

    def rows(self, columns: Sequence[Sequence[Any]]) -> None:
        """Write rows."""
        self._lines(self._table.lines(columns))

    def other(self, fields: Mapping[str, Any], first: Sequence[Any], text: str) -> None:  # noqa: ARG002
        """Write the first cells and the text."""
        self._lines(self._table.line_of_its_own(first, text))

    def totals(self, totals: Totals) -> None:
        """Pass the totals on."""
        for line in totals.lines():
            self._note(printable(line))

    def _lines(self, lines: Iterable[str]) -> None:
        self._out.writelines(f"{line}\n" for line in lines)
