"""The broker's settings beyond sizes: its version, multi dispatch, ConsumeQueueExt, and the topics that it knows.

A broker keeps its topics in ``config/topics.json``; with ``configManagerVersion=v2`` in the RocksDB database
``config/rdb`` (``TopicConfigManagerV2``), and with ``storeType=defaultRocksDB`` in ``config/topics``
(``RocksDBTopicConfigManager``). Some of them have a BatchConsumeQueue (5.x). A queue of the wrong kind keeps a broker
from starting, so a kind is never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.files.config_manager import backup_of, is_rocksdb, load_config_file, read_rocksdb
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.filter.consumer_filter import BloomFilter, load_consumer_filters
from reput.sinks.queue.batch_consume_queue import BATCH_KIND
from reput.source import releases
from reput.source.errors import OptionError, StoreError
from reput.source.log.store_layout import MORE_IN_ROCKSDB, rocksdb_queues
from reput.source.options import shown
from reput.source.releases import V5, Version, version_of
from reput.streaming.config.settings import AUTO, CONFIG_MANAGER_V1, CONFIG_MANAGER_V2, Settings

CONFIG: Final = "config"
TOPICS: Final = "topics.json"
_RDB: Final = "rdb"
_ROCKSDB_TOPICS: Final = "topics"
# table prefix, table id, record prefix; then come the length of a topic and the topic
_KEY_OF_TOPIC: Final = b"\x01\x00\x03\x02"
_TABLE_OF_TOPICS: Final = _KEY_OF_TOPIC[:3]
_LENGTH_BYTES: Final = 2
_LOG_SUFFIX, _INFO_LOG = ".log", "LOG"
# A topic and its version are written together; an earlier read may have ended between them, so go back this far.
_WRITTEN_AT_ONCE: Final = 4096
_JSON: Final = b"\x01"
_QUEUE_TYPE: Final = "queue.type"
_BATCH_CQ: Final = "BatchCQ"
_QUEUE_TYPES: Final = ("SimpleCQ", _BATCH_CQ, "RocksDBCQ")
_ADVICE: Final = "restore it, or its .bak"
_STATE_IT: Final = (
    "give the --broker-conf with which the broker runs, or --option configManagerVersion=v1 or v2, or move away what "
    "the broker does not read"
)


@dataclass(frozen=True)
class Topics:
    """Topics as UTF-8: all known ones, and those with a BatchConsumeQueue; `path` is where they were read."""

    path: Path
    known: frozenset[bytes] = frozenset()
    batch: frozenset[bytes] = frozenset()


def read_topics(settings: Settings, store: Path) -> Topics:
    """Read the topics of `store` as its broker would.

    Raises
    ------
    OptionError
        The topics are where the broker does not look, by the settings; or they are in several places that differ, and
        the settings do not say which of them the broker reads.
    StoreError
        They cannot be read, or there is a BatchConsumeQueue of a topic that is not among them.
    """
    config, stated = store / CONFIG, settings.broker.config_manager_version
    json_path = config / TOPICS
    has_json = json_path.exists() or backup_of(json_path).exists()
    readers: list[tuple[bool, str, Path, Callable[[Path], Topics]]] = [
        (has_json, CONFIG_MANAGER_V1, json_path, _of_json),
        (is_rocksdb(config / _ROCKSDB_TOPICS), CONFIG_MANAGER_V1, config / _ROCKSDB_TOPICS, _of_rocksdb_v1),
        (is_rocksdb(config / _RDB), CONFIG_MANAGER_V2, config / _RDB, _of_rocksdb_v2),
    ]
    present = [(version, path, reader) for is_there, version, path, reader in readers if is_there]
    wanted = [reader(path) for version, path, reader in present if stated in (AUTO, version)]
    if present and not wanted:
        raise OptionError(
            f"the topics of {store} are in {present[0][1]}, and configManagerVersion={stated} does not read that: the "
            "kinds of the queues are not known",
            advice=_STATE_IT,
            file=present[0][1],
        )
    for other in wanted[1:]:
        if other.batch != wanted[0].batch:
            raise OptionError(
                f"{wanted[0].path} and {other.path} do not name the same topics with a BatchConsumeQueue",
                advice=_STATE_IT,
                file=other.path,
            )
    topics = Topics(json_path)
    if wanted:
        topics = Topics(wanted[0].path, frozenset().union(*(each.known for each in wanted)), wanted[0].batch)
    _check_batch_queues(topics, store)
    return topics


def _check_batch_queues(topics: Topics, store: Path) -> None:
    """Raise StoreError for a BatchConsumeQueue of the store whose topic is not known."""
    for topic, _ in BATCH_KIND.queues(store):
        if topic not in topics.known:
            raise StoreError(
                f"{store / BATCH_KIND.top} has queues of the topic {shown(topic.decode(errors='replace'))}, which "
                f"{topics.path} does not name: the kind of its queues is not known",
                advice=f"restore {topics.path} with that topic; if the topic was deleted, remove its folder below "
                f"{BATCH_KIND.top}/",
                file=topics.path,
            )


def _of_json(path: Path) -> Topics:
    found = load_config_file(path, lambda value: _topics(path, _table(value)), "a broker's topics", advice=_ADVICE)
    return Topics(path) if found is None else found


def _table(value: Any) -> Iterable[tuple[str, Any]]:
    table = value.get("topicConfigTable", {})
    if not isinstance(table, dict):
        raise TypeError("topicConfigTable is not an object")
    return table.items()


def _of_rocksdb_v1(directory: Path) -> Topics:
    found = read_rocksdb(directory, b"")
    return _of_values(directory, ((topic, value) for topic, value in found.items()))


def _of_rocksdb_v2(directory: Path) -> Topics:
    # A broker skips values that are not JSON.
    found = (
        (key[len(_KEY_OF_TOPIC) + _LENGTH_BYTES :], value[len(_JSON) :])
        for key, value in read_rocksdb(directory, _KEY_OF_TOPIC).items()
        if value.startswith(_JSON)
    )
    return _of_values(directory, found)


def _of_values(directory: Path, values: Iterable[tuple[bytes, bytes]]) -> Topics:
    def decoded() -> Iterator[tuple[str, Any]]:
        for topic, value in values:
            yield topic.decode(errors="replace"), json.loads(value)

    try:
        return _topics(directory, decoded())
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{directory} does not hold a broker's topics ({str(error)[:200]})", advice=_ADVICE, file=directory
        ) from error


def _topics(path: Path, table: Iterable[tuple[str, Any]]) -> Topics:
    known, batch = set(), set()
    for topic, config in table:
        name = topic.encode(errors="replace")
        known.add(name)
        if _queue_type(path, topic, config) == _BATCH_CQ:
            batch.add(name)
    return Topics(path, frozenset(known), frozenset(batch))


def _queue_type(path: Path, topic: str, config: Any) -> str:
    """Return the type of a topic's queues (``QueueTypeUtils#getCQType``); a broker ends with an error at any other."""
    attributes = config.get("attributes")
    if attributes is not None and not isinstance(attributes, Mapping):
        raise TypeError(f"the attributes of {shown(topic)} are not an object")
    found = (attributes or {}).get(_QUEUE_TYPE, _QUEUE_TYPES[0])
    if found not in _QUEUE_TYPES:
        raise OptionError(
            f"{path}: {_QUEUE_TYPE} of the topic {shown(topic)} is {shown(str(found))}, which no broker knows",
            advice=f"set it to one of {', '.join(_QUEUE_TYPES)}",
            file=path,
        )
    return str(found)


class TopicsWatch:
    """Detects when the topics of a store may have changed, cheaply enough to run before each micro-batch.

    A broker stores a topic before it takes a message of it. A caller that finds the log's end and then asks knows the
    kinds of the queues of all records before that end.
    """

    def __init__(self, store: Path) -> None:
        self._config = store / CONFIG
        self._seen: object = None
        # The bytes read of each write-ahead log of config/rdb.
        self._logs: dict[str, int] = {}

    def has_changed(self) -> bool:
        """Whether the topics may have changed since the last call; true for the first call.

        Raises
        ------
        StoreError
            The files cannot be examined.
        """
        try:
            json_path = self._config / TOPICS
            files = [json_path, backup_of(json_path), *_listed(self._config / _ROCKSDB_TOPICS)]
            found = [_stamp(file) for file in files]
            rdb = _listed(self._config / _RDB)
            is_written = self._has_topics(rdb)
        except OSError as error:
            raise StoreError(f"cannot look at {error.filename}: {error.strerror}", file=self._config) from error
        seen = found, [file.name for file in rdb if file.suffix != _LOG_SUFFIX]
        changed, self._seen = is_written or seen != self._seen, seen
        return changed

    def _has_topics(self, rdb: list[Path]) -> bool:
        """Whether the write-ahead logs of ``config/rdb`` got a topic since the last call.

        Consumers' offsets are written there all the time. A topic comes with the version of the table of topics; a
        boundary of RocksDB's blocks can cut only one of the two keys.
        """
        logs, found = {}, False
        for file in rdb:
            if file.suffix == _LOG_SUFFIX:
                with suppress(FileNotFoundError), file.open("rb") as opened:
                    opened.seek(max(0, self._logs.get(file.name, 0) - _WRITTEN_AT_ONCE))
                    data = opened.read()
                    logs[file.name] = opened.tell()
                    is_new = self._logs.get(file.name) != logs[file.name]
                    found |= is_new and _TABLE_OF_TOPICS in data
        self._logs = logs
        return found


def _listed(directory: Path) -> list[Path]:
    """Return the database's files by name; none without the directory."""
    try:
        return sorted(file for file in directory.iterdir() if file.name.partition(".")[0] != _INFO_LOG)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _stamp(file: Path) -> object:
    try:
        status = file.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


#: The settings that switch index files off.
NO_INDEX_FILES = "messageIndexEnable=false, or indexFileWriteEnable=false from 5.4.0 on"


class Sign(NamedTuple):
    """A file or directory that a broker leaves in any store and that shows the version.

    Attributes
    ----------
    name
        Its name in the store.
    shows
        The version that is assumed if it exists and no sign of a later version does.
    made_since
        The first version that leaves it.
    is_directory
        Whether it is a directory, not a file.
    """

    name: str
    shows: Version
    made_since: Version
    is_directory: bool

    def leave(self, files: DurableFiles) -> None:
        """Create it in a new store."""
        if self.is_directory:
            files.make_directory(self.name)
        else:
            files.create(self.name, size=0)


#: The signs by which a store shows its version if no option states it, the latest version first.
SIGNS: Final = (
    Sign(MORE_IN_ROCKSDB, V5, releases.KEEPS_MORE_IN_ROCKSDB.since, is_directory=True),
    Sign("abort.bak", (5, 3, 3), releases.WRITES_INTO_ABORT.since, is_directory=False),
)
# The differences between releases in the entries and keys of a record.
_CHANGES = (
    releases.FLUSHES_INDEX_AT_STOP,
    releases.RETRIES_STAY_ALONE,
    releases.TIMERS_STAY_ALONE,
    releases.SQL_CONTAINS,
    releases.SYSTEM_TOPICS_STAY_ALONE,
    releases.INDEXES_TAGS,
)

_CONSUMER_FILTER = "consumerFilter.json"


def broker_version(text: str, store: Path) -> Version:
    """Return the version that the option `text` states, or that the store shows."""
    stated = version_of(text)
    if stated is not None:
        return stated
    return next((sign.shows for sign in SIGNS if (store / sign.name).exists()), releases.FIRST)


def release_of(version: Version) -> int:
    """Return a number that is equal for all versions that treat every record alike, and higher for later ones."""
    return sum(change.holds(version) for change in _CHANGES)


def logic_needs(settings: Settings, store: Path) -> LogicNeeds:
    """Return which entries and keys the broker that wrote `store` makes of each record.

    Raises
    ------
    OptionError, StoreError
        A file of the store's ``config/`` that is needed cannot be read.
    """
    broker = settings.broker
    version = broker_version(broker.version, store)
    multi_dispatch = None
    if broker.enable_multi_dispatch and not light_queues_in_rocksdb(settings, version):
        multi_dispatch = MultiDispatch(broker.enable_lmq, version)
    filters = None
    if settings.queue.enable_consume_queue_ext and broker.enable_calc_filter_bit_map:
        bloom = BloomFilter(broker.max_error_rate_of_bloom_filter, broker.expect_consumer_num_use_filter)
        path = store / CONFIG / _CONSUMER_FILTER
        filters = load_consumer_filters(path, bloom, contains=releases.SQL_CONTAINS.holds(version))
    return LogicNeeds(
        consume_queue=settings.queue.consume_queue_enable,
        index=settings.index.message_index_enable,
        index_tags=releases.INDEXES_TAGS.holds(version),
        multi_dispatch=multi_dispatch,
        ext=settings.queue.enable_consume_queue_ext,
        filters=filters,
        batch_topics=batch_topics(settings, store),
    )


def rocksdb_needs(settings: Settings, store: Path) -> LogicNeeds:
    """Return the same for queues in RocksDB; the entries get their store times."""
    light = MultiDispatch(enable_lmq=True, version=releases.LAST, in_rocksdb=True)
    version = broker_version(settings.broker.version, store)
    # Queues in RocksDB prove a later release, even if the store does not show which.
    keeps_rocksdb, keeps_light = releases.KEEPS_QUEUES_IN_ROCKSDB, releases.KEEPS_LIGHT_QUEUES_IN_ROCKSDB
    lacks_light = keeps_rocksdb.holds(version) and not keeps_light.holds(version)
    has_light = settings.broker.enable_lmq and not lacks_light
    return LogicNeeds(index=False, ext=True, multi_dispatch=light if has_light else None)


def queues_in_both(settings: Settings, version: Version) -> bool:
    """Whether a broker keeps its queues in RocksDB and in files (``CombineConsumeQueueStore``)."""
    return releases.KEEPS_QUEUES_IN_BOTH.holds(version) and settings.broker.rocksdb_cq_double_write_enable


def light_queues_in_rocksdb(settings: Settings, version: Version) -> bool:
    """Whether RocksDB alone has the further queues of a message, and no file does (``MultiDispatchUtils``)."""
    return queues_in_both(settings, version) and settings.broker.combine_cq_use_rocksdb_for_lmq


def unseen_queues(settings: Settings, store: Path) -> str:
    """Return, in a sentence, which queues of a store reput cannot see, and why; empty if all are files."""
    version = broker_version(settings.broker.version, store)
    if light_queues_in_rocksdb(settings, version):
        return (
            "light queues (%LMQ%...) are in RocksDB alone (combineCQUseRocksdbForLmq), and are not read; of "
            "the other queues, the files are read (rocksdbCQDoubleWriteEnable)"
        )
    if queues_in_both(settings, version):
        return "the queues are also in RocksDB (rocksdbCQDoubleWriteEnable): only their files are read"
    if (database := rocksdb_queues(store)) is not None:
        return (
            f"{database} also has a RocksDB database, which was not read; broker.conf (--broker-conf) says "
            "where the queues are"
        )
    return ""


def count_of_empty_index(settings: Settings, store: Path) -> int:
    """Return the count in the header of an index file without keys, after a clean stop of the broker."""
    return int(releases.FLUSHES_INDEX_AT_STOP.holds(broker_version(settings.broker.version, store)))


def keeps_queued_offset(settings: Settings, store: Path) -> bool:
    """Whether the store's checkpoint says how far the queues are on disk (``logicsPhysicalOffset``)."""
    return releases.KEEPS_QUEUED_OFFSET.holds(broker_version(settings.broker.version, store))


def batch_topics(settings: Settings, store: Path) -> frozenset[bytes]:
    """Return the topics (UTF-8) with a BatchConsumeQueue; none without queues. Errors as in ``read_topics``."""
    return read_topics(settings, store).batch if settings.queue.consume_queue_enable else frozenset()
