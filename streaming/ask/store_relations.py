"""Relations that a question may read beside the table, from a broker's store: its configuration and its files.

Each is small and in memory. Nothing is written. Names in files become values of columns; no path is made of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from reput.sinks.files.config_manager import backup_of, consumer_of, load_config_file, number_of, text_of
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from reput.source.errors import StoreError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.store_layout import is_file_name, rocksdb_queues
from reput.source.record.message_decoder import Message
from reput.source.record.message_origin import OP_TOPIC
from reput.source.times import time_of
from reput.streaming.config.consumer_offsets import table_of

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig

# ----------------------------------------------------------------------------------------------------------------------
# Topics and consumers in the store's ``config/``, as rows.

_CONFIG: Final = "config"


def consumer_offsets(store: Path, *, enable_lmq: bool = False) -> Iterator[tuple[str, str, int, int]]:
    """Yield group, topic, queue and offset: the next offset of each group in each queue.

    They are in ``consumerOffset.json``, and with `enable_lmq` in ``lmqConsumerOffset.json``, as in
    ``BrokerController``. If a store has only the second file, that one is read in any case. Names other than
    ``TOPIC@GROUP`` are ignored, as in ``ConsumerOffsetManager``.

    Raises
    ------
    StoreError
        The file is missing, or a broker did not write it.
    """
    plain, of_lmq = (store / _CONFIG / name for name in ("consumerOffset.json", "lmqConsumerOffset.json"))
    if not (enable_lmq or _is_there(plain)):
        enable_lmq = _is_there(of_lmq)
    path = of_lmq if enable_lmq else plain
    for name, offsets in _table(path, "offsetTable").items():
        if (consumer := consumer_of(name)) is None:
            continue
        if not isinstance(offsets, dict):
            raise _foreign(path, f"{name!r} has no offsets")
        for queue_id, offset in offsets.items():
            yield *consumer, _number(path, queue_id), _number(path, offset)
    # A light topic has one queue, of number 0.
    for name, offset in _table(path, "lmqOffsetTable").items() if enable_lmq else ():
        if (consumer := consumer_of(name)) is not None:
            yield *consumer, 0, _number(path, offset)


def _is_there(path: Path) -> bool:
    return path.exists() or backup_of(path).exists()


def topic_configs(store: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield topic, read and write queues and permission from ``topics.json``; errors as in `consumer_offsets`."""
    path = store / _CONFIG / "topics.json"
    for topic, config in _table(path, "topicConfigTable").items():
        if not isinstance(config, dict):
            raise _foreign(path, f"{topic!r} has no configuration")
        numbers = (_number(path, config.get(name, 0)) for name in ("readQueueNums", "writeQueueNums", "perm"))
        read_queues, write_queues, permission = numbers
        yield text_of(topic), read_queues, write_queues, permission


def subscription_groups(store: Path) -> Iterator[tuple[str]]:
    """Yield the consumer groups in ``subscriptionGroup.json``; errors as in `consumer_offsets`."""
    for group in _table(store / _CONFIG / "subscriptionGroup.json", "subscriptionGroupTable"):
        yield (text_of(group),)


def _table(path: Path, name: str) -> dict[str, Any]:
    """Return the table `name` as a broker would load it (``load_config_file``)."""
    found = load_config_file(path, partial(table_of, name=name), f"a broker's {name}", advice="restore it")
    if found is None:
        raise StoreError(f"no {path}", advice="a broker that keeps its configuration in RocksDB has none", file=path)
    return found


def _number(path: Path, value: object) -> int:
    try:
        return number_of(value)
    except ValueError as error:
        raise _foreign(path, str(error)) from None


def _foreign(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} was not written by a broker: {what[:200]}", advice="restore it", file=path)


# ----------------------------------------------------------------------------------------------------------------------
# Segments of the log, queues on disk, and the ends of transactions, as rows.


def log_segments(config: PipelineConfig) -> Iterator[tuple[int, int, datetime]]:
    """Yield first byte, size in bytes and time of change, in whole milliseconds, of each segment of the log.

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
        yield file.file_from_offset, file.size, time_of(changed_ms)


def consume_queues(store: Path) -> Iterator[tuple[str, int, int, int]]:
    """Yield topic, queue, number of files and their bytes of each queue on disk, BatchConsumeQueues included.

    Queues that are only in RocksDB have no files.

    Raises
    ------
    StoreError
        A directory cannot be read.
    """
    in_files = set()
    for kind in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        for topic in _directories(store / kind):
            for queue in _directories(topic):
                if queue.name.isascii() and queue.name.isdecimal() and len(queue.name) < 10:
                    sizes = _sizes(queue)
                    name = os.fsencode(topic.name).decode(errors="backslashreplace")
                    in_files.add((name, int(queue.name)))
                    yield name, int(queue.name), len(sizes), sum(sizes)
    if (database := rocksdb_queues(store)) is not None:
        from reput.sinks.queue.rocksdb_queue import RocksDBQueues  # noqa: PLC0415

        with RocksDBQueues.open(database) as queues:
            names = {(topic.decode(errors="backslashreplace"), queue_id) for topic, queue_id in queues.last}
        for name, queue_id in sorted(names - in_files):
            yield name, queue_id, 0, 0


def _entries(path: Path) -> list[Path]:
    """Return the sorted entries of a directory; none if it does not exist."""
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
    """Yield queue and queue offset of each half message that was committed or rolled back, according to the log.

    A message of the op topic names one half message (4.9.3) or several (5.x). Expired and damaged ones are left out.

    Raises
    ------
    StoreError, SinkError
        The log or the queue of the op topic cannot be read.
    """
    # These imports load numba, which takes longer than most questions.
    from reput.streaming.query.store_lookup import messages_of, plain_body  # noqa: PLC0415

    messages = messages_of(config)
    for queue_id, physical_offset in _op_entries(config, messages.min_offset):
        found = messages.find(physical_offset)
        if isinstance(found, Message) and found.topic == OP_TOPIC:
            for text in (plain_body(found) or b"").split(b","):
                if text.isdigit() and len(text) < 19:
                    yield queue_id, int(text)


def _op_entries(config: PipelineConfig, min_offset: int) -> Iterator[tuple[int, int]]:
    """Yield queue and physical offset of each message of the op topic in the log, which begins at `min_offset`."""
    from reput.sinks.queue.lookup import ConsumeQueueLookup  # noqa: PLC0415
    from reput.sinks.queue.rocksdb_queue import RocksDBQueues  # noqa: PLC0415

    if config.makes_rocksdb:
        with RocksDBQueues.open(config.store / str(config.rocksdb_folder)) as queues:
            for topic, queue_id in sorted(queues.last):
                for _, units in queues.entries((topic, queue_id)) if topic == OP_TOPIC.encode() else ():
                    yield from ((queue_id, offset) for offset in units["physical_offset"].tolist())
        return
    for topic_name, queue_id, files, _ in consume_queues(config.store):
        if topic_name == OP_TOPIC and files:
            queue = ConsumeQueueLookup.open(config.store, topic_name, queue_id, min_offset)
            for queue_offset in range(queue.min_offset, queue.max_offset):
                yield queue_id, queue.entry(queue_offset).physical_offset


_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_MOMENT: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class StoreRelation:
    """A relation that is read from a broker's store.

    Attributes
    ----------
    meaning
        What a row is.
    columns
        Type and meaning of each column, by name.
    is_configuration
        Whether it is read from ``config/``, which a backup also has.
    """

    meaning: str
    columns: dict[str, tuple[pa.DataType, str]]
    rows: Callable[[PipelineConfig], Iterable[Sequence[Any]]]
    is_configuration: bool = False

    @property
    def schema(self) -> pa.Schema:
        """Its columns as an Arrow schema."""
        return pa.schema([(name, kind) for name, (kind, _) in self.columns.items()])

    def load(self, config: PipelineConfig) -> pa.Table:
        """Return its rows; raises what `rows` raises."""
        named = [dict(zip(self.columns, row, strict=True)) for row in self.rows(config)]
        return pa.Table.from_pylist(named, self.schema)


STORE_RELATIONS: Final = {
    "consumer_offsets": StoreRelation(
        "where a consumer group continues in a queue, from `config/consumerOffset.json` (`lmqConsumerOffset.json` with "
        "enableLmq)",
        {
            "consumer_group": (_TEXT, "the group"),
            "topic": (_TEXT, "the topic"),
            "queue_id": (_LONG, "the queue"),
            "consumer_offset": (_LONG, "the queue offset of the first message that the group has not consumed"),
        },
        lambda config: consumer_offsets(config.store, enable_lmq=config.broker.enable_lmq),
        is_configuration=True,
    ),
    "topic_configs": StoreRelation(
        "a topic that the broker knows, from `config/topics.json`",
        {
            "topic": (_TEXT, "the topic"),
            "read_queues": (_LONG, "readQueueNums"),
            "write_queues": (_LONG, "writeQueueNums"),
            "permission": (_LONG, "perm: 6 to read and write, 4 to read, 2 to write"),
        },
        lambda config: topic_configs(config.store),
        is_configuration=True,
    ),
    "consume_queues": StoreRelation(
        "a queue on disk, below `consumequeue/` or `batchconsumequeue/`, or in RocksDB",
        {
            "topic": (_TEXT, "the topic, by the name of its directory"),
            "queue_id": (_LONG, "the queue"),
            "files": (_LONG, "its files; 0 in RocksDB"),
            "bytes": (_LONG, "their size, which is allocated and need not be filled"),
        },
        lambda config: consume_queues(config.store),
    ),
    "log_segments": StoreRelation(
        "a segment of the log",
        {
            "physical_offset": (_LONG, "the offset of its first byte"),
            "bytes": (_LONG, "its size, which is allocated and need not be filled"),
            "modified_time": (_MOMENT, "when its file was changed last, by which the broker lets it expire"),
        },
        log_segments,
    ),
    "half_ops": StoreRelation(
        "a half message that was ended, by a commit or a rollback, as the log's op messages tell",
        {
            "queue_id": (_LONG, "the queue of the half message"),
            "queue_offset": (_LONG, "the queue offset of the half message"),
        },
        half_ops,
    ),
}
