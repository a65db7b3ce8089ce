"""The contents of a store's log, slow and obvious: records of both versions, plain or in DLedger entries.

It shares no code with the product: a real broker's answers are compared with this.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.model import DELAY_UNIT_MS, Fields, Settings, java_hash, java_string, parse_properties

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
DLEDGER_HEADER_BYTES = 48
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
QUEUED_TYPES = {0x0, 0x8}  # no transaction, COMMIT
ROLLBACK_TYPE = 0xC

QueueKey = tuple[str, int]
Unit = tuple[int, int, int]
"""Physical offset, size, tags code."""


@dataclass(frozen=True)
class Record:
    """One record of the log; `offset` is where its own bytes begin, behind a DLedger header if there is one."""

    offset: int
    size: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    topic: str
    properties: Mapping[str, str]
    has_body: bool

    @property
    def is_queued(self) -> bool:
        """Whether it gets an entry in a queue: PREPARED and ROLLBACK records do not."""
        return self.sys_flag & 0xC in QUEUED_TYPES

    @property
    def tags(self) -> str:
        """The tags as stored, empty without."""
        return self.properties.get("TAGS", "")

    @property
    def uniq_key(self) -> str | None:
        """The unique key of the client."""
        return self.properties.get("UNIQ_KEY")

    @property
    def keys(self) -> list[str]:
        """The application's keys."""
        return [key for key in self.properties.get("KEYS", "").split(" ") if key]

    @property
    def inner_batch(self) -> tuple[int, int] | None:
        """First queue offset and number of the messages in a 5.x inner batch."""
        if "INNER_BASE" in self.properties and "INNER_NUM" in self.properties:
            return int(self.properties["INNER_BASE"]), int(self.properties["INNER_NUM"])
        return None


def parse(offset: int, data: bytes) -> Record:
    """One record's bytes."""
    fields = Fields(data)
    magic = struct.unpack_from(">I", data, 4)[0]
    fields.take(12)
    queue_id, _, queue_offset, own_offset = fields.number(4), fields.take(4), fields.number(8), fields.number(8)
    assert own_offset == offset, f"the record at {offset} was written for {own_offset}"
    sys_flag, _ = fields.number(4), fields.take(8)
    fields.host(is_v6=bool(sys_flag & 0x10))
    store_timestamp = fields.number(8)
    fields.host(is_v6=bool(sys_flag & 0x20))
    fields.take(12)
    body_size = fields.number(4)
    fields.take(max(0, body_size))
    topic = java_string(fields.take(fields.number(2 if magic == MAGIC_V2 else 1)))
    properties = parse_properties(fields.take(max(0, fields.number(2))))
    assert fields.at == len(data), f"the record at {offset} has {len(data)} bytes, its parts {fields.at}"
    return Record(
        offset, len(data), queue_id, queue_offset, sys_flag, store_timestamp, topic, properties, body_size > 0
    )


def log_directory(store: Path, conf: Mapping[str, str]) -> Path:
    """Where the log's files are."""
    if conf.get("enableDLegerCommitLog") == "true":
        return Path(conf.get("storePathDLedgerCommitLog") or store / f"dledger-{conf['dLegerSelfId']}" / "data")
    return store / "commitlog"


def read_records(store: Path, conf: Mapping[str, str]) -> Iterator[Record]:
    """Every record of a store's log, up to its zeros."""
    dledger = conf.get("enableDLegerCommitLog") == "true"
    header = DLEDGER_HEADER_BYTES if dledger else 0
    for path in sorted(log_directory(store, conf).iterdir()):
        segment, at = path.read_bytes(), 0
        while at + header + 8 <= len(segment):
            size, magic = struct.unpack_from(">II", segment, at + header)
            if magic not in {MAGIC_V1, MAGIC_V2} or (dledger and segment[at : at + 4] == b"\xff" * 4):
                break
            start = at + header
            yield parse(int(path.name) + start, segment[start : start + size])
            at = start + size


@dataclass
class LogContents:
    """A store's log, and what the broker's answers have to be."""

    conf: Mapping[str, str]
    records: list[Record]
    units: dict[QueueKey, dict[int, Unit]] = field(default_factory=lambda: defaultdict(dict))
    """Entries of ordinary queues by queue offset."""
    batches: dict[QueueKey, dict[int, Record]] = field(default_factory=lambda: defaultdict(dict))
    """Inner batches of 5.x by the queue offset of their first message."""
    by_offset: dict[int, Record] = field(default_factory=dict)
    min_offset: int = 0
    """Where the log's first file begins."""

    @classmethod
    def load(cls, store: Path, conf: Mapping[str, str]) -> LogContents:
        """Read a store's log; `conf` is its broker.conf."""
        contents = cls(conf, list(read_records(store, conf)))
        contents.min_offset = int(min(path.name for path in log_directory(store, conf).iterdir()))
        for record in contents.records:
            contents._add(record)
        return contents

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.records[-1].offset + self.records[-1].size

    @property
    def queued_end(self) -> int:
        """The offset after the last record that has an entry in a queue."""
        return max(record.offset + record.size for record in self.records if record.is_queued)

    def _add(self, record: Record) -> None:
        self.by_offset[record.offset] = record
        if not record.is_queued:
            return
        key = record.topic, record.queue_id
        if record.inner_batch is not None:
            self.batches[key][record.inner_batch[0]] = record
            return
        code = self.tags_code(record)
        self.units[key][record.queue_offset] = record.offset, record.size, code
        for name, queue_id, queue_offset in self._multi_dispatch(record):
            self.units[name, queue_id][queue_offset] = record.offset, record.size, java_hash(record.tags)

    def _multi_dispatch(self, record: Record) -> Iterator[tuple[str, int, int]]:
        names = record.properties.get("INNER_MULTI_DISPATCH")
        offsets = record.properties.get("INNER_MULTI_QUEUE_OFFSET")
        if self.conf.get("enableMultiDispatch") != "true" or not names or not offsets:
            return
        for name, offset in zip(names.split(","), offsets.split(","), strict=True):
            is_lmq = self.conf.get("enableLmq") == "true" and name.startswith("%LMQ%")
            yield name, 0 if is_lmq else record.queue_id, int(offset)

    def tags_code(self, record: Record) -> int:
        """The third field of its queue entry, before ConsumeQueueExt."""
        if record.topic == SCHEDULE_TOPIC and "DELAY" in record.properties:
            levels = self.conf.get("messageDelayLevel", Settings.message_delay_level).split(" ")
            level = min(int(record.properties["DELAY"]), len(levels))
            if level > 0:
                delay = levels[level - 1]
                return record.store_timestamp + int(delay[:-1]) * DELAY_UNIT_MS[delay[-1]]
        return java_hash(record.tags)
