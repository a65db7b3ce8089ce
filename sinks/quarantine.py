"""The ranges that were left out of the log, each recorded once and durably in a line of ``reput/quarantine.jsonl``.

A batch's lines are written before the other sinks of the `logic` query write the batch, so that nothing is left out
without its line. Ranges that come again after a crash are recognised by their physical offset.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import KeepsProgress, ProgressFile, SinkProgress
from reput.sinks.files.store_path import quarantine_file
from reput.source.errors import FIRST_FORMAT, OutputError, SinkError, check_format
from reput.source.record.damage import DamagedRange
from reput.source.times import utc_text

#: The cause of a range that the log no longer has; other causes are names of ``Verdict`` and those of
#: ``queue.consume_queue``.
EXPIRED = "EXPIRED"
# The version of a line; lines name it from the second version on.
_VERSION = 1


@dataclass(frozen=True)
class QuarantinedRange:
    """One line: `length` bytes of `broker`'s log from `physical_offset` were left out.

    Attributes
    ----------
    cause
        A name of ``Verdict``; EXPIRED; or a cause of ``consume_queue``, for a sound record that is in the index and the
        table but in no queue.
    file, position
        The segment, and the byte in it where the range begins; empty and -1 if the log no longer has the range.
    head
        The first bytes, at most 64, hexadecimal.
    found_at
        The time when the range was found: UTC, ISO 8601 with milliseconds.
    policy
        The ``onDamage`` of the run.
    """

    broker: str
    physical_offset: int
    length: int
    cause: str
    file: str
    position: int
    head: str
    found_at: str
    policy: str


class Quarantine(KeepsProgress):
    """Keeps the lines of one output; call `recover` first."""

    name = "quarantine"

    def __init__(self, files: DurableFiles, broker: str, policy: str, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives `found_at` in seconds since 1970."""
        self._files = files
        self._broker = broker
        self._policy = policy
        self._clock = clock
        self._record = ProgressFile(files, self.name)
        # Ranges after `end_offset` that have a line already: a rebuild of one kind of files found them.
        self._known: frozenset[int] = frozenset()

    def recover(self, least_end: int, most_end: int) -> None:
        """Continue where the progress record ends; the other sinks end between `least_end` and `most_end`.

        Without a record the quarantine begins at `least_end`. Lines of ranges from `most_end` on are dropped: no other
        sink has reached them, and the log there may be another one now.

        Raises
        ------
        SinkError
            The file is shorter than what was written.
        """
        record = self._record.load()
        path = self._files.root.joinpath(*quarantine_file())
        if record is None:
            record = SinkProgress(least_end, least_end, None, {"bytes": 0})
        size = record.state["bytes"]
        data = path.read_bytes()[:size] if path.exists() else b""
        if len(data) < size:
            raise SinkError(
                f"{path} has {len(data)} bytes where {size} were written: it was changed",
                advice=f"remove {self._record.path}",
                file=path,
            )
        if record.end_offset > most_end:
            kept = [line for line in data.splitlines(keepends=True) if _parsed(path, line).physical_offset < most_end]
            data = b"".join(kept)
            record = replace(record, end_offset=most_end)
        self._files.replace(*quarantine_file(), data=data)
        self._record.store(replace(record, state={"bytes": len(data)}))
        offsets = (_parsed(path, line).physical_offset for line in data.splitlines(keepends=True))
        self._known = frozenset(offset for offset in offsets if offset >= self.end_offset)

    def write(self, end: int, found: Sequence[DamagedRange]) -> tuple[QuarantinedRange, ...]:
        """Add the ranges found in a batch that ends at `end`, durably and once; return the new lines."""
        if end <= self.end_offset:
            return ()
        new = (each for each in found if each.start >= self.end_offset and each.start not in self._known)
        lines = tuple(self._line(damaged) for damaged in sorted(new, key=lambda damaged: damaged.start))
        data = b"".join(map(_encoded, lines))
        size = self._record.progress.state["bytes"]
        if data:
            self._files.write(*quarantine_file(), offset=size, data=data)
            self._files.sync()
        self._record.advance(end, None, {"bytes": size + len(data)})
        return lines

    def _line(self, damaged: DamagedRange) -> QuarantinedRange:
        moment = datetime.fromtimestamp(self._clock(), timezone.utc)
        return QuarantinedRange(
            broker=self._broker,
            physical_offset=damaged.start,
            length=damaged.end - damaged.start,
            cause=damaged.cause,
            file=damaged.file,
            position=damaged.position,
            head=damaged.head.hex(),
            found_at=utc_text(moment),
            policy=self._policy,
        )


def expired_range(start: int, end: int) -> DamagedRange:
    """The range of expired segments."""
    return DamagedRange(start, end, EXPIRED, "", -1, b"")


def load_quarantine(output: Path) -> list[QuarantinedRange]:
    """The lines of an output, in the order they were written.

    Raises
    ------
    OutputError
        The output does not exist, or a line is not one of reput's.
    """
    path = output.joinpath(*quarantine_file())
    if not output.is_dir():
        raise OutputError(
            f"no output at {output}: the directory does not exist",
            advice="give the --output of 'reput tail'",
            file=output,
        )
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    return [_parsed(path, line) for line in data.splitlines(keepends=True) if line.endswith(b"\n")]


def merge_quarantines(files: DurableFiles, first: DurableFiles, second: DurableFiles, sink_ends: Sequence[int]) -> None:
    """Write the lines of two other outputs below `files`, each range once; a range in both gets the line of `first`.

    The progress record ends at the least of their ends and of `sink_ends`, so that sinks that have not come as far find
    the ranges that they will not get. `second` must have a record.
    """
    lines = load_quarantine(first.root)
    known = {line.physical_offset for line in lines}
    lines += (line for line in load_quarantine(second.root) if line.physical_offset not in known)
    data = b"".join(map(_encoded, lines))
    files.replace(*quarantine_file(), data=data)
    found = (ProgressFile(each, Quarantine.name).load() for each in (first, second))
    records = [record for record in found if record is not None]
    start = min(record.start_offset for record in records)
    end = min([*sink_ends, *(record.end_offset for record in records)])
    ProgressFile(files, Quarantine.name).store(SinkProgress(min(start, end), end, None, {"bytes": len(data)}))


def _encoded(line: QuarantinedRange) -> bytes:
    return json.dumps(asdict(line)).encode() + b"\n"


def _parsed(path: Path, line: bytes) -> QuarantinedRange:
    try:
        found = json.loads(line)
        check_format(path, found.pop("version", FIRST_FORMAT), _VERSION, file=path)
        return QuarantinedRange(**found)
    except (ValueError, TypeError, AttributeError) as error:
        raise OutputError(
            f"{path} holds a line that reput did not write ({error}): {line[:80]!r}", file=path
        ) from error


def count_causes(found: Iterable[QuarantinedRange]) -> Counter[str]:
    """The number of ranges left out, by cause."""
    return Counter(line.cause for line in found)
