"""Every file of queues and index that broker and reput ever had, and every message ever stored, compared at the end.

Files expire from both stores during a run, so links to them are kept: a link has the file's bytes after its removal.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from broker.log_contents import read_records
from faults.live_break.judge import COLUMNS, same_message
from support.store_compare import differing_bytes

KINDS = ("consumequeue", "index")
LOOK_SECONDS = 2.0
UNIT = struct.Struct(">qiq")
WRONG_MAX = 5
ROWS_AT_ONCE = 20_000


def newest_offset(path: Path) -> int:
    """The physical offset of the newest record that a queue or index file knows, -1 of none."""
    data = path.read_bytes()
    if path.parent.name == "index":
        return int(struct.unpack_from(">q", data, 24)[0])
    # After the last entry a queue's file is full of zeros.
    low, high = 0, len(data) // UNIT.size
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if UNIT.unpack_from(data, middle * UNIT.size)[1] else (low, middle)
    return int(UNIT.unpack_from(data, (low - 1) * UNIT.size)[0]) if low else -1


class Keeper(threading.Thread):
    """Links below `kept` to each queue and index file that appears below `store`.

    A file that has gone is kept if its records have expired. Otherwise it was dropped, to be made again, and so is the
    link. `log_begin` tells where the log begins at that moment.
    """

    def __init__(self, store: Path, kept: Path, log_begin: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._store, self._kept, self._log_begin = store, kept, log_begin
        self._is_over = threading.Event()
        self.dropped = 0

    def run(self) -> None:
        """Look again and again until told to stop."""
        while not self._is_over.wait(LOOK_SECONDS):
            with suppress(OSError):  # a full disk, or a file that goes meanwhile: the next look is soon
                self.look()

    def look(self) -> None:
        """Bring the links up to what there is."""
        for kind in KINDS:
            there = {path.relative_to(self._store): path for path in _files(self._store / kind)}
            for name, path in there.items():
                link = self._kept / name
                with suppress(FileNotFoundError):
                    if link.exists() and not link.samefile(path):
                        link.unlink()
                    if not link.exists():
                        link.parent.mkdir(parents=True, exist_ok=True)
                        os.link(path, link)
            gone = [
                link
                for link in list(_files(self._kept / kind))
                if not (self._store / link.relative_to(self._kept)).exists()
            ]
            begin = self._log_begin()  # asked afterwards: segments go before the files that expire with them
            for link in gone:
                if newest_offset(link) >= begin:
                    link.unlink()
                    self.dropped += 1

    def stop(self) -> None:
        """Look a last time, and end."""
        self._is_over.set()
        self.join()
        self.look()


def _files(root: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(root):
        yield from (Path(directory) / name for name in names)


@dataclass
class Equality:
    """The findings of the comparison; `wrong` is empty if everything is right."""

    messages: int = 0
    rows: int = 0
    entries: int = 0
    files: int = 0
    expired_unread: int = 0
    wrong: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def complain(self, words: str) -> None:
        """Note something that is wrong."""
        self.wrong.append(words)


def compare_files(broker: Path, output: Path, found: Equality) -> None:
    """Queue and index files byte for byte, each that there ever was."""
    queue_files = list(_files(broker / "consumequeue"))
    found.files = len(queue_files) + len(list(_files(broker / "index")))
    found.entries = sum(entries(path) for path in queue_files)
    differing = differing_bytes(broker, output)
    for name, count in list(differing.items())[:WRONG_MAX]:
        found.complain(f"{name} differs from the broker's in {count} bytes")
    if len(differing) > WRONG_MAX:
        found.complain(f"{len(differing)} files in all differ from the broker's")


def entries(path: Path) -> int:
    """Entries of a queue's file that belong to a record."""
    data = path.read_bytes()
    return sum(0 < size < 0x7FFFFFFF for _, size, _ in UNIT.iter_unpack(data[: len(data) // UNIT.size * UNIT.size]))


def compare_rows(archive: Path, table: Path, lost: list[tuple[int, int]], found: Equality) -> None:
    """Each message of the log one row that says the same, and no row of anything else.

    `lost` are stretches of the log that reput said had expired before it read them.
    """
    rows = deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=list(COLUMNS))
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("physical_offset", "ascending")]))
    found.rows = rows.num_rows
    missing, extra, doubled, differing = (
        Seen("missing from the table"),
        Seen("rows of no message"),
        Seen("doubled"),
        Seen("differ"),
    )
    following = _rows(rows)
    row, last = next(following, None), -1
    for record in read_records(archive, {}):
        found.messages += 1
        while row is not None and row["physical_offset"] < record.offset:
            (doubled if row["physical_offset"] == last else extra).add(row["physical_offset"])
            row = next(following, None)
        if row is None or row["physical_offset"] != record.offset:
            if any(begin <= record.offset < end for begin, end in lost):
                found.expired_unread += 1
            else:
                missing.add(record.offset)
            continue
        if not same_message(row, record):
            differing.add(record.offset)
        last, row = record.offset, next(following, None)
    while row is not None:
        (doubled if row["physical_offset"] == last else extra).add(row["physical_offset"])
        row = next(following, None)
    for seen in (missing, extra, doubled, differing):
        if seen.count:
            found.complain(f"{seen.count} messages: {seen.words}, the first at {seen.first}")


@dataclass
class Seen:
    """How many messages something is true of, and the first of them."""

    words: str
    count: int = 0
    first: int = -1

    def add(self, offset: int) -> None:
        """One more."""
        self.first = offset if not self.count else self.first
        self.count += 1


def _rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in rows.to_batches(ROWS_AT_ONCE):
        yield from batch.to_pylist()
