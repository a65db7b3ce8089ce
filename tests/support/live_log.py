"""A log that grows, a clock that moves when the test says so, and the finder of the log's end."""

from __future__ import annotations

from pathlib import Path

from support.logs import put_bytes
from support.record_writer import CommitLogWriter, Message

from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.reput_end_offset import ReputEnd, ReputEndFinder

SIZE = 1024
GUARD_MS = 500
FIRST = Message(properties={"TAGS": "first"})


class Clock:
    """A monotonic clock that moves when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LiveLog:
    """One log, its writer and its finder."""

    def __init__(
        self, directory: Path, *, start_offset: int = 0, preallocate: bool = False, guard_ms: int = GUARD_MS
    ) -> None:
        self.directory = directory
        self.writer = CommitLogWriter(directory, SIZE, start_offset=start_offset, preallocate=preallocate)
        self.clock = Clock()
        self.finder = ReputEndFinder(check_crc=True, tail_guard_ms=guard_ms, clock=self.clock)

    def queue(self) -> MappedFileQueue:
        return MappedFileQueue.load([self.directory])

    def end(self, after_ms: int = 0, start: int = 0) -> ReputEnd:
        """Return the end found this many milliseconds later."""
        self.clock.now += after_ms / 1000
        return self.finder.find(self.queue(), start)

    def settled(self) -> ReputEnd:
        """The end when nothing changes any more."""
        self.end()
        return self.end(GUARD_MS)

    def append(self, message: Message = FIRST) -> int:
        """Append a message; returns where it ends."""
        self.writer.append(message)
        self.writer.close()
        return self.writer.max_offset

    def put(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at an offset of the log."""
        put_bytes(self.directory / f"{offset - offset % SIZE:020d}", offset % SIZE, data)
