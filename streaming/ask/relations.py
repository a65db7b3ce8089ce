"""The relations that a question may read beside the table: a broker's configuration and files, and the quarantine.

Each is small and in memory. Nothing is written, and no name in a file leads anywhere: they are values of columns.

They also tell which brokers, topics, queues and groups are known (`known_names`), so that an empty answer to a typo is
told from an empty answer. This is asked only when nothing was found: an answer with rows costs nothing more.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from reput.sinks.files.config_manager import backup_of, consumer_of, load_config_file, number_of, text_of
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from reput.sinks.table.columns import CONSUMPTION_SCHEMA, FIRST_SEEN, GONE, PROGRESS, QUARANTINE_SCHEMA, RESET_BACK
from reput.sinks.table.data_file import logged_time
from reput.sinks.table.location import TableLocation, consumption_table_path, quarantine_table_path
from reput.sinks.table.log import read_snapshot
from reput.source.errors import OptionError, OutputError, StoreError, UnknownNameError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.store_layout import is_file_name, rocksdb_queues
from reput.source.options import nearest, shown
from reput.source.record.message_decoder import Message
from reput.source.record.message_origin import OP_TOPIC, group_of
from reput.source.times import time_of
from reput.streaming.ask.evidence import COPIES_SCHEMA, EVIDENCE_SCHEMA, copies_of, evidence_of
from reput.streaming.ask.question import Question
from reput.streaming.ask.values import literal
from reput.streaming.output.paths import check_table
from reput.streaming.sql.duckdb_query import TableStatements, duckdb_query, table_statements, text_literal
from reput.streaming.sql.output import Relations

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig

# ----------------------------------------------------------------------------------------------------------------------
# What a broker keeps of topics and consumers in its store's ``config/``, as rows.

_CONFIG: Final = "config"


def consumer_offsets(store: Path, *, enable_lmq: bool = False) -> Iterator[tuple[str, str, int, int]]:
    """Group, topic, queue and offset: where each group goes on in each queue.

    They are in ``consumerOffset.json``, and with `enable_lmq` in ``lmqConsumerOffset.json``, as in
    ``BrokerController``. A store that has the second file alone is read by it in any case. Names other than
    ``TOPIC@GROUP`` are no group's, as in ``ConsumerOffsetManager``.

    Raises
    ------
    StoreError
        The file is missing, or is none that a broker wrote.
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
    # A light queue is one, of number 0.
    for name, offset in _table(path, "lmqOffsetTable").items() if enable_lmq else ():
        if (consumer := consumer_of(name)) is not None:
            yield *consumer, 0, _number(path, offset)


def _is_there(path: Path) -> bool:
    return path.exists() or backup_of(path).exists()


def topic_configs(store: Path) -> Iterator[tuple[str, int, int, int]]:
    """Topic, read and write queues and permission of ``topics.json``; errors as in `consumer_offsets`."""
    path = store / _CONFIG / "topics.json"
    for topic, config in _table(path, "topicConfigTable").items():
        if not isinstance(config, dict):
            raise _foreign(path, f"{topic!r} has no configuration")
        numbers = (_number(path, config.get(name, 0)) for name in ("readQueueNums", "writeQueueNums", "perm"))
        read_queues, write_queues, permission = numbers
        yield text_of(topic), read_queues, write_queues, permission


def subscription_groups(store: Path) -> Iterator[tuple[str]]:
    """The consumer groups of ``subscriptionGroup.json``; errors as in `consumer_offsets`."""
    for group in _table(store / _CONFIG / "subscriptionGroup.json", "subscriptionGroupTable"):
        yield (text_of(group),)


def _table(path: Path, name: str) -> dict[str, Any]:
    """What a broker would load of the table `name` (``load_config_file``)."""

    def decode(value: Any) -> dict[str, Any]:
        found = value[name]
        if not isinstance(found, dict):
            raise TypeError(f"{name} is no table")
        return found

    found = load_config_file(path, decode, f"a broker's {name}", advice="restore it")
    if found is None:
        raise StoreError(f"no {path}", advice="a broker that keeps its configuration in RocksDB has none", file=path)
    return found


def _number(path: Path, value: object) -> int:
    try:
        return number_of(value)
    except ValueError as error:
        raise _foreign(path, str(error)) from None


def _foreign(path: Path, what: str) -> StoreError:
    return StoreError(f"{path} is none that a broker wrote: {what[:200]}", advice="restore it", file=path)


# ----------------------------------------------------------------------------------------------------------------------
# What a broker's store is made of, as rows: segments of the log, queues on disk, and the ends of transactions.


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
        yield file.file_from_offset, file.size, time_of(changed_ms)


def consume_queues(store: Path) -> Iterator[tuple[str, int, int, int]]:
    """Topic, queue, number of files and their bytes of each queue on disk, BatchConsumeQueues among them.

    Queues that are in RocksDB alone have no files.

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
    # What loads numba is imported here and below, because that takes longer than most questions.
    from reput.streaming.query.store_lookup import messages_of, plain_body  # noqa: PLC0415

    messages = messages_of(config)
    for queue_id, physical_offset in _op_entries(config, messages.min_offset):
        found = messages.find(physical_offset)
        if isinstance(found, Message) and found.topic == OP_TOPIC:
            for text in (plain_body(found) or b"").split(b","):
                if text.isdigit() and len(text) < 19:
                    yield queue_id, int(text)


def _op_entries(config: PipelineConfig, min_offset: int) -> Iterator[tuple[int, int]]:
    """Queue and physical offset of each message of the op topic that the log, which begins at `min_offset`, has."""
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
QUARANTINE: Final = "quarantine"
CONSUMPTION: Final = "consumption"
EVIDENCE: Final = "evidence"
COPIES: Final = "copies"
_BESIDE: Final = {
    QUARANTINE: QUARANTINE_SCHEMA,
    CONSUMPTION: CONSUMPTION_SCHEMA,
    COPIES: COPIES_SCHEMA,
    EVIDENCE: EVIDENCE_SCHEMA,
}
NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class StoreRelation:
    """A relation that is read from a broker's store.

    Attributes
    ----------
    meaning
        What a row of it is.
    columns
        Type and meaning of each column, by name.
    """

    meaning: str
    columns: dict[str, tuple[pa.DataType, str]]
    rows: Callable[[PipelineConfig], Iterable[Sequence[Any]]]

    @property
    def schema(self) -> pa.Schema:
        """Its columns as Arrow has them."""
        return pa.schema([(name, kind) for name, (kind, _) in self.columns.items()])

    def load(self, config: PipelineConfig) -> pa.Table:
        """Its rows; raises what `rows` raises."""
        named = [dict(zip(self.columns, row, strict=True)) for row in self.rows(config)]
        return pa.Table.from_pylist(named, self.schema)


STORE_RELATIONS: Final = {
    "consumer_offsets": StoreRelation(
        "where a consumer group goes on in a queue, from `config/consumerOffset.json` (`lmqConsumerOffset.json` with "
        "enableLmq)",
        {
            "consumer_group": (_TEXT, "the group"),
            "topic": (_TEXT, "the topic"),
            "queue_id": (_LONG, "the queue"),
            "consumer_offset": (_LONG, "the queue offset of the first message that the group has not consumed"),
        },
        lambda config: consumer_offsets(config.store, enable_lmq=config.broker.enable_lmq),
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


def relations_of(
    question: Question,
    table: TableLocation,
    config: PipelineConfig | None,
    note: Callable[[str], object],
    values: Mapping[str, Any] = NO_VALUES,
    at: int | datetime | None = None,
) -> Relations:
    """The relations that `question` reads; `config` is that of a broker's store, None without one.

    What is missing and counts as empty is told to `note`. Of the ledger of consumption, rows that do not matter for
    the `values` of the question are left out. `at` is the version of the table, or a time; it matters for `copies`.

    Raises
    ------
    OptionError
        There is no store, and the question needs one.
    StoreError, OutputError
        What is to be read cannot be read.
    """
    found: dict[str, pa.Table] = {}
    for name in question.reads:
        if name == QUARANTINE:
            found[name] = _quarantine(quarantine_table_path(table), note)
        elif name == COPIES:
            found[name] = copies_of(table, values, _seen_until(table), at)
        elif name == CONSUMPTION:
            found[name] = _consumption(question, table, values, found.get(COPIES), note)
        elif name == EVIDENCE:
            found[name] = evidence_of(table, found[COPIES], values.get(BROKER), config, note)
        elif config is None:
            raise OptionError(f"{question.name} reads {name}, which is {STORE_RELATIONS[name].meaning}: --store wanted")
        else:
            found[name] = STORE_RELATIONS[name].load(config)
    return found


def empty_relations(question: Question) -> Relations:
    """The relations that `question` reads, without rows."""
    schemas = {**_BESIDE, **{name: each.schema for name, each in STORE_RELATIONS.items()}}
    return {name: pa.Table.from_batches([], schemas[name]) for name in question.reads}


def _quarantine(path: TableLocation, note: Callable[[str], object]) -> pa.Table:
    try:
        check_table(path)
    except OutputError as error:
        note(f"nothing is known of ranges that were left out: {error.cause}")
        return pa.Table.from_batches([], QUARANTINE_SCHEMA)
    with duckdb_query(path, "SELECT * FROM messages") as rows:
        schema, batches = rows.batches()
        return pa.Table.from_batches(batches, schema)


# A ledger has a hundred million rows a month; these are few.
_RARE_MOVES: Final = f"move IN ('{FIRST_SEEN}', '{RESET_BACK}', '{GONE}')"
_MOVES: Final = f"SELECT {', '.join(CONSUMPTION_SCHEMA.names)} FROM messages WHERE "  # noqa: S608  names of columns
# With messages in more queues, all moves of their topics are looked through.
_QUEUES_MAX: Final = 50


def _consumption(
    question: Question,
    table: TableLocation,
    values: Mapping[str, Any],
    copies: pa.Table | None,
    note: Callable[[str], object],
) -> pa.Table:
    path = consumption_table_path(table)
    try:
        check_table(path)
    except OutputError as error:
        note(f"nothing is known of what consumer groups did: {error.cause}")
        return pa.Table.from_batches([], CONSUMPTION_SCHEMA)
    names = {"consumer_group": GROUP, "topic": TOPIC, "broker": BROKER}
    texts = {column: values.get(name) for column, name in names.items()}
    tests = [f"{name} = {text_literal(str(text))}" for name, text in texts.items() if text is not None]
    since, until = (literal("time", values.get(name), for_spark=False) for name in ("since", "until"))
    with table_statements(path) as ledger:
        if copies is not None:
            return _passages(ledger, " AND ".join([f"{_MOVES} true", *tests]), copies)
        tests += [f"({since} IS NULL OR seen_after >= {since})"]
        tests += [f"({until} IS NULL OR coalesce(seen_before, seen_after) < {until})"]
        tests += [_RARE_MOVES] if question.name == "resets" else []
        return ledger.table(_MOVES + " AND ".join(tests))


def _passages(ledger: TableStatements, select: str, copies: pa.Table) -> pa.Table:
    """The moves by which groups passed the messages `copies`, or went back over them, and each one's move before that.

    Also the moves that are not progress, of which each group has one at least. `select` is a query of the ledger with
    a condition.
    """
    topics = f"topic IN ({', '.join(map(text_literal, sorted({*copies['topic'].to_pylist(), ''})))})"
    offsets: dict[str, list[int]] = defaultdict(list)
    columns = (copies[name].to_pylist() for name in ("broker", "topic", "queue_id", "queue_offset"))
    for broker, topic, queue_id, offset in zip(*columns, strict=True):
        queue = f"broker = {text_literal(broker)} AND topic = {text_literal(topic)} AND queue_id = {queue_id}"
        offsets[queue].append(offset)
    if len(offsets) > _QUEUES_MAX:
        offsets = {topics: copies["queue_offset"].to_pylist()}
    of_queues = {f"{select} AND move = '{PROGRESS}' AND {queue}": each for queue, each in offsets.items()}
    passed = [
        f"{query} AND offset_before <= {max(each)} AND offset_after > {min(each)}" for query, each in of_queues.items()
    ]
    came_to = f"offset_after IN (SELECT offset_before FROM passages WHERE move = '{PROGRESS}')"  # noqa: S608
    before = [f"{query} AND {came_to}" for query in of_queues]
    passages = " UNION ".join([f"{select} AND {topics} AND {_RARE_MOVES}", *passed])
    return ledger.table(f"WITH passages AS MATERIALIZED ({passages}) {' UNION '.join(['FROM passages', *before])}")


def _seen_until(table: TableLocation) -> dict[str, datetime]:
    """Until when the groups of each broker were watched, by the last move of the ledger; nothing without one."""
    latest: dict[str, datetime] = {}
    with suppress(OutputError):
        for file in read_snapshot(consumption_table_path(table)).files():
            time = logged_time(file.bounds.columns.get("seen_after", (None, None))[1])
            for broker in file.bounds.brokers or ():
                if time is not None:
                    latest[broker] = max(time, latest.get(broker, time))
    return latest


def first_seen(table: TableLocation, group: str | None) -> datetime | None:
    """When the ledger beside a table saw an offset first, of a group or of any; None if it has none."""
    with suppress(OutputError), table_statements(consumption_table_path(table)) as ledger:
        where = "" if group is None else f" WHERE consumer_group = {text_literal(group)}"
        ((found,),) = ledger.rows(f"SELECT epoch_ms(min(seen_after)) FROM messages{where}")  # noqa: S608  a literal
        return None if found is None else time_of(found)
    return None


def broker_of(table: TableLocation, config: PipelineConfig) -> str:
    """The broker of the table to which a store belongs: the one of its settings, or the table's only one.

    Raises
    ------
    OptionError
        The table has no rows of the broker that the settings name, or has rows of several and they name none.
    """
    from reput.streaming.config.settings import DEFAULT_BROKER  # noqa: PLC0415  it loads numba

    names = sorted({name for file in read_snapshot(table).files() for name in file.bounds.brokers or ()})
    stated = config.broker.name
    if stated in names or not names:
        return stated
    if stated == DEFAULT_BROKER and len(names) == 1:
        return str(names[0])
    raise OptionError(
        f"the store is of broker {stated}, by its settings, and the table has rows of {', '.join(names)}",
        advice="give --broker, or the store's --broker-conf",
    )


#: What a name may be the name of: the parameters of questions, and options of commands.
BROKER, TOPIC, GROUP, QUEUE = "broker", "topic", "group", "queue_id"
_WORDS: Final = {BROKER: "broker", TOPIC: "topic", GROUP: "consumer group"}
# So few names are all told.
_TOLD_MAX: Final = 8
# Queues that are listed one by one.
_LISTED_MAX: Final = 16


@dataclass
class KnownNames:
    """Names by what they are names of, and where they were looked for.

    Attributes
    ----------
    names
        Brokers, topics and groups.
    queues
        The queues of a topic.
    places
        What was read, in words.
    """

    names: dict[str, set[str]] = field(default_factory=lambda: {BROKER: set(), TOPIC: set(), GROUP: set()})
    queues: dict[str, set[int]] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)

    def add_topic(self, topic: str, queue_id: int | None = None) -> None:
        """Note a topic, its queue, and the group of which it is the retry or dead letter topic."""
        self.names[TOPIC].add(topic)
        if queue_id is not None:
            self.queues.setdefault(topic, set()).add(queue_id)
        if group := group_of(topic):
            self.names[GROUP].add(group)

    def check(self, given: Mapping[str, str | int | None], advice: str | None = None) -> None:
        """Check the names of an answer that is empty, as `given` by `BROKER`, `TOPIC`, `GROUP`, `QUEUE`.

        `advice` is what may help where no known name looks like the one that was given.

        Raises
        ------
        UnknownNameError
            One of them is unknown.
        """
        for what, known in self.names.items():
            name = given.get(what)
            if isinstance(name, str) and name not in known and (known or what == GROUP):
                all_of_few = (
                    f"known are {', '.join(map(shown, sorted(known)))}" if 0 < len(known) <= _TOLD_MAX else None
                )
                words = f"no {_WORDS[what]} is called {shown(name)}"
                raise self._unknown(words, nearest(name, known), advice or all_of_few)
        topic, queue_id = given.get(TOPIC), given.get(QUEUE)
        known_here = self.queues.get(topic, set()) if isinstance(topic, str) else set()
        if isinstance(queue_id, int) and known_here and queue_id not in known_here:
            raise self._unknown(
                f"the topic {shown(str(topic))} has no queue {queue_id}, but {_listed(known_here)}", (), None
            )

    def _unknown(self, what: str, found: Sequence[str], advice: str | None) -> UnknownNameError:
        words = f"nothing found: {what} in {' and '.join(self.places)}"
        return UnknownNameError(words, nearest=found, advice=None if found else advice)


def _listed(queues: set[int]) -> str:
    first, last = min(queues), max(queues)
    if len(queues) > 1 and len(queues) == last - first + 1:
        return f"{first} to {last}"
    return ", ".join(map(str, sorted(queues)[:_LISTED_MAX])) + (", ..." if len(queues) > _LISTED_MAX else "")


def known_names(
    table: TableLocation | None = None,
    config: PipelineConfig | None = None,
    *,
    at: int | datetime | None = None,
    output: Path | None = None,
) -> KnownNames:
    """What a table, a broker's store, and the queues of an output name; what cannot be read names nothing.

    `at` is the table's version, or a time at which it was the newest.
    """
    known = KnownNames()
    if table is not None:
        _add_table(known, table, at)
    if config is not None:
        _add_store(known, config, output)
    return known


def _add_table(known: KnownNames, table: TableLocation, at: int | datetime | None) -> None:
    with suppress(OutputError, OptionError), table_statements(table, at=at) as statements:
        here = [name for name in ("origin_topic", "consumer_group") if name in statements.version.column_names]
        columns = ", ".join(["broker", "topic", "queue_id", *here])
        rows = statements.rows(f"SELECT DISTINCT {columns} FROM messages")  # noqa: S608  names of columns, not values
        for broker, topic, queue_id, *more in rows:
            named = dict(zip(here, more, strict=True))
            if broker is not None:
                known.names[BROKER].add(broker)
            if topic is not None:
                known.add_topic(topic, queue_id)
            if named.get("origin_topic") is not None:
                known.add_topic(named["origin_topic"])
            if named.get("consumer_group") is not None:
                known.names[GROUP].add(named["consumer_group"])
        known.places.append("the table")


def add_consumption(known: KnownNames, table: TableLocation) -> None:
    """Add the brokers, topics and groups of the ledger of consumption beside `table`; a missing one names nothing."""
    with suppress(OutputError, OptionError), table_statements(consumption_table_path(table)) as statements:
        for broker, topic, group in statements.rows("SELECT DISTINCT broker, topic, consumer_group FROM messages"):
            known.names[BROKER].add(broker)
            known.add_topic(topic)
            known.names[GROUP].add(group)
        known.places.append("the ledger of consumption")


def _add_store(known: KnownNames, config: PipelineConfig, output: Path | None) -> None:
    """Add what each file and directory of a store names; a missing one names nothing."""
    for group, topic, queue_id, _ in _rows(
        partial(consumer_offsets, config.store, enable_lmq=config.broker.enable_lmq)
    ):
        known.names[GROUP].add(group)
        known.add_topic(topic, queue_id)
    for topic, read_queues, write_queues, _ in _rows(partial(topic_configs, config.store)):
        known.add_topic(topic)
        known.queues.setdefault(topic, set()).update(range(min(max(read_queues, write_queues), 1 << 16)))
    known.names[GROUP].update(group for (group,) in _rows(partial(subscription_groups, config.store)))
    for root in dict.fromkeys([config.store, output or config.store]):
        for topic, queue_id, _, _ in _rows(partial(consume_queues, root)):
            known.add_topic(topic, queue_id)
    known.places.append(f"{config.store}")


_Row = TypeVar("_Row")


def _rows(read: Callable[[], Iterator[_Row]]) -> Iterator[_Row]:
    with suppress(StoreError):
        yield from read()


def check_offsets(offsets: pa.Table, given: Mapping[str, str | int | None]) -> None:
    """Check that a group of an empty answer has offsets: without any, nothing says what it has consumed.

    Raises
    ------
    UnknownNameError
        `offsets`, the relation ``consumer_offsets``, has none of the group, or none of it for the topic.
    """
    group, topic = given.get(GROUP), given.get(TOPIC)
    of_group = sorted({row["topic"] for row in offsets.to_pylist() if row["consumer_group"] == group})
    if group is None or (of_group if topic is None else topic in of_group):
        return
    where = "" if topic is None else f" for the topic {shown(str(topic))}"
    raise UnknownNameError(
        f"nothing found: the consumer group {shown(str(group))} has no offset{where}, so that what it has consumed is "
        "not known",
        advice=f"it has offsets for {', '.join(map(shown, of_group[:_LISTED_MAX]))}" if of_group else None,
        nearest=[] if topic is None else nearest(str(topic), of_group),
    )
