"""The new places of records that are copied into another log, and of everything that names records by their places."""

from __future__ import annotations

import io
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from reput.sinks.commit_log import CommitLogWriter
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REBUILD_ROOT
from reput.sinks.formats.timer import is_unit
from reput.source.kernels import record_kernels as rk
from reput.source.log.log_reader import read_message
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.log.range_reader import DecodeOptions
from reput.source.log.segment_scan import Window
from reput.source.log.store_layout import file_name
from reput.source.record.message_decoder import Message, MessageId
from reput.source.record.moved_record import move_record

_MOVED = (*REBUILD_ROOT, "moved")


class MovedRecords:
    """The places of the records of the old log `queue` in the new one; kept in a file for each old segment."""

    def __init__(self, files: DurableFiles, queue: MappedFileQueue) -> None:
        self._files = files
        self._queue = queue
        self._known: dict[int, np.ndarray[tuple[int, int], np.dtype[np.int64]]] = {}
        # The records of the segment that is being copied.
        self._old: list[int] = []
        self._new: list[int] = []

    def load(self, file: MappedFile) -> tuple[int, int] | None:
        """Return the number of records of a segment that was copied whole, and their end in the new log; else None."""
        path = self._files.root.joinpath(*_MOVED, file_name(file.file_from_offset))
        if not path.exists():
            return None
        pair = np.load(path, mmap_mode="r")
        self._known[file.file_from_offset] = pair[:2]
        return pair.shape[1] - 1, int(pair[1, -1])

    def note(self, old: int, new: int) -> None:
        """Note the new place of a record of the segment that is being copied."""
        self._old.append(old)
        self._new.append(new)

    def finish(self, file: MappedFile, end: int) -> None:
        """Note durably that the segment is copied; the new log ends at `end`, and is durable."""
        # The last pair is the end of the segment, not a record.
        pair, data = np.array([[*self._old, file.end], [*self._new, end]], np.int64), io.BytesIO()
        np.save(data, pair)
        self._files.replace(*_MOVED, file_name(file.file_from_offset), data=data.getbuffer())
        self._old, self._new = [], []
        self.load(file)

    def offset(self, offset: int) -> int | None:
        """See ``MovedTo``."""
        file = self._queue.find(offset)
        if file is None:
            return None
        known = self._known.get(file.file_from_offset)
        if known is not None:
            at = int(np.searchsorted(known[0], offset))
            return int(known[1, at]) if at < known.shape[1] - 1 and known[0, at] == offset else None
        at = bisect_left(self._old, offset)
        return self._new[at] if at < len(self._old) and self._old[at] == offset else None

    def message_id(self, message_id: MessageId) -> MessageId | None:
        """See ``MovedTo``; another broker's message may have the same offset."""
        now, file = self.offset(message_id.offset), self._queue.find(message_id.offset)
        if now is None or file is None:
            return None
        there = read_message(file, message_id.offset, file.end, DecodeOptions())
        is_same = isinstance(there, Message) and MessageId.of(there) == message_id
        return replace(message_id, offset=now) if is_same else None

    def timers(self, units: np.ndarray[tuple[int], np.dtype[np.void]]) -> None:
        """Change the units of a timer log to name the records where they are now."""
        for row in np.flatnonzero(is_unit(units)):
            now = self.offset(int(units["physical_offset"][row]))
            if now is not None:
                units["physical_offset"][row] = now

    @property
    def last(self) -> int:
        """The place of the last record in the old log, which has one."""
        known = [self._known[at] for at in sorted(self._known)]
        return int(next(pair[0, -2] for pair in reversed(known) if pair.shape[1] > 1))

    def times(self) -> Iterator[tuple[int, int]]:
        """Yield the new place of the last record of each old segment, and when the segment was last written (ns)."""
        for file in self._queue.files:
            known = self._known.get(file.file_from_offset)
            if known is not None and known.shape[1] > 1:
                yield int(known[1, -2]), os.stat(file.path).st_mtime_ns


def copy_records(
    windows: Iterable[Window],
    writer: CommitLogWriter,
    moved: MovedRecords,
    chosen: Callable[[Window], Sequence[bool]] | None = None,
) -> None:
    """Append the records of a segment's windows and flush them: all, or the `chosen`, a truth value each."""
    for window in windows:
        data, parts = window.data.data, window.parts
        if chosen is not None and len(parts):
            parts = parts[np.array(chosen(window))]
        for at, size, properties in parts[:, [rk.AT, rk.SIZE, rk.PROPERTIES]].tolist():
            record, offset = bytearray(data[at : at + size]), writer.place(size)
            moved.note(window.start + at, offset)
            move_record(record, offset, properties - at, moved)
            writer.append(record)
    writer.flush()
