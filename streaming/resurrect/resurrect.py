"""`reput resurrect`: files of a broker's ``config/`` that were lost, made again from what is still true.

Everything that a file or its ``.bak`` still has stays. Topics and their numbers of queues come from the queues on disk
and from the message table, consumer groups from their topics for retries and dead letters, and from the offsets.
Offsets of groups come from the ledger of consumption, and those of delayed messages from the copies that were
delivered. Each value has its evidence, and no offset is ahead of it: a broker that starts with these files repeats
messages but skips none.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from reput.sinks.files.config_manager import backup_of, consumer_of, is_rocksdb, json_of, number_of
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE
from reput.sinks.formats.timer import TIMER_CHECKPOINT
from reput.sinks.table.delta_table import is_table
from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.source import releases
from reput.source.errors import OptionError, SinkError, StoreError
from reput.source.log.log_reader import Absence, LogReader
from reput.source.log.store_layout import COMMIT_LOG
from reput.source.options import shown
from reput.source.printable import counted
from reput.source.record.damage import QUARANTINE
from reput.source.record.message_origin import DLQ, NORMAL, RETRY, TRACE, group_of, kind_of
from reput.source.record.message_properties import PROPERTY_REAL_TOPIC, SCHEDULE_TOPIC
from reput.source.times import milliseconds_of, time_text, utc_text
from reput.streaming.ask.offsets_at import OffsetAt, offsets_at
from reput.streaming.ask.store_relations import consume_queues
from reput.streaming.config.broker import broker_version
from reput.streaming.config.broker_conf import BrokerConf
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.doctor.start_settings import WaitingSettings
from reput.streaming.doctor.waiting import TIMER_TOPIC, TimerCheckpoint, WaitingMessages
from reput.streaming.query.store_lookup import StoreLookup
from reput.streaming.sql.duckdb_query import duckdb_query
from reput.streaming.sql.output import ListedResult

TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
OFFSETS: Final = "consumerOffset.json"
DELAYS: Final = "delayOffset.json"
#: The JSON files that can be made again, in the order in which they are shown.
FILES: Final = (TOPICS, GROUPS, OFFSETS, DELAYS)
_TABLE_OF: Final = {
    TOPICS: "topicConfigTable",
    GROUPS: "subscriptionGroupTable",
    OFFSETS: "offsetTable",
    DELAYS: "offsetTable",
}
_COLUMNS: Final = ("file", "name", "value", "evidence", "now")
# Kinds of topics that a broker does not make by itself at its start.
_KINDS: Final = frozenset({NORMAL, RETRY, DLQ, TRACE})
_LMQ_PREFIX: Final = "%LMQ%"
_SYSTEM_GROUPS: Final = "CID_RMQ_SYS_"
_READ_AND_WRITE: Final = 6
_BATCH: Final = {"queue.type": "BatchCQ"}
_CLOCK: Final = "dataVersion"
_NO_TIMERS: Final = "the log has no timer message, or the broker sends none, or keeps them in RocksDB"
_NUMBER_AS_KEY: Final = re.compile(r'(?<=\t)"(\d+)":')


class Value(NamedTuple):
    """One value of a file: its name, what it is now and was before, and the evidence. A lost one has no `now`."""

    file: str
    name: str
    value: str
    evidence: str
    now: str | None


@dataclass
class Resurrection:
    """The files that were made, as JSON values by name, and their values; `remarks` are about values without evidence.

    `timers` is the checkpoint of the timers, if it was made.
    """

    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    timers: TimerCheckpoint | None = None
    values: list[Value] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def rows(self) -> ListedResult:
        """Return a row for each value."""
        return ListedResult(_COLUMNS, [*self.values])


@dataclass(frozen=True)
class _Kept:
    """The table of a file that could be read, and which file that was: itself, its ``.bak``, or none.

    `others` are its other contents, such as forbidden groups. `is_damaged` means that the file exists but is not whole.
    """

    table: dict[str, Any]
    source: str
    is_whole: bool
    modified_ms: int = -1
    others: dict[str, Any] = field(default_factory=dict)
    is_damaged: bool = False


def resurrected(config: PipelineConfig, table: TableLocation | None = None) -> Resurrection:
    """Make the four files of a store again; nothing is written.

    Raises
    ------
    OptionError
        The broker keeps its configuration in RocksDB.
    ReputError
        Queues, table or ledger cannot be read.
    """
    directory = config.store / "config"
    if any(is_rocksdb(path) for path in (directory / "rdb", directory / "topics")):
        raise OptionError(
            f"{config.store}: this broker keeps its configuration in RocksDB below {directory}",
            advice="files that it does not read would not help; restore the folder from a backup",
        )
    return _Resurrecting(config, table).run()


def check_result(directory: Path) -> None:
    """Raise OptionError unless the directory for the files is new or empty, and outside any store."""
    place = directory.resolve()
    if any((each / COMMIT_LOG).is_dir() for each in (place, *place.parents)):
        raise OptionError(
            f"--result {directory} is in a broker's store, where nothing is written",
            advice="give another place, and copy the files to config/ while the broker is stopped",
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise OptionError(f"--result {directory} is not an empty directory", advice="give a new one")


def write(found: Resurrection, directory: Path) -> None:
    """Write the files; raise OutputError if the directory cannot be written."""
    with closing(DurableFiles(directory)) as files:
        for name, document in found.documents.items():
            files.replace(name, data=text_of(document).encode())
        if found.timers is not None:
            files.replace(TIMER_CHECKPOINT, data=found.timers.encode())


def text_of(document: Mapping[str, Any]) -> str:
    """Return a file's text as a broker reads it."""
    text = json.dumps(document, indent="\t", ensure_ascii=False, separators=(",", ":"))
    return _NUMBER_AS_KEY.sub(r"\1:", text)  # as fastjson writes the numbers of queues and levels


class _Resurrecting:
    def __init__(self, config: PipelineConfig, table: TableLocation | None) -> None:
        self._config, self._table = config, table
        version = broker_version(config.broker.version, config.store)
        self._has_attributes = releases.KEEPS_ATTRIBUTES.holds(version)
        self._lookup = StoreLookup(config)
        self._found = Resurrection()
        self._kept = {name: self._load(name) for name in FILES}
        self._on_disk = {(topic, queue_id) for topic, queue_id, *_ in consume_queues(config.store)}
        self._ends: dict[tuple[str, int], int] = {}
        self._queues = self._queues_by_topic()

    def run(self) -> Resurrection:
        self._topics()
        offsets = self._offsets()
        self._groups({consumer[0] for name in offsets if (consumer := consumer_of(name)) is not None})
        self._delays()
        self._timers()
        if not self._found.values:
            self._found.remarks.append("nothing is lost: the files of config/ have all that the store tells")
        self._found.values.sort(key=lambda value: (*FILES, TIMER_CHECKPOINT).index(value.file))
        self._found.documents = {name: self._found.documents[name] for name in FILES if name in self._found.documents}
        return self._found

    # ------------------------------------------------------------------------------------------------------------------
    # The values that files still have.

    def _load(self, name: str) -> _Kept:
        path = self._config.store / "config" / name
        damages = []
        for file in (path, backup_of(path)):
            try:
                data = file.read_bytes()
                value = json_of(data) if data.strip(b"\0 \r\n\t") else None
                table = None if value is None else value.pop(_TABLE_OF[name])
                if value is not None and isinstance(table, dict):
                    return _Kept(table, file.name, file == path, int(file.stat().st_mtime * 1000), value)
                damages.append(f"{file.name} is {'empty' if table is None else 'none that a broker wrote'}")
            except FileNotFoundError:
                damages.append(f"{file.name} is missing")
            except OSError as error:
                raise StoreError(f"cannot read {file}: {error.strerror}", file=file) from error
            except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
                damages.append(f"{file.name} is damaged")
        self._found.remarks.append(" and ".join(damages))
        return _Kept({}, "", is_whole=False, is_damaged=any(not each.endswith("is missing") for each in damages))

    def _add(self, file: str, name: str, value: object, evidence: str, now: object = None) -> None:
        is_new = not self._kept[file].is_whole
        self._found.values.append(Value(file, name, str(value), evidence, None if is_new or now is None else str(now)))

    def _document(self, name: str, table: dict[str, Any]) -> None:
        if not table and not self._kept[name].is_whole:
            # A broker does not start with a damaged file, but does with none.
            made = "made empty" if self._kept[name].is_damaged else "not made"
            self._found.remarks.append(f"nothing tells what {name} had: it is {made}")
            if not self._kept[name].is_damaged:
                return
        version = {"counter": 1, "timestamp": time.time_ns() // 1_000_000}
        clock = {_CLOCK: {**version, "stateVersion": 0} if self._has_attributes else version}
        has_clock = self._has_attributes or name in (TOPICS, GROUPS)
        self._found.documents[name] = {
            **self._kept[name].others,
            **(clock if has_clock else {}),
            _TABLE_OF[name]: table,
        }

    # ------------------------------------------------------------------------------------------------------------------
    # Topics and groups.

    def _queues_by_topic(self) -> dict[str, tuple[int, str]]:
        """Return the number of queues of each topic that has any, and the evidence."""
        found: dict[str, tuple[int, str]] = {}
        for topic, queue_id in sorted(self._on_disk):
            if queue_id >= found.get(topic, (0, ""))[0]:
                found[topic] = queue_id + 1, f"queue {queue_id} on disk"
        if self._table is not None:
            query = "SELECT broker, topic, max(queue_id) FROM messages GROUP BY broker, topic ORDER BY broker, topic"
            with duckdb_query(self._table, query) as result:
                rows = [*result.rows()]
            self._check_broker({str(broker) for broker, *_ in rows})
            for broker, topic, queue_id in rows:
                if (
                    broker == self._config.broker.name
                    and topic is not None
                    and queue_id >= found.get(topic, (0, ""))[0]
                ):
                    found[topic] = queue_id + 1, f"queue {queue_id} in the table"
        return found

    def _check_broker(self, brokers: set[str]) -> None:
        name = self._config.broker.name
        if brokers and name not in brokers:
            raise OptionError(
                f"the table has messages of {', '.join(map(shown, sorted(brokers)))}, and none of {shown(name)}",
                advice="give the store's --broker-conf, or -o broker=NAME",
            )

    def _topics(self) -> None:
        kept, batch = self._kept[TOPICS], self._batch_topics()
        table = {name: dict(value) for name, value in kept.table.items() if isinstance(value, dict)}
        for name, value in table.items():
            queues, seen = self._queues.get(name, (0, ""))
            known = min(value.get("readQueueNums", 0), value.get("writeQueueNums", 0))
            if queues > known and kind_of(name) in _KINDS:
                value["readQueueNums"] = max(queues, value.get("readQueueNums", 0))
                value["writeQueueNums"] = max(queues, value.get("writeQueueNums", 0))
                self._add(TOPICS, name, _topic_text(value), f"{kept.source}; {seen}", counted(known, "queue"))
            elif not kept.is_whole:
                self._add(TOPICS, name, _topic_text(value), kept.source)
        for name, (queues, seen) in sorted(self._queues.items()):
            if name not in table and kind_of(name) in _KINDS and not name.startswith(_LMQ_PREFIX):
                table[name] = self._topic(name, queues, is_batch=name in batch)
                guessed = "" if kind_of(name) in (RETRY, DLQ) else "; it may have had more queues; permission guessed"
                self._add(TOPICS, name, _topic_text(table[name]), f"{seen}{guessed}")
        self._document(TOPICS, table)

    def _batch_topics(self) -> set[str]:
        directory = self._config.store / BATCH_CONSUME_QUEUE
        return {each.name for each in directory.iterdir()} if directory.is_dir() else set()

    def _topic(self, name: str, queues: int, *, is_batch: bool) -> dict[str, Any]:
        attributes = {"attributes": dict(_BATCH) if is_batch else {}} if self._has_attributes else {}
        return {
            **attributes,
            "order": False,
            "perm": _READ_AND_WRITE,
            "readQueueNums": queues,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": queues,
        }

    def _groups(self, with_offsets: set[str]) -> None:
        kept = self._kept[GROUPS]
        table = dict(kept.table)
        if not kept.is_whole:
            for name in table:
                self._add(GROUPS, name, "as it was", kept.source)
        seen = dict.fromkeys(sorted(with_offsets), "its offsets")
        for topic in sorted(self._queues):
            if kind_of(topic) in (RETRY, DLQ) and (group := group_of(topic)) is not None:
                seen.setdefault(group, f"the topic {topic}")
        for name, evidence in seen.items():
            if name not in table and not name.startswith((_SYSTEM_GROUPS, _LMQ_PREFIX)):
                queues = self._queues.get(f"%RETRY%{name}", (1, ""))[0]
                table[name] = self._group(name, queues)
                self._add(GROUPS, name, "as a broker makes it", f"{evidence}; its settings are guessed")
        self._document(GROUPS, table)

    def _group(self, name: str, retry_queues: int) -> dict[str, Any]:
        more = {
            "attributes": {},
            "consumeMessageOrderly": False,
            "consumeTimeoutMinute": 15,
            "groupRetryPolicy": {"type": "CUSTOMIZED"},
            "groupSysFlag": 0,
        }
        return {
            **(more if self._has_attributes else {}),
            "brokerId": 0,
            "consumeBroadcastEnable": True,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "groupName": name,
            "notifyConsumerIdsChangedEnable": True,
            "retryMaxTimes": 16,
            "retryQueueNums": retry_queues,
            "whichBrokerWhenConsumeSlowly": 1,
        }

    # ------------------------------------------------------------------------------------------------------------------
    # Offsets of consumer groups.

    def _offsets(self) -> dict[str, dict[int, int]]:
        kept, ledger = self._kept[OFFSETS], self._ledger()
        known = {name: _numbers(offsets) for name, offsets in kept.table.items()}
        ahead = [
            name
            for name, offsets in known.items()
            for queue, offset in offsets.items()
            if offset > self._end(name, queue)
        ]
        if ahead:
            self._kept[OFFSETS] = replace(kept, others={})  # these may also lead beyond the ends
            self._found.remarks.append(
                f"{kept.source} has {counted(len(ahead), 'offset')} beyond the end of the queue, the first of "
                f"{shown(ahead[0])}: the log was cut, or the file is another broker's"
            )
        latest_ms = max((milliseconds_of(each.reached_by) for each in ledger.values()), default=-1)
        prefers_ledger = bool(ahead) if kept.is_whole else latest_ms >= kept.modified_ms
        found: dict[str, dict[int, int]] = {}
        pairs = {(name, queue) for name, offsets in known.items() for queue in offsets} | ledger.keys()
        for name, queue in sorted(pairs):
            old, seen = known.get(name, {}).get(queue), ledger.get((name, queue))
            if seen is not None and (prefers_ledger or old is None):
                offset, evidence = seen.offset, f"the ledger, seen by {utc_text(seen.reached_by)}"
            else:
                assert old is not None
                offset, evidence = old, kept.source
            if offset > (end := self._end(name, queue)):
                offset, evidence = end, f"{evidence}: {offset}; the queue ends before"
            found.setdefault(name, {})[queue] = offset
            if not kept.is_whole or offset != old:
                self._add(OFFSETS, f"{name} {queue}", offset, evidence, old)
        self._document(
            OFFSETS, {name: {str(queue): offset for queue, offset in each.items()} for name, each in found.items()}
        )
        return found

    def _ledger(self) -> dict[tuple[str, int], OffsetAt]:
        """Return the groups' last seen offsets, by name in the file and queue; none without a ledger."""
        if self._table is None or not is_table(consumption_table_path(self._table)):
            self._found.remarks.append("no ledger of consumption tells where groups were (--table)")
            return {}
        found = offsets_at(self._table, time.time_ns() // 1_000_000, self._config.broker.name)
        return {(f"{each.topic}@{each.group}", each.queue_id): each for each in found}

    def _end(self, name: str, queue_id: int) -> int:
        """Return the end of a queue of a group; 0 for a queue that does not exist."""
        consumer = consumer_of(name)
        key = (consumer[1] if consumer is not None else "", queue_id)
        if key not in self._ends:
            self._ends[key] = 0
            if key in self._on_disk:
                with self._lookup.queue(*key) as queue:
                    self._ends[key] = queue.max_offset
        return self._ends[key]

    # ------------------------------------------------------------------------------------------------------------------
    # Offsets of delayed messages.

    def _delays(self) -> None:
        kept = self._kept[DELAYS]
        known = _numbers(kept.table)
        levels = {queue_id + 1 for topic, queue_id in self._on_disk if topic == SCHEDULE_TOPIC}
        table = {}
        for level in sorted(levels | known.keys()):
            offset, evidence = known.get(level, 0), kept.source
            first, delivered, end = self._delivered(level) if level in levels else (0, 0, 0)
            if not end and level not in known:
                continue
            if offset > end:
                offset, evidence = end, f"{kept.source}: {offset}; the queue ends before"
            if delivered > offset:
                offset, evidence = delivered, "the copy of the message before it was delivered"
            elif level not in known:
                offset, evidence = max(offset, first), "no copy of a message was delivered"
            table[str(level)] = offset
            if not kept.is_whole or offset != known.get(level):
                self._add(DELAYS, f"level {level}", offset, evidence, known.get(level))
        self._document(DELAYS, table)

    def _delivered(self, level: int) -> tuple[int, int, int]:
        """Return a level's first offset, the offset after its last delivered message (0: none), and its end.

        A broker delivers a level's messages in the order of their queue. The copy has the same unique key, and is found
        by the index.
        """
        now_ms = time.time_ns() // 1_000_000
        with self._lookup.queue(SCHEDULE_TOPIC, level - 1) as queue:
            first, end = queue.min_offset, queue.max_offset
            due = bisect_right(range(first, end), now_ms, key=lambda offset: queue.entry(offset).tags_code)
            try:
                for offset in range(first + due - 1, first - 1, -1):
                    if self._has_copy(queue.entry(offset).physical_offset):
                        return first, offset + 1, end
            except SinkError as error:  # there is no index
                self._found.remarks.append(f"what was delivered at level {level} is not known: {error}")
        return first, 0, end

    def _has_copy(self, physical_offset: int) -> bool:
        message = self._lookup.messages.find(physical_offset)
        if isinstance(message, Absence) or message.uniq_key is None:
            return False
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        copies = self._lookup.by_unique_key(topic, message.uniq_key).found if topic else ()
        return any(
            copy.message.physical_offset > physical_offset and copy.message.body_crc == message.body_crc
            for copy in copies
        )

    # ------------------------------------------------------------------------------------------------------------------
    # Timers of 5.x.

    def _timers(self) -> None:
        config, path = self._config, self._config.store / "config" / TIMER_CHECKPOINT
        topics = {topic for topic, _ in self._on_disk}
        if TIMER_TOPIC not in topics or (path.is_file() and path.read_bytes().strip(b"\0")):
            return
        version = broker_version(config.broker.version, config.store)
        settings = WaitingSettings.of(config, BrokerConf.read(config.broker_conf, version), version)
        log = LogReader(config.log_options(onDamage=QUARANTINE))
        queue = log.queue()
        waiting = WaitingMessages.of(queue.files, log.settled_end(queue.min_offset), topics)
        made = waiting.made_checkpoint(config.store, settings, time.time_ns() // 1_000_000)
        if made is None:
            self._found.remarks.append(f"{TIMER_CHECKPOINT} is lost, and not made: {_NO_TIMERS}")
            return
        self._found.timers = made
        waits = counted(made.waiting, "message waits", "messages wait")
        evidence = f"{waits}, by the wheel, and by the copies that were delivered"
        for name, value in (("read to", time_text(made.read_ms)), ("queue offset", made.queue_offset)):
            self._found.values.append(Value(TIMER_CHECKPOINT, name, str(value), evidence, None))


def _topic_text(topic: Mapping[str, Any]) -> str:
    return f"{counted(topic.get('writeQueueNums', 0), 'queue')}, perm {topic.get('perm')}"


def _numbers(table: object) -> dict[int, int]:
    """Return offsets by queue or level; none if a broker did not write them."""
    with suppress(ValueError, AttributeError):
        return {number_of(queue): number_of(offset) for queue, offset in table.items()}  # type: ignore[attr-defined]
    return {}
