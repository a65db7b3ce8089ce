"""Write CommitLog records and segment files as a 4.9.3 broker does, on request as 5.x's or under DLedger.

Shares no code and no constant with the decoder under test: tests compare the two.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, final

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK_BYTES = 8

ENTRY_HEADER_BYTES = 48
ENTRY_MAGIC = 1
ENTRY_MAGIC_BLANK = -1

PROPERTY_CRC_NAME = b"__CRC32#"
PROPERTY_CRC_BYTES = 20

TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20

Host = tuple[str, int]


@dataclass(frozen=True)
class Message:
    """One message, with every field that a record stores."""

    topic: str = "TopicTest"
    queue_id: int = 0
    #: None: the writer counts, ``encode`` alone takes 0.
    queue_offset: int | None = None
    body: bytes = b"body"
    #: A dict is written in its own order without a last separator; bytes are written as they are.
    properties: Mapping[str, str] | bytes = field(default_factory=dict)
    flag: int = 0
    #: The two IPv6 bits are added from the hosts.
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_000
    born_host: Host = ("127.0.0.1", 40_000)
    store_timestamp: int = 1_700_000_000_001
    store_host: Host = ("127.0.0.1", 10_911)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    #: None: computed from the body.
    body_crc: int | None = None
    magic: int = MAGIC_V1
    #: ``enabledAppendPropCRC`` of 5.2.0 and later.
    append_property_crc: bool = False

    @property
    def properties_bytes(self) -> bytes:
        """The properties as the record holds them."""
        if isinstance(self.properties, bytes):
            return self.properties
        return "\x02".join(f"{name}\x01{value}" for name, value in self.properties.items()).encode()

    @property
    def stored_sys_flag(self) -> int:
        """The sysFlag as the record holds it, IPv6 bits included."""
        born = BORN_HOST_V6 if _is_v6(self.born_host) else 0
        store = STORE_HOST_V6 if _is_v6(self.store_host) else 0
        return (self.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)) | born | store

    @property
    def transaction_type(self) -> int:
        """The two transaction bits of sysFlag."""
        return self.sys_flag & TRANSACTION_MASK

    @property
    def is_queued(self) -> bool:
        """Whether the broker counts a queue offset for this message."""
        return self.transaction_type not in {TRANSACTION_PREPARED, TRANSACTION_ROLLBACK}


class StoredRecord(NamedTuple):
    """A message in the log, its queue offset settled."""

    physical_offset: int
    message: Message
    msg_size: int


@cache
def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def _is_v6(host: Host) -> bool:
    return len(_packed(host[0])) == 16


def _encode_host(host: Host) -> bytes:
    return _packed(host[0]) + struct.pack(">i", host[1])


def _encode_topic(message: Message) -> bytes:
    topic = message.topic.encode()
    length_format = ">h" if message.magic == MAGIC_V2 else ">b"
    return struct.pack(length_format, len(topic)) + topic


def body_crc_of(body: bytes) -> int:
    """CRC-32 without its highest bit, as ``UtilAll#crc32`` gives it."""
    return zlib.crc32(body) & 0x7FFFFFFF


def encode(message: Message, physical_offset: int) -> bytes:
    """One record, bound to its place.

    Raises
    ------
    struct.error
        A field does not fit its width: a V1 topic over 127 bytes, properties over 32,767.
    """
    crc = body_crc_of(message.body) if message.body_crc is None else message.body_crc
    properties = message.properties_bytes
    if message.append_property_crc:
        properties += b"\x02" if properties and not properties.endswith(b"\x02") else b""
        properties += bytes(PROPERTY_CRC_BYTES)
    after_total_size = b"".join(
        [
            struct.pack(">IIi", message.magic, crc & 0xFFFFFFFF, message.queue_id),
            struct.pack(">iqq", message.flag, message.queue_offset or 0, physical_offset),
            struct.pack(">iq", message.stored_sys_flag, message.born_timestamp),
            _encode_host(message.born_host),
            struct.pack(">q", message.store_timestamp),
            _encode_host(message.store_host),
            struct.pack(">iq", message.reconsume_times, message.prepared_transaction_offset),
            struct.pack(">i", len(message.body)),
            message.body,
            _encode_topic(message),
            struct.pack(">h", len(properties)),
            properties,
        ]
    )
    record = struct.pack(">i", 4 + len(after_total_size)) + after_total_size
    return _with_property_crc(record[:-PROPERTY_CRC_BYTES]) if message.append_property_crc else record


def _with_property_crc(head: bytes) -> bytes:
    """``MessageDecoder#createCrc32``: the least digit comes first."""
    digits = str(body_crc_of(head))[::-1].ljust(10, "0").encode()
    return head + PROPERTY_CRC_NAME + b"\x01" + digits + b"\x02"


def encode_entry(record: bytes, pos: int, index: int = 0, term: int = 0) -> bytes:
    """A DLedger entry around a record that was encoded for the place `pos` + 48."""
    size = ENTRY_HEADER_BYTES + len(record)
    return struct.pack(">iiqqqiiii", ENTRY_MAGIC, size, index, term, pos, 0, 0, 0, len(record)) + record


@final
class CommitLogWriter:
    """Append records to segment files by the rules of ``DefaultAppendMessageCallback``.

    Every byte is visible to other readers when a call returns. Files have their full size from the start.

    Parameters
    ----------
    directory
        Where the segments go; made if missing.
    mapped_file_size
        Bytes of a segment.
    start_offset
        Offset of the first segment, a multiple of `mapped_file_size`; above 0 as after expiry.
    first_queue_offsets
        What the count of a (topic, queue id) starts at, where that is not 0.
    preallocate
        Make the next, all-zero segment together with each one, as ``AllocateMappedFileService`` does;
        it stays after `close`, as after a crash.
    dledger
        Write DLedger entries: each record has a header, and each message of a batch is placed on its own.
    """

    def __init__(
        self,
        directory: Path,
        mapped_file_size: int,
        *,
        start_offset: int = 0,
        first_queue_offsets: Mapping[tuple[str, int], int] | None = None,
        preallocate: bool = False,
        dledger: bool = False,
    ) -> None:
        if start_offset % mapped_file_size:
            raise ValueError(f"start_offset {start_offset} is not a multiple of {mapped_file_size}")
        directory.mkdir(parents=True, exist_ok=True)
        self.records: list[StoredRecord] = []
        self.mapped_file_size = mapped_file_size
        self._directory = directory
        self._preallocate = preallocate
        self._frame = ENTRY_HEADER_BYTES if dledger else 0
        self._index = 0
        self._queue_offsets = dict(first_queue_offsets or {})
        self._write_offset = start_offset
        self._file: BinaryIO | None = None

    def __enter__(self) -> CommitLogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def max_offset(self) -> int:
        """Where the next byte goes; the broker's ``getMaxOffset``."""
        return self._write_offset

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset that the next queued message of this queue gets."""
        return self._queue_offsets.get((topic, queue_id), 0)

    def append(self, message: Message) -> int:
        """Append one record and return its physical offset.

        A record that no segment can hold leaves two blank records, as in the broker, and is a ValueError.
        """
        return self.append_batch([message])[0]

    def append_batch(self, messages: Sequence[Message]) -> list[int]:
        """Append records that share one segment: the whole batch rolls when its sum does not fit."""
        if self._frame and len(messages) > 1:
            return [self.append(message) for message in messages]
        offset = self._place(sum(self._frame + len(encode(message, 0)) for message in messages))
        offsets = []
        for message in messages:
            stored = self._with_queue_offset(message)
            offset += self._frame
            record = encode(stored, offset)
            self._write_at(offset - self._frame, self._framed(record, offset))
            self._index += 1
            self.records.append(StoredRecord(offset, stored, len(record)))
            self._count(stored)
            offsets.append(offset)
            offset += len(record)
        self._write_offset = offset
        return offsets

    def append_torn(self, message: Message, visible_bytes: int) -> int:
        """Make only the first bytes of a record visible and return its physical offset.

        Nothing is counted: an `append` of the same message completes the record in place, and another
        message overwrites it, as after a crash.
        """
        offset = self._place(self._frame + len(encode(message, 0))) + self._frame
        record = encode(self._with_queue_offset(message), offset)
        self._write_at(offset - self._frame, self._framed(record, offset)[:visible_bytes])
        return offset

    def append_raw(self, data: bytes) -> int:
        """Append bytes as they are, under the same rule for the end of a segment, and return their offset."""
        offset = self._place(len(data))
        self._write_at(offset, data)
        self._write_offset = offset + len(data)
        return offset

    def close(self) -> None:
        """Close the current segment; its unwritten rest is zeros."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _framed(self, record: bytes, offset: int) -> bytes:
        return encode_entry(record, offset - self._frame, self._index) if self._frame else record

    def _with_queue_offset(self, message: Message) -> Message:
        if message.queue_offset is not None:
            return message
        counted = self.next_queue_offset(message.topic, message.queue_id) if message.is_queued else 0
        return replace(message, queue_offset=counted)

    def _count(self, stored: Message) -> None:
        if stored.is_queued and stored.queue_offset is not None:
            self._queue_offsets[stored.topic, stored.queue_id] = stored.queue_offset + 1

    def _place(self, size: int) -> int:
        for _ in range(2):
            if self._file is None or self._write_offset % self.mapped_file_size == 0:
                self._open_segment()
            remaining = self.mapped_file_size - self._write_offset % self.mapped_file_size
            if size + BLANK_BYTES <= remaining:
                return self._write_offset
            blank = (ENTRY_MAGIC_BLANK, remaining) if self._frame else (remaining, MAGIC_BLANK - 2**32)
            self._write_at(self._write_offset, struct.pack(">ii", *blank))
            self._write_offset += remaining
        raise ValueError(f"{size} bytes never fit a segment of {self.mapped_file_size}")

    def _open_segment(self) -> None:
        from_offset = self._write_offset - self._write_offset % self.mapped_file_size
        self.close()
        self._create_zeros(from_offset)
        if self._preallocate:
            self._create_zeros(from_offset + self.mapped_file_size)
        self._file = self._path(from_offset).open("r+b", buffering=0)

    def _create_zeros(self, from_offset: int) -> None:
        with self._path(from_offset).open("ab") as segment:
            segment.truncate(self.mapped_file_size)

    def _path(self, from_offset: int) -> Path:
        return self._directory / f"{from_offset:020d}"

    def _write_at(self, offset: int, data: bytes) -> None:
        if self._file is None:
            raise ValueError("no open segment")
        self._file.seek(offset % self.mapped_file_size)
        self._file.write(data)


def write_log(
    directory: Path,
    messages: Iterable[Message],
    mapped_file_size: int = 2000,
    *,
    start_offset: int = 0,
    preallocate: bool = False,
    dledger: bool = False,
) -> list[StoredRecord]:
    """Write a commitlog of these messages and return what was stored; the options as `CommitLogWriter` has them."""
    options = {"start_offset": start_offset, "preallocate": preallocate, "dledger": dledger}
    with CommitLogWriter(directory, mapped_file_size, **options) as writer:
        for message in messages:
            writer.append(message)
    return writer.records


def write_store(
    store: Path,
    messages: Iterable[Message],
    mapped_file_size: int,
    *,
    start_offset: int = 0,
    broker_conf: Mapping[str, str | int] | None = None,
) -> list[StoredRecord]:
    """Write ``store/commitlog`` and ``store/broker.conf`` and return what was stored.

    `broker_conf` adds settings to those that name the store and the segment size.
    """
    records = write_log(store / "commitlog", messages, mapped_file_size, start_offset=start_offset)
    settings: dict[str, str | int] = {
        "storePathRootDir": ".",
        "storePathCommitLog": "commitlog",
        "mappedFileSizeCommitLog": mapped_file_size,
        **(broker_conf or {}),
    }
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    (store / "broker.conf").write_text("".join(lines), encoding="utf-8")
    return records
