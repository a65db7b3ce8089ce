"""One queue's ConsumeQueue files, and the sink that keeps all of them.

``ConsumeQueue#recover`` of 4.9.3; where entries go is in ``queue_order``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, BatchAnomalies
from reput.sinks.consume_queue_format import CQ_STORE_UNIT_SIZE, ENTRY, PRE_BLANK
from reput.sinks.durable_file import DurableFiles
from reput.sinks.logic_batch import LogicBatch, QueueEntries
from reput.sinks.queue_order import ConsumeQueue, Placement
from reput.sinks.sink import part_to_write
from reput.sinks.sink_progress import ProgressFile, SinkProgress
from reput.sinks.sparse_file import data_extents
from reput.sinks.store_path import CONSUME_QUEUE, consume_queue_directory, consume_queue_file
from reput.source.errors import SinkError
from reput.source.mapped_file_queue import FILE_NAME_DIGITS

_log = logging.getLogger(__name__)

MAPPED_FILE_SIZE_CONSUME_QUEUE = 300_000 * CQ_STORE_UNIT_SIZE


def rounded_file_size(configured: int) -> int:
    """The size of a file in bytes: the setting rounded up to whole entries (``getMappedFileSizeConsumeQueue``)."""
    return -(-configured // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE


class ConsumeQueueSink:
    """Keeps ``consumequeue/`` from the log."""

    name = "consumequeue"

    def __init__(self, files: DurableFiles, mapped_file_size: int = MAPPED_FILE_SIZE_CONSUME_QUEUE) -> None:
        """`mapped_file_size` is ``mappedFileSizeConsumeQueue`` in bytes, rounded up to whole entries."""
        self._files = files
        self._file_size = rounded_file_size(mapped_file_size)
        self._record = ProgressFile(files, self.name)
        self._queues: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._progress = SinkProgress(0, 0)

    @property
    def end_offset(self) -> int:
        """The effect of every record before this place is durable."""
        return self._progress.end_offset

    def recover(self, start_offset: int) -> SinkProgress:
        """See ``Sink.recover``: entries of records from the progress record's end on are dropped."""
        record = self._record.load()
        self._load_queues(None if record is None else record.end_offset)
        entries = sum(queue.end // CQ_STORE_UNIT_SIZE for queue in self._queues.values())
        if record is not None and entries != record.state["queue_ends"]:
            if self._queues:
                msg = (
                    f"the queues below {self._files.root / CONSUME_QUEUE} end at {entries} entries in all where "
                    f"{record.state['queue_ends']} were written: files are missing or were changed; remove "
                    f"{CONSUME_QUEUE}/ and {self._record.path} to derive the queues from the log again"
                )
                raise SinkError(msg)
            _log.warning("%s is gone; deriving it from the log again", self._files.root / CONSUME_QUEUE)
            record = None
        if record is None:
            # As the broker: go on after the last record any queue knows (``DefaultMessageStore#start``).
            known = max((queue.max_physic_offset for queue in self._queues.values()), default=0)
            start = max(start_offset, known)
            record = SinkProgress(start, start, None, {"queue_ends": entries})
        # Also a record that was found: a process may have died before it made the record's name durable.
        self._files.sync()
        self._record.store(record)
        self._progress = record
        return record

    def write(self, batch: LogicBatch) -> AnomalyCounts:
        """See ``Sink.write``."""
        part = part_to_write(self.name, self.end_offset, batch)
        if part is None:
            return NO_ANOMALIES
        met = BatchAnomalies(_log)
        for queue in part.queues:
            placement = self._append(queue)
            met.note(queue.topic, queue.queue_id, placement.anomalies, placement.first_out_of_order)
        self._files.sync()
        entries = sum(queue.end // CQ_STORE_UNIT_SIZE for queue in self._queues.values())
        progress = SinkProgress(
            self._progress.start_offset,
            batch.end,
            batch.last_record or self._progress.last_record,
            {"queue_ends": entries},
        )
        self._record.store(progress)
        self._progress = progress
        return met.close()

    def pass_over(self, end_offset: int) -> None:
        """See ``Sink.pass_over``; later entries go where the queues end, as the broker's do."""
        progress = replace(self._progress, end_offset=end_offset, last_record=None)
        self._record.store(progress)
        self._progress = progress

    def _append(self, incoming: QueueEntries) -> Placement:
        key = (incoming.topic, incoming.queue_id)
        consume_queue_directory(*key)  # refuses hostile names before anything is kept of them
        queue = self._queues.setdefault(key, ConsumeQueue(*key))
        placement = queue.place(incoming.entries, incoming.queue_offsets, self._file_size)
        data = np.ascontiguousarray(placement.entries).reshape(-1).data
        at = placement.begin
        while data:
            file = at - at % self._file_size
            self._make_file(queue, file)
            size = min(len(data), file + self._file_size - at)
            self._files.write(*consume_queue_file(*key, file), offset=at - file, data=data[:size])
            data = data[size:]
            at += size
        if placement.empty_file is not None:
            self._make_file(queue, placement.empty_file)
        return placement

    def _make_file(self, queue: ConsumeQueue, file: int) -> None:
        if not queue.files or file > queue.files[-1]:
            self._files.create(*consume_queue_file(queue.topic, queue.queue_id, file), size=self._file_size)
            queue.files.append(file)

    def _load_queues(self, end_offset: int | None) -> None:
        for topic, queue_id, directory in _queue_directories(self._files.root / CONSUME_QUEUE):
            queue = ConsumeQueue(topic, queue_id)
            queue.files = self._load_files(directory)
            self._find_end(queue, end_offset)
            if queue.files:
                self._queues[topic, queue_id] = queue
        self._files.sync()

    def _load_files(self, directory: Path) -> list[int]:
        found = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if not (len(entry.name) == FILE_NAME_DIGITS and entry.name.isdecimal()):
                    continue
                size = entry.stat(follow_symlinks=False).st_size
                # A crash may leave a file without its size; `_find_end` drops it as one without entries.
                if size not in (0, self._file_size):
                    msg = (
                        f"{entry.path} has {size} bytes where mappedFileSizeConsumeQueue is {self._file_size}; give "
                        "the broker's setting (--broker-conf), or remove the queue to derive it again"
                    )
                    raise SinkError(msg)
                found.append(int(entry.name))
        return sorted(found)

    def _find_end(self, queue: ConsumeQueue, end_offset: int | None) -> None:
        """Find the queue's end, dropping entries of records from `end_offset` on (None keeps all)."""
        dropped: list[int] = []
        while queue.files:
            view = np.frombuffer(_written_part(self._path(queue, queue.files[-1])), ENTRY)
            valid = (view["physical_offset"] >= 0) & (view["msg_size"] > 0)
            if end_offset is not None:
                valid &= view["physical_offset"] < end_offset
            count = len(view) if valid.all() else int(np.argmin(valid))
            real = np.flatnonzero(view["msg_size"][:count] != PRE_BLANK["msg_size"])
            if len(real):
                last = view[int(real[-1])]
                queue.max_physic_offset = int(last["physical_offset"]) + int(last["msg_size"])
                queue.end = queue.files[-1] + count * CQ_STORE_UNIT_SIZE
                self._clear(queue, queue.files[-1], view[count:], count)
                break
            dropped.insert(0, queue.files.pop())
        # A full queue may have its next file already, without an entry.
        if dropped and queue.files and dropped[0] == queue.end:
            queue.files.append(dropped.pop(0))
            parts = consume_queue_file(queue.topic, queue.queue_id, queue.files[-1])
            self._files.create(*parts, size=self._file_size)
        for file in dropped:
            self._files.remove(*consume_queue_file(queue.topic, queue.queue_id, file))

    def _path(self, queue: ConsumeQueue, file: int) -> Path:
        return self._files.root.joinpath(*consume_queue_file(queue.topic, queue.queue_id, file))

    def _clear(self, queue: ConsumeQueue, file: int, stale: np.ndarray[Any, Any], first: int) -> None:
        if stale.tobytes().strip(b"\0"):
            self._files.write(
                *consume_queue_file(queue.topic, queue.queue_id, file),
                offset=first * CQ_STORE_UNIT_SIZE,
                data=bytes(len(stale) * CQ_STORE_UNIT_SIZE),
            )


def _written_part(path: Path) -> bytes:
    """The file's bytes without the hole at its end, in whole entries."""
    with path.open("rb") as file:
        end = max((end for _, end in data_extents(file.fileno())), default=0)
        size = os.fstat(file.fileno()).st_size
        file.seek(0)  # looking for extents moved the place
        return file.read(min(size, -(-end // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE))


def _queue_directories(root: Path) -> Iterator[tuple[bytes, int, Path]]:
    if not root.is_dir():
        return
    for topic in sorted(root.iterdir()):
        if topic.is_dir() and not topic.is_symlink():
            for queue in sorted(topic.iterdir()):
                if queue.name.isdecimal() and queue.is_dir() and not queue.is_symlink():
                    yield os.fsencode(topic.name), int(queue.name), queue
