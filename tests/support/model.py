"""The ConsumeQueue and IndexFile of a 4.9.3 broker that dispatched a log, slow and obvious.

The oracle of the sinks' tests: it shares no code with them. The broker dispatched every record once, in order, into an
empty store.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from support.record_writer import MAGIC_V2, Message

Record = tuple[int, Message, int]
"""Physical offset, message, size of the record."""

UNIT_BYTES = 20
PRE_BLANK = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)

NO_TRANSACTION, COMMIT, ROLLBACK = 0x0, 0x8, 0xC
DELAY_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Settings:
    """The broker settings that shape the files, with the broker's defaults."""

    mapped_file_size_consume_queue: int = 6_000_000
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    index_tags: bool = False
    """Whether tags are keys of their own, as 5.4.0 and later have it."""

    @property
    def consume_queue_file_bytes(self) -> int:
        """The size in effect: whole units."""
        return -(-self.mapped_file_size_consume_queue // UNIT_BYTES) * UNIT_BYTES

    @property
    def delay_ms(self) -> list[int]:
        """Milliseconds of level 1, 2, ..."""
        return [int(level[:-1]) * DELAY_UNIT_MS[level[-1]] for level in self.message_delay_level.split(" ")]


# --- Reading a log ---------------------------------------------------------------------------------------


class Fields:
    """Takes field after field from a record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        """The next signed number."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def host(self, *, is_v6: bool) -> tuple[str, int]:
        """The next address and port."""
        return str(ipaddress.ip_address(self.take(16 if is_v6 else 4))), self.number(4)


def parse_record(record: bytes) -> tuple[int, Message]:
    """A record's own physical offset and its message; the body CRC is not read."""
    fields = Fields(record)
    fields.take(4)
    magic = fields.number(4) & 0xFFFFFFFF
    fields.take(4)
    queue_id, flag, queue_offset = fields.number(4), fields.number(4), fields.number(8)
    physical_offset, sys_flag = fields.number(8), fields.number(4)
    message = Message(
        magic=magic,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        born_timestamp=fields.number(8),
        born_host=fields.host(is_v6=bool(sys_flag & 0x10)),
        store_timestamp=fields.number(8),
        store_host=fields.host(is_v6=bool(sys_flag & 0x20)),
        reconsume_times=fields.number(4),
        prepared_transaction_offset=fields.number(8),
        body=fields.take(fields.number(4)),
        topic=fields.take(fields.number(2 if magic == MAGIC_V2 else 1)).decode(),
        properties=fields.take(fields.number(2)),
    )
    assert fields.at == len(record)
    return physical_offset, message


def read_entries(segments: Mapping[int, bytes]) -> Iterator[Record]:
    """Every record of a sound DLedger log up to its zeros; segments by their first offset."""
    for from_offset, segment in segments.items():
        at = 0
        while int.from_bytes(segment[at : at + 4], "big") == 1:
            size = int.from_bytes(segment[at + 4 : at + 8], "big")
            physical_offset, message = parse_record(segment[at + 48 : at + size])
            assert physical_offset == from_offset + at + 48
            yield physical_offset, message, size - 48
            at += size
        assert segment[at : at + 8] in {bytes(8), struct.pack(">ii", -1, len(segment) - at)}


def read_log(segments: Mapping[int, bytes]) -> Iterator[Record]:
    """Every record of a sound log up to its zeros; segments by their first offset."""
    for from_offset, segment in segments.items():
        at = 0
        while (size := int.from_bytes(segment[at : at + 4], "big")) and segment[at + 4] == 0xDA:
            physical_offset, message = parse_record(segment[at : at + size])
            assert physical_offset == from_offset + at
            yield physical_offset, message, size
            at += size
        assert size in {0, len(segment) - at}, "neither zeros nor a blank record"


# --- Java strings and properties -------------------------------------------------------------------------


def java_string(data: bytes) -> str:
    """``new String(data, UTF_8)``: one U+FFFD for an encoded surrogate, where Python gives one a byte."""
    return re.sub(rb"\xed[\xa0-\xbf][\x80-\xbf]?", b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def java_hash(text: str) -> int:
    """``String#hashCode``: over UTF-16 units, wrapped to a signed 32-bit number."""
    result = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - 2**32 if result >= 2**31 else result


def parse_properties(data: bytes) -> dict[str, str]:
    """``MessageDecoder#string2messageProperties``: the last of a name wins, empty names and values vanish."""
    properties = {}
    for item in java_string(data).split("\x02"):
        name, _, value = item.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def tags_code(message: Message, settings: Settings) -> int:
    """The third field of a queue unit: hash of the tags, or the time of delivery on the delay topic."""
    properties = parse_properties(message.properties_bytes)
    if message.topic == "SCHEDULE_TOPIC_XXXX" and "DELAY" in properties:
        level = min(int(properties["DELAY"]), len(settings.delay_ms))
        if level > 0:
            return message.store_timestamp + settings.delay_ms[level - 1]
    return java_hash(properties.get("TAGS", ""))


def index_keys(message: Message, *, with_tags: bool = False) -> list[str]:
    """Return the keys of a message in the index, in the broker's order."""
    properties = parse_properties(message.properties_bytes)
    keys = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    keys += [key for key in properties.get("KEYS", "").split(" ") if key]
    keys += [f"T#{properties['TAGS']}"] if with_tags and "TAGS" in properties else []
    return [f"{message.topic}#{key}" for key in keys]


# --- ConsumeQueue ----------------------------------------------------------------------------------------


@dataclass
class ConsumeQueue:
    """One queue's files, by the offset in their name."""

    file_bytes: int
    files: dict[int, bytearray] = field(default_factory=dict)
    write_offset: int = 0
    max_physic_offset: int = -1
    anomalies: Counter[str] = field(default_factory=Counter)

    def put(self, offset: int, size: int, code: int, queue_offset: int) -> None:
        """``ConsumeQueue#putMessagePositionInfo``; the letters are those of the reference."""
        if offset + size <= self.max_physic_offset:  # (A)
            self.anomalies["already_built"] += 1
            return
        expect = java_long(queue_offset * UNIT_BYTES)
        if not self.files:
            self.anomalies["pre_blank"] += queue_offset != 0
            self.write_offset = expect - expect % self.file_bytes
            self._make_file_if_full()
            while queue_offset != 0 and self.write_offset < expect:  # (C)
                self._append(PRE_BLANK)
        self._make_file_if_full()  # before (D): even a repeated entry makes the next file
        if queue_offset != 0 and expect < self.write_offset:  # (D)
            self.anomalies["repeated"] += 1
            return
        # (E) a gap is only logged: the unit goes where the queue ends
        self.anomalies["gap"] += queue_offset != 0 and expect > self.write_offset
        self.anomalies["queue_restart"] += queue_offset == 0 and self.write_offset > 0
        self.max_physic_offset = offset + size
        self._append(struct.pack(">qiq", offset, size, code))  # (F)

    def _make_file_if_full(self) -> None:
        if self.write_offset % self.file_bytes == 0 and self.write_offset not in self.files:
            self.files[self.write_offset] = bytearray(self.file_bytes)

    def _append(self, unit: bytes) -> None:
        position = self.write_offset % self.file_bytes
        self.files[self.write_offset - position][position : position + UNIT_BYTES] = unit
        self.write_offset += UNIT_BYTES


def java_long(value: int) -> int:
    """The number as a ``long`` keeps it: wrapped to a signed one of 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def consume_queues(records: Iterable[Record], settings: Settings) -> dict[tuple[str, int], ConsumeQueue]:
    """Each queue, keyed by (topic, queue id)."""
    queues: dict[tuple[str, int], ConsumeQueue] = {}
    for physical_offset, message, msg_size in records:
        if message.sys_flag & 0xC not in {NO_TRANSACTION, COMMIT}:
            continue
        queue = queues.setdefault((message.topic, message.queue_id), ConsumeQueue(settings.consume_queue_file_bytes))
        queue.put(physical_offset, msg_size, tags_code(message, settings), message.queue_offset or 0)
    return queues


def consume_queue_files(records: Iterable[Record], settings: Settings) -> dict[tuple[str, int], dict[int, bytes]]:
    """Each queue's full-size files, keyed by (topic, queue id) and by the offset in the file's name."""
    queues = consume_queues(records, settings)
    return {key: {offset: bytes(content) for offset, content in queue.files.items()} for key, queue in queues.items()}


def anomalies(records: Iterable[Record], settings: Settings) -> dict[str, int]:
    """How often each cause is met, those above 0."""
    records = list(records)
    counts = sum((queue.anomalies for queue in consume_queues(records, settings).values()), Counter[str]())
    times = [message.store_timestamp for _, message, _ in records]
    counts["store_time_backwards"] += sum(later < time for time, later in zip(times, times[1:], strict=False))
    return {name: count for name, count in counts.items() if count}


# --- IndexFile -------------------------------------------------------------------------------------------


@dataclass
class IndexFile:
    """One index file in memory."""

    max_hash_slot_num: int
    max_index_num: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1
    slots: dict[int, int] = field(default_factory=dict)
    entries: list[bytes] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Entry 0 is never used, so a file takes one key less than `max_index_num`."""
        return self.index_count >= self.max_index_num

    def put_key(self, key: str, phy_offset: int, store_timestamp: int) -> bool:
        """``IndexFile#putKey``: False when the file is full."""
        if self.is_full:
            return False
        key_hash = abs(java_hash(key))
        if key_hash == 2**31:
            key_hash = 0
        slot = key_hash % self.max_hash_slot_num
        previous = self.slots.get(slot, 0)
        # Against the inherited begin time when this is the first entry of a later file.
        seconds = (store_timestamp - self.begin_timestamp) // 1000 if self.begin_timestamp > 0 else 0
        time_diff = min(max(seconds, 0), 2**31 - 1)
        self.entries.append(struct.pack(">iqii", key_hash, phy_offset, time_diff, previous))
        self.slots[slot] = self.index_count
        if self.index_count == 1:
            self.begin_phy_offset, self.begin_timestamp = phy_offset, store_timestamp
        if previous == 0:
            self.hash_slot_count += 1
        self.index_count += 1
        self.end_phy_offset, self.end_timestamp = phy_offset, store_timestamp
        return True

    def to_bytes(self) -> bytes:
        """The whole file; a file without a key has the index count 0 on disk."""
        header = struct.pack(
            ">qqqqii",
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count if self.entries else 0,
        )
        slots = bytearray(4 * self.max_hash_slot_num)
        for slot, index in self.slots.items():
            struct.pack_into(">i", slots, 4 * slot, index)
        entries = bytes(UNIT_BYTES) + b"".join(self.entries)
        return header + slots + entries.ljust(UNIT_BYTES * self.max_index_num, b"\x00")


@dataclass
class IndexService:
    """The row of index files."""

    settings: Settings
    files: list[IndexFile] = field(default_factory=list)

    def build_index(self, physical_offset: int, message: Message) -> None:
        """``IndexService#buildIndex``: makes a file even for a message without a key."""
        index_file = self._last_file()
        if physical_offset < index_file.end_phy_offset or message.sys_flag & 0xC == ROLLBACK:
            return
        for key in index_keys(message, with_tags=self.settings.index_tags):
            while not index_file.put_key(key, physical_offset, message.store_timestamp):
                index_file = self._last_file()

    def _last_file(self) -> IndexFile:
        if not self.files or self.files[-1].is_full:
            new_file = IndexFile(self.settings.max_hash_slot_num, self.settings.max_index_num)
            if self.files:
                full = self.files[-1]
                new_file.begin_timestamp = new_file.end_timestamp = max(full.end_timestamp, 0)
                new_file.begin_phy_offset = new_file.end_phy_offset = full.end_phy_offset
            self.files.append(new_file)
        return self.files[-1]


def index_file_contents(records: Iterable[Record], settings: Settings) -> list[bytes]:
    """Every full-size index file, oldest first."""
    service = IndexService(settings)
    for physical_offset, message, _ in records:
        service.build_index(physical_offset, message)
    return [index_file.to_bytes() for index_file in service.files]
