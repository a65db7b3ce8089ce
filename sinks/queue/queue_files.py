"""The files of one kind of queue: created in full size, filled from the front, named by the byte where they begin."""

from __future__ import annotations

from collections.abc import Iterator

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.queue.queue_reader import QueueKind, QueueReader, Units
from reput.source.segments.mapped_file_name import file_name


class QueueFiles:
    """All files of one kind below one output; `file_size` is in bytes, a multiple of a unit's."""

    def __init__(self, files: DurableFiles, kind: QueueKind, file_size: int) -> None:
        self._files = files
        self._kind = kind
        self.file_size = file_size

    def queues(self) -> Iterator[tuple[bytes, int]]:
        """The topic and queue id of every queue, as in ``QueueKind.queues``."""
        return self._kind.queues(self._files.root)

    def reader(self, topic: bytes, queue_id: int) -> QueueReader:
        """A reader of a queue as it is on disk now."""
        return QueueReader(self._files.root, self._kind, self.file_size, topic, queue_id)

    def create(self, topic: bytes, queue_id: int, file: int) -> None:
        """Create the file that begins at byte `file`, without an entry; one that exists is emptied."""
        self._files.create(*self._parts(topic, queue_id, file), size=self.file_size)

    def remove(self, topic: bytes, queue_id: int, file: int) -> None:
        """Remove one file."""
        self._files.remove(*self._parts(topic, queue_id, file))

    def write(self, topic: bytes, queue_id: int, at: int, data: memoryview, last_file: int) -> None:
        """Write `data` from byte `at` of the queue on; files behind `last_file` (-1: all) are created if missing.

        A task of a cluster that was given up may do this late: what others wrote behind `data` by then stays.
        """
        for file in self.files_of(at, at + len(data)):
            if file > last_file:
                self._files.create(*self._parts(topic, queue_id, file), size=self.file_size, keeps=True)
            size = min(len(data), file + self.file_size - at)
            self._files.write(*self._parts(topic, queue_id, file), offset=at - file, data=data[:size])
            data = data[size:]
            at += size

    def files_of(self, begin: int, end: int) -> range:
        """Where each file begins that holds some of the bytes `[begin, end)` of a queue."""
        return range(begin - begin % self.file_size, end, self.file_size) if end > begin else range(0)

    def clear(self, topic: bytes, queue_id: int, file: int, first: int, stale: Units) -> None:
        """Zero the units `stale` of a file, from number `first` on."""
        if stale.tobytes().strip(b"\0"):
            at = first * self._kind.unit.itemsize
            self._files.write(*self._parts(topic, queue_id, file), offset=at, data=bytes(stale.nbytes))

    def _parts(self, topic: bytes, queue_id: int, file: int) -> tuple[str, str, str, str]:
        return (*self._kind.directory(topic, queue_id), file_name(file))
