"""The command `reput query --store`: messages of one store by key, by id, by queue offset or by time.

Look-ups need neither Spark nor Java. They write nothing and take no lock: a broker may run on the store. A message is
printed as the row that it has in the message table. A row has the table's columns under their names, and each time also
in milliseconds. Times are UTC.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from reput.sinks.index.index_reader import IndexLookup, index_file_names
from reput.sinks.index.rocksdb_index import RocksDBIndex
from reput.sinks.queue.batch_consume_queue import BATCH_KIND
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.lookup import BatchConsumeQueueLookup, ConsumeQueueEntry, ConsumeQueueLookup, RocksDBQueueLookup
from reput.source.errors import CorruptRecordError, SinkError, StoreError
from reput.source.log.log_reader import Absence, MessageLookup
from reput.source.record import message_origin as origin
from reput.source.record.message_body import BODY_BYTES_MAX, decompress_body
from reput.source.record.message_decoder import Message, MessageId, host_text
from reput.source.record.message_format import TRANSACTION_TYPE_NAMES, transaction_type
from reput.source.record.message_properties import (
    PROPERTY_DELAY,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    parse_int,
    split_keys,
)
from reput.source.times import time_text
from reput.streaming.config.broker import NO_INDEX_FILES, read_topics
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.process.terminal import terminal_width
from reput.streaming.query.options import (
    DEFAULT_QUERY_MAX_NUM,
    MAX_MSGS_NUM_BATCH,
    QueryOptions,
    check_format,
    check_key,
    check_unique_key,
    lines,
    parse_time,
)

QueueLookup: TypeAlias = ConsumeQueueLookup | BatchConsumeQueueLookup | RocksDBQueueLookup

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
_INDEX_SECOND_MS = 1000


@dataclass(frozen=True)
class Found:
    """A message, the queue entry that led to it, and whether it is the one that a client would return."""

    message: Message
    entry: ConsumeQueueEntry | None = None
    chosen: bool | None = None


@dataclass
class Answer:
    """Messages found: by key newest first, else in the queue's order. `notes` say what was skipped."""

    found: list[Found] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note_absences(self, absences: Iterable[Absence], what: str) -> None:
        """Add a note for each reason, with a count and the first case in full."""
        by_reason: dict[str, list[Absence]] = {}
        for absence in absences:
            by_reason.setdefault(absence.reason, []).append(absence)
        for reason, same in by_reason.items():
            self.notes.append(f"{what} skipped, {reason}: {len(same)}; the first: {same[0].detail}")


def messages_of(config: PipelineConfig) -> MessageLookup:
    """Return look-ups in the log that `config` names; raises StoreError as ``MessageLookup`` does."""
    return MessageLookup(
        config.commit_log,
        mapped_file_size=config.source.mapped_file_size,
        dledger=config.source.enable_dledger_commit_log,
        delays_ms=config.source.delays_ms,
    )


class StoreLookup:
    """Look-ups in one store: the log that `config` names, and the index and queues of `output`, or of the store itself.

    Raises
    ------
    StoreError
        There is no commitlog, or its files do not follow one another.
    """

    def __init__(self, config: PipelineConfig, output: Path | None = None) -> None:
        self._config = config
        self._root = config.store if output is None else output
        #: Look-ups in the log by physical offset.
        self.messages = messages_of(config)
        self._index = IndexLookup(self._root, config.index.max_hash_slot_num, config.index.max_index_num)
        self._keeps_index = config.index.message_index_enable

    def by_key(
        self, topic: str, key: str, *, begin: int = LONG_MIN, end: int = LONG_MAX, max_num: int = MAX_MSGS_NUM_BATCH
    ) -> Answer:
        """Return messages of `topic` with `key` in their KEYS, stored in `[begin, end]` (ms, inclusive), newest first.

        They are those that a client takes from a broker's answer (``MQAdminImpl#queryMessage``), but a message that the
        index has twice is returned once. `max_num` limits index entries, including those of other keys with the same
        hash, as on a broker.
        """
        check_key(key)

        def has_key(message: Message) -> bool:
            return message.keys is not None and key in split_keys(message.keys)

        return self._by_index(topic, key, has_key, begin, end, max_num)

    def by_unique_key(
        self, topic: str, key: str, *, begin: int = LONG_MIN, end: int = LONG_MAX, max_num: int = DEFAULT_QUERY_MAX_NUM
    ) -> Answer:
        """Return messages of `topic` whose unique key is `key`, newest first; the one stored first is `chosen`.

        A client returns only that one (``MQAdminImpl#queryMessageByUniqKey``).
        """
        check_unique_key(key)
        answer = self._by_index(topic, key, lambda message: message.uniq_key == key, begin, end, max_num)
        messages = [found.message for found in answer.found]
        first = min(messages, key=lambda message: (message.store_timestamp, message.physical_offset), default=None)
        answer.found = [replace(found, chosen=found.message is first) for found in answer.found]
        return answer

    def by_msg_id(self, text: str) -> Answer:
        """Return the message with an offset message id.

        Raises
        ------
        OptionError
            The text is not such an id.
        StoreError
            There is no valid record at its offset, or one with another id.
        """
        wanted = MessageId.parse(text)
        message = self.messages.find(wanted.offset)
        if isinstance(message, Absence):
            raise StoreError(
                f"no message {text}: {message.detail}",
                advice="a client's unique key, which looks the same, is asked for with --topic and --uniq-key",
                physical_offset=wanted.offset,
            )
        if MessageId.of(message) != wanted:
            raise StoreError(
                f"no message {text}: the one at offset {wanted.offset} is {MessageId.of(message)}; "
                "the id is from another broker's log",
                physical_offset=wanted.offset,
            )
        return Answer([Found(message)])

    def by_queue_offset(self, topic: str, queue_id: int, queue_offset: int, count: int = 1) -> Answer:
        """Return the messages of up to `count` queue entries from `queue_offset` on.

        Raises
        ------
        SinkError
            The queue is missing or has no entry there, in the words of ``DefaultMessageStore#getMessage``.
        StoreError
            A single entry was asked for and points to no valid record.
        """
        with self.queue(topic, queue_id) as queue:
            low, high = queue.min_offset, queue.max_offset
            if not low <= queue_offset < high:
                raise SinkError(f"{_status(queue_offset, low, high)}: {queue.name} has the entries [{low}, {high})")
            return self._entries(queue, queue.entries_from(queue_offset, count), single=count == 1)

    def by_time(self, topic: str, queue_id: int, timestamp: int, count: int = 1) -> Answer:
        """Return the messages of up to `count` queue entries from the first stored at `timestamp` (ms) or later.

        Raises
        ------
        SinkError
            The queue is missing.
        StoreError
            An entry that the search has to read points to no valid record.
        """
        with self.queue(topic, queue_id) as queue:

            def store_time(entry: ConsumeQueueEntry) -> int:
                return self._message_of(queue, entry).store_timestamp

            first = queue.offset_in_queue_by_time(timestamp, store_time)
            entries = queue.entries_from(first, count) if first < queue.max_offset else ()
            answer = self._entries(queue, entries, single=count == 1)
            low, high = queue.min_offset, queue.max_offset
        answer.notes.append(f"{queue.name}: offset {first} at {timestamp}; it has the entries [{low}, {high})")
        return answer

    def _by_index(
        self, topic: str, key: str, matches: Callable[[Message], bool], begin: int, end: int, max_num: int
    ) -> Answer:
        """``DefaultMessageStore#queryMessage`` without its second and third round.

        Store times need not rise: a message that the broker stored after its clock went back is found by its own time.
        A round that reads a message is the last one, and one that reads none would ask for the same again.
        """
        has_files = self._keeps_index or bool(index_file_names(self._root))
        answer = Answer()
        in_rocksdb = self._in_rocksdb(topic, key, begin, end, max_num, answer if has_files else None)
        if not has_files and in_rocksdb is None:
            raise SinkError(
                f"{self._root} has no index files, and its broker keeps none ({NO_INDEX_FILES})",
                advice="ask a table (--table), or make an index: 'reput rebuild --only index --option "
                "messageIndexEnable=true' with an --output of its own",
                file=self._root,
            )
        offsets = []
        if has_files and (in_rocksdb is None or self._index.exists):
            result = self._index.query_offset(topic, key, max_num, begin - _INDEX_SECOND_MS, end, times_rise=False)
            answer.notes += result.damages
            offsets = result.phy_offsets
        if in_rocksdb is not None:
            offsets = sorted({*offsets, *in_rocksdb}, reverse=True)[:max_num]
        elif not self._keeps_index:
            answer.notes.append(f"newer messages may be in no index file: the broker keeps none ({NO_INDEX_FILES})")
        if len(offsets) >= max_num:
            answer.notes.append(
                f"the newest {max_num} index entries were read; there may be older ones: give --until or --limit"
            )
        absences, others = [], 0
        for offset in dict.fromkeys(offsets):
            message = self.messages.find(offset)
            if isinstance(message, Absence):
                absences.append(message)
            elif message.topic != topic or not matches(message):
                others += 1
            elif begin <= message.store_timestamp <= end:
                answer.found.append(Found(message))
        answer.note_absences(absences, "index entries")
        if others:
            answer.notes.append(f"messages of other keys with the same hash left out: {others}")
        return answer

    def _in_rocksdb(
        self, topic: str, key: str, begin: int, end: int, max_num: int, beside_files: Answer | None
    ) -> list[int] | None:
        """Return the physical offsets that the index in RocksDB has for a key; None if there is no such index.

        Raises
        ------
        StoreError
            It cannot be read; `beside_files` gets a note instead.
        """
        try:
            with RocksDBIndex.open(self._root) as index:
                return None if index is None else index.query_offset(topic, key, max_num, begin, end)
        except StoreError as error:
            if beside_files is None:
                raise
            beside_files.notes.append(f"there may be more messages: {error}")
            return None

    @contextmanager
    def queue(self, topic: str, queue_id: int) -> Iterator[QueueLookup]:
        """The queue, open meanwhile, of the kind that exists; if both kinds exist, of the topic's kind.

        Queues in files count before those in RocksDB.

        Raises
        ------
        SinkError
            The queue does not exist, or cannot be read.
        """
        name = topic.encode(errors="surrogateescape")
        is_plain, is_batch = (
            self._root.joinpath(*kind.directory(name, queue_id)).is_dir() for kind in (KIND, BATCH_KIND)
        )
        folder = self._config.rocksdb_folder
        if folder is not None and not (is_plain or is_batch):
            with RocksDBQueueLookup.open(self._root / folder, topic, queue_id, self.messages.min_offset) as found:
                yield found
            return
        if is_plain and is_batch:
            is_batch = name in read_topics(self._config, self._config.store).batch
        kind = BatchConsumeQueueLookup if is_batch else ConsumeQueueLookup
        yield kind.open(self._root, topic, queue_id, self.messages.min_offset)

    def _entries(self, queue: QueueLookup, queue_offsets: Iterable[int], *, single: bool) -> Answer:
        answer, absences = Answer(), []
        for queue_offset in queue_offsets:
            entry = queue.entry(queue_offset)
            message = self._message_of(queue, entry) if single else self.messages.find(entry.physical_offset)
            if isinstance(message, Absence):
                absences.append(message)
                continue
            answer.found.append(Found(message, entry))
            if difference := _difference(queue, entry, message):
                answer.notes.append(f"entry {queue_offset} of {queue.name} and its record differ: {difference}")
        answer.note_absences(absences, "queue entries")
        return answer

    def _message_of(self, queue: QueueLookup, entry: ConsumeQueueEntry) -> Message:
        message = self.messages.find(entry.physical_offset)
        if isinstance(message, Absence):
            raise StoreError(
                f"entry {entry.queue_offset} of {queue.name} leads to no message: {message.detail}",
                physical_offset=entry.physical_offset,
            )
        return message


def _status(queue_offset: int, low: int, high: int) -> str:
    """``GetMessageStatus`` of an offset outside `[low, high)`."""
    if high == 0:
        return "NO_MESSAGE_IN_QUEUE"
    if queue_offset < low:
        return "OFFSET_TOO_SMALL"
    return "OFFSET_OVERFLOW_ONE" if queue_offset == high else "OFFSET_OVERFLOW_BADLY"


def _difference(queue: QueueLookup, entry: ConsumeQueueEntry, message: Message) -> str:
    """Return the difference between an entry and its record, empty if they agree; the tags code is not compared."""
    pairs: list[tuple[str, object, object]] = [("size", entry.msg_size, message.msg_size)]
    if not queue.is_lmq:  # an LMQ has messages of other queues
        pairs.append(("queue", (queue.topic, queue.queue_id), (message.topic, message.queue_id)))
        pairs.append(("queue offset", entry.queue_offset, message.queue_offset))
    return ", ".join(f"{name} {ours} and {theirs}" for name, ours, theirs in pairs if ours != theirs)


def plain_body(message: Message) -> bytes | None:
    """Return the body as the producer gave it; None if it cannot be decompressed, or is too large decompressed."""
    try:
        return decompress_body(message.body, message.sys_flag, size_max=BODY_BYTES_MAX)
    except CorruptRecordError:
        return None


def message_row(found: Found, *, with_body: bool) -> dict[str, Any]:
    """Return a message as a JSON object.

    A body is `body` if it is UTF-8 and `body_base64` if not; one that cannot be decompressed is
    `body_compressed_base64`, as stored. A message found by unique key has `chosen`, one found in a queue has `entry`.
    """
    message = found.message
    row: dict[str, Any] = {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "physical_offset": message.physical_offset,
        "msg_size": message.msg_size,
        "store_time": time_text(message.store_timestamp),
        "store_timestamp": message.store_timestamp,
        "born_time": time_text(message.born_timestamp),
        "born_timestamp": message.born_timestamp,
        "born_host": host_text(message.born_host),
        "store_host": host_text(message.store_host),
        "tags": message.tags,
        "tags_code": message.tags_code,
        "keys": split_keys(message.keys) if message.keys is not None else [],
        "uniq_key": message.uniq_key,
        "msg_id": str(MessageId.of(message)),
        "body_size": len(message.body),
        "body_crc": message.body_crc,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "transaction_type": TRANSACTION_TYPE_NAMES[transaction_type(message.sys_flag)],
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "delay_level": _integer(message, PROPERTY_DELAY),
        "real_topic": message.properties.get(PROPERTY_REAL_TOPIC),
        "real_queue_id": _integer(message, PROPERTY_REAL_QUEUE_ID),
        "properties": message.properties,
        **_origins(message),
    }
    if found.chosen is not None:
        row["chosen"] = found.chosen
    if found.entry is not None:
        entry = found.entry
        code = ("tags_code", entry.tags_code) if entry.ext_address is None else ("ext_address", entry.ext_address)
        row["entry"] = {"queue_offset": entry.queue_offset, "msg_size": entry.msg_size, code[0]: code[1]}
    if with_body:
        name, text = _body(message)
        row[name] = text
    return row


def _origins(message: Message) -> dict[str, Any]:
    """Return the columns that follow from others."""
    topic, properties = message.topic, message.properties
    has_type = transaction_type(message.sys_flag) != 0
    delay_level = _integer(message, PROPERTY_DELAY)
    deliver_ms = origin.deliver_ms(topic, properties, message.tags_code, delay_level, message.store_timestamp)
    return {
        "kind": origin.kind(topic, properties),
        "consumer_group": origin.consumer_group(topic, properties),
        "origin_topic": origin.origin_topic(topic, properties),
        "origin_msg_id": origin.origin_msg_id(properties),
        "deliver_time": None if deliver_ms is None else time_text(deliver_ms),
        "deliver_timestamp": deliver_ms,
        "producer_group": origin.producer_group(topic, properties),
        "client_host": properties.get(origin.PROPERTY_BORN_HOST),
        "transaction_id": origin.transaction_id(topic, properties, has_type=has_type),
        "first_key": next(iter(split_keys(message.keys or "")), None),
    }


def _integer(message: Message, name: str) -> int | None:
    return parse_int(message.properties.get(name, ""))


def _body(message: Message) -> tuple[str, str]:
    body = plain_body(message)
    if body is None:
        return "body_compressed_base64", base64.b64encode(message.body).decode()
    try:
        return "body", body.decode()
    except UnicodeDecodeError:
        return "body_base64", base64.b64encode(body).decode()


def run_query(
    options: QueryOptions,
    config: PipelineConfig,
    *,
    output: Path | None = None,
    output_format: str = "table",
    with_body: bool = False,
    out: TextIO,
    note: Callable[[str], object],
) -> int:
    """Look up, write the messages to `out` and pass notes on what was skipped to `note`; return how many were found.

    Raises
    ------
    OptionError
        The options do not go together, or one has a value that it does not allow.
    ReputError
        What was asked for does not exist, or a file cannot be read; see `StoreLookup`.
    """
    check_format(output_format)
    ask = _question(options)
    lookup = StoreLookup(config, output)
    answer = ask(lookup)
    if not answer.found:
        for other in options.in_other_cases():
            if (found := _question(other)(lookup)).found:
                answer = found
                answer.notes.append(f"the unique key is {other.uniq_key}, in other cases than were given")
                break
    rows = [message_row(one, with_body=with_body) for one in answer.found]
    out.writelines(f"{line}\n" for line in lines(rows, output_format, terminal_width(out)))
    for text in answer.notes:
        note(text)
    return len(answer.found)


def _question(options: QueryOptions) -> Callable[[StoreLookup], Answer]:
    """Return the look-up that the options ask for; all options have been checked."""
    kind, count = options.kind(), options.entries
    topic, queue_id = options.topic or "", options.queue_id or 0
    if kind == "msg_id":
        msg_id = options.msg_id or ""
        return lambda store: store.by_msg_id(msg_id)
    if kind == "queue_offset":
        queue_offset = options.queue_offset or 0
        return lambda store: store.by_queue_offset(topic, queue_id, queue_offset, count)
    if kind == "time":
        timestamp = parse_time(options.time or "")
        return lambda store: store.by_time(topic, queue_id, timestamp, count)
    since, last = options.period
    begin, end = LONG_MIN if since is None else since, LONG_MAX if last is None else last
    if kind == "key":
        key = options.key or ""
        return lambda store: store.by_key(topic, key, begin=begin, end=end, max_num=options.most)
    key = options.uniq_key or ""
    return lambda store: store.by_unique_key(topic, key, begin=begin, end=end, max_num=options.most)
