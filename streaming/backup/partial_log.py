"""A part of a restored log: the messages of some topics, or those that were stored since a moment.

The records keep their queue offsets and get physical offsets of their own, as in `reput convert`. All messages of a
topic are taken or, with a moment, all later ones, so that a broker finds no gap in a queue. That is why a topic in
which messages of several topics wait, such as that of delayed messages, is taken whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from reput.sinks.commit_log import CommitLogWriter
from reput.sinks.files.durable_file import DurableFiles
from reput.source.errors import OptionError, UnknownNameError
from reput.source.kernels import record_kernels as rk
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows, store_timestamp_at
from reput.source.log.segment_scan import Window
from reput.source.options import nearest
from reput.source.printable import printable
from reput.source.record.damage import QUARANTINE
from reput.source.times import time_text
from reput.streaming.convert.moved_records import MovedRecords, copy_records


@dataclass(frozen=True)
class MessageChoice:
    """The messages of `topics` (of all topics if empty) that were stored at `since_ms` (ms since 1970) or later."""

    topics: tuple[str, ...] = ()
    since_ms: int | None = None

    def __bool__(self) -> bool:
        return bool(self.topics) or self.since_ms is not None

    def words(self) -> str:
        """Return words that follow "messages" in a sentence."""
        of = f" of {', '.join(map(printable, self.topics))}" if self.topics else ""
        return of + (f" stored since {time_text(self.since_ms)}" if self.since_ms is not None else "")


class _Chosen:
    """Chooses the records of a window; `seen` has the topics of all windows so far."""

    def __init__(self, part: MessageChoice) -> None:
        self._topics = frozenset(topic.encode() for topic in part.topics)
        self._since_ms = part.since_ms
        self.seen = set[bytes]()

    def __call__(self, window: Window) -> list[bool]:
        data, rows = window.data.data, window.parts[:, [rk.AT, rk.TOPIC, rk.TOPIC_SIZE]].tolist()
        topics = [data[topic : topic + size].tobytes() for _, topic, size in rows]
        self.seen.update(topics)
        return [
            (not self._topics or topic in self._topics)
            and (self._since_ms is None or store_timestamp_at(window.data, at) >= self._since_ms)
            for topic, (at, _, _) in zip(topics, rows, strict=True)
        ]


def write_part(whole: DurableFiles, queue: MappedFileQueue, end: int, part: MessageChoice, files: DurableFiles) -> int:
    """Write a part of the log `queue`, which is below `whole` and ends at `end`, below `files`; return its end.

    Damaged records are left out.

    Raises
    ------
    UnknownNameError
        The log has no message of a topic.
    OptionError
        No message is late enough.
    """
    chosen, moved = _Chosen(part), MovedRecords(whole, queue)
    writer = CommitLogWriter(files, queue.min_offset, queue.mapped_file_size)
    options = DecodeOptions(check_crc=True, on_damage=QUARANTINE)
    for file in queue.files:
        if file.file_from_offset < end:
            windows = read_windows(file, file.file_from_offset, min(end, file.end), options, decodes=False)
            copy_records(windows, writer, moved, chosen)
            files.sync()
            moved.finish(file, writer.end)
    for topic in part.topics:
        if topic.encode() not in chosen.seen:
            raise UnknownNameError(
                f"--topic {printable(topic)}: the log has no message of it up to that moment",
                nearest=nearest(topic, {name.decode(errors="replace") for name in chosen.seen}),
            )
    if writer.end == queue.min_offset:
        raise OptionError(f"the log has no messages{part.words()} up to that moment")
    return writer.end
