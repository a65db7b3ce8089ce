"""What a broker's store is made of, as rows: segments of the log, queues on disk, and the ends of transactions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from reput.sinks.queue.lookup import ConsumeQueueLookup
from reput.source.errors import StoreError
from reput.source.record.message_decoder import Message
from reput.source.record.message_origin import OP_TOPIC
from reput.source.segments.mapped_file_name import is_file_name
from reput.source.segments.mapped_file_queue import MappedFileQueue
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.query.message_row import plain_body
from reput.streaming.query.store_lookup import messages_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def log_segments(config: PipelineConfig) -> Iterator[tuple[int, int, datetime]]:
    """First byte, size in bytes and time of change, in whole milliseconds, of each segment of the log.

    Raises
    ------
    StoreError
        The log cannot be read, or its files do not follow one another.
    """
    source = config.source
    log = MappedFileQueue.load(config.commit_log, source.mapped_file_size, dledger=source.enable_dledger_commit_log)
    for file in log.files:
        try:
            changed_ms = os.stat(file.path).st_mtime_ns // 1_000_000
        except FileNotFoundError:  # it expired meanwhile
            continue
        yield file.file_from_offset, file.size, _EPOCH + timedelta(milliseconds=changed_ms)


def consume_queues(store: Path) -> Iterator[tuple[str, int, int, int]]:
    """Topic, queue, number of files and their bytes of each queue on disk, BatchConsumeQueues among them.

    Raises
    ------
    StoreError
        A directory cannot be read.
    """
    for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        for topic in _directories(store / kind):
            for queue in _directories(topic):
                if queue.name.isascii() and queue.name.isdecimal() and len(queue.name) < 10:
                    sizes = _sizes(queue)
                    name = os.fsencode(topic.name).decode(errors="backslashreplace")
                    yield name, int(queue.name), len(sizes), sum(sizes)


def _entries(path: Path) -> list[Path]:
    """What is in a directory; nothing if it is not there."""
    try:
        return sorted(path.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", file=path) from error


def _directories(path: Path) -> list[Path]:
    return [each for each in _entries(path) if each.is_dir() and not each.is_symlink()]


def _sizes(queue: Path) -> list[int]:
    sizes = []
    for file in _entries(queue):
        if is_file_name(file.name):
            with suppress(FileNotFoundError):  # it expired meanwhile
                sizes.append(file.stat().st_size)
    return sizes


def half_ops(config: PipelineConfig) -> Iterator[tuple[int, int]]:
    """Queue and queue offset of each half message that was ended, by a commit or a rollback, as the log tells.

    A message of the op topic names one (4.9.3) or several (5.x). What is expired or damaged of them is left out.

    Raises
    ------
    StoreError, SinkError
        The log or the queue of the op topic cannot be read.
    """
    messages = messages_of(config)
    for topic, queue_id, _, _ in consume_queues(config.store):
        if topic != OP_TOPIC:
            continue
        queue = ConsumeQueueLookup.open(config.store, topic, queue_id, messages.min_offset)
        for queue_offset in range(queue.min_offset, queue.max_offset):
            found = messages.find(queue.entry(queue_offset).physical_offset)
            if isinstance(found, Message) and found.topic == OP_TOPIC:
                for text in (plain_body(found) or b"").split(b","):
                    if text.isdigit() and len(text) < 19:
                        yield queue_id, int(text)
