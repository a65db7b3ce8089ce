"""The broker's own check of the bytes at an offset, and a walk over a segment's records by that check.

Source: ``CommitLog#checkMessageAndReturnSize``. The check is less strict than a ``Verdict``: the broker never compares
a record's own physical offset and accepts an empty topic. Releases differ in what they read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from reput.source import releases
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.log.mapped_file_queue import MappedFile, OpenFile, open_segment, read_fully
from reput.source.log.segment_scan import Window, scan_segment
from reput.source.record import message_format as fmt
from reput.source.record.message_format import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG
from reput.source.record.message_properties import decode_utf8, inner_batch, parse_properties, tags_code
from reput.source.releases import Version

# The largest stretch of good records, in bytes: its reader keeps in memory what it makes of it.
_STRETCH_BYTES = 64 * 1024 * 1024
# The largest array that a JVM makes; a larger one is an OutOfMemoryError, which ends the broker's thread.
ARRAY_MAX = 2**31 - 3
_FAILED = -1
_MAGIC_LAST_BYTE_V2 = fmt.MESSAGE_MAGIC_CODE_V2 & 0xFF
_PROPERTY_CRC = fmt.PROPERTY_CRC_PREFIX[:-1].decode("ascii")
_HEAD = struct.Struct(">iiiiiqqiq")
_BEHIND_HOSTS = struct.Struct(">iqi")


@dataclass(frozen=True)
class BrokerRules:
    """How a broker checks records.

    Attributes
    ----------
    version
        The release, which decides whether it reads V2 records and inner batches, and compares sizes with the file's.
    check_crc
        Bodies are compared with their CRC: by recovery unless ``checkCRCOnRecover=false``, never by a replay.
    verifies_property_crc
        With `check_crc`, the appended property is compared in place of the body's CRC (``forceVerifyPropCRC``).
    delays_ms
        Delay levels in milliseconds, level 1 first.
    """

    version: Version
    check_crc: bool
    verifies_property_crc: bool
    delays_ms: tuple[int, ...]

    def without_crc(self) -> BrokerRules:
        """The rules of a replay, which reads no bodies."""
        return replace(self, check_crc=False)


@dataclass(frozen=True)
class BrokerRecord:
    """The values that the broker dispatches for a record (``DispatchRequest``).

    `physical_offset` is the one that the record states. A record whose properties have no bytes has None for
    `properties`.
    """

    topic: str
    queue_id: int
    physical_offset: int
    msg_size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int
    sys_flag: int
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True)
class BrokerCheck:
    """The result of one check.

    Attributes
    ----------
    success
        Whether the bytes are a record, or, with `size` 0, the blank that ends a file.
    size
        The record's size in bytes. After a failure: -1, or the stated size if only the sizes differ.
    position
        The position of the broker's buffer after the check, as a physical offset. After a failure it is valid only if
        the sizes differ.
    record
        The record; None for the blank and for a failure.
    is_fatal
        The check ends in an OutOfMemoryError, which no broker survives.
    why
        The reason of a failure, in words.
    """

    success: bool
    size: int
    position: int
    record: BrokerRecord | None = None
    is_fatal: bool = False
    why: str = ""


@dataclass(frozen=True)
class GoodRecords:
    """`[start, end)` of a segment with records that every reader accepts: their number, and the last one's store time.

    `names_queues` is whether one of them states offsets in further queues, `lacks_properties` whether one has none.
    """

    start: int
    end: int
    count: int
    last_store_timestamp: int
    names_queues: bool = False
    lacks_properties: bool = False

    @classmethod
    def of(cls, window: Window, before: GoodRecords | None) -> GoodRecords:
        """The records of a window that has columns, added to those `before` it."""
        columns = window.columns
        return cls(
            start=before.start if before else window.start,
            end=window.end,
            count=len(window) + (before.count if before else 0),
            last_store_timestamp=int(columns.store_timestamp[-1]),
            names_queues=bool(before and before.names_queues)
            or bool((columns.spans[:, pk.MULTI_QUEUE_OFFSET, 1] > 0).any()),
            lacks_properties=bool(before and before.lacks_properties)
            or bool((window.parts[:, rk.PROPERTIES_SIZE] <= 0).any()),
        )


@dataclass(frozen=True)
class OddRecord:
    """One record at `start` that only the broker accepts."""

    start: int
    check: BrokerCheck


@dataclass(frozen=True)
class WalkEnd:
    """The offset where the broker's walk over a file ends, and its check there: the blank or a failure."""

    start: int
    check: BrokerCheck


def broker_walk(
    file: MappedFile, start: int, limit: int, rules: BrokerRules
) -> Iterator[GoodRecords | OddRecord | WalkEnd]:
    """Follow a segment's records as a broker does, from `start` on; its buffer ends at the offset `limit`.

    The last item is the only `WalkEnd`.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    """
    delays = np.array(rules.delays_ms, np.int64)
    with open_segment(file) as opened:
        while True:
            good = None
            if not (rules.check_crc and rules.verifies_property_crc):
                for found in scan_segment(opened, file, start, limit, check_crc=rules.check_crc):
                    window = _parsed(found.decode(delays), rules)
                    if not len(window):
                        break
                    good = GoodRecords.of(window, good)
                    start = window.end
                    if start - good.start >= _STRETCH_BYTES:
                        yield good
                        good = None
                    if window.end != found.end:
                        break
            if good is not None:
                yield good
            check = check_open(opened, file, start, limit, rules)
            if check.record is None:
                yield WalkEnd(start, check)
                return
            yield OddRecord(start, check)
            start = check.position


def check_at(file: MappedFile, start: int, limit: int, rules: BrokerRules) -> BrokerCheck:
    """Check the bytes at `start` as the broker does; its buffer ends at `limit`."""
    with open_segment(file) as opened:
        return check_open(opened, file, start, limit, rules)


def check_open(opened: OpenFile, file: MappedFile, start: int, limit: int, rules: BrokerRules) -> BrokerCheck:
    """``CommitLog#checkMessageAndReturnSize`` over a buffer of an open segment that ends at `limit`."""
    buffer = _Buffer(opened, file, start, limit)
    try:
        return _read_record(buffer, rules)
    except _JavaError as error:
        return BrokerCheck(False, _FAILED, start, why=str(error))


def _parsed(window: Window, rules: BrokerRules) -> Window:
    """The window up to its first record that a release before V2 does not know."""
    if releases.READS_V2_RECORDS.holds(rules.version) or not len(window):
        return window
    is_v2 = window.data[window.parts[:, rk.AT] + fmt.MAGIC_AT + 3] == _MAGIC_LAST_BYTE_V2
    if not is_v2.any():
        return window
    first = int(np.argmax(is_v2))
    return replace(window, parts=window.parts[:first], end=window.offset_of(first), decoded=window.columns.first(first))


class _JavaError(Exception):
    """An exception of the broker's parser. The broker takes it for a damaged record."""


class _Buffer:
    """A ``ByteBuffer`` over a segment: reads move its position, and fail beyond the limit."""

    def __init__(self, opened: OpenFile, file: MappedFile, start: int, limit: int) -> None:
        self._opened, self._file, self.start, self.limit = opened, file, start, limit
        self.position = start

    @property
    def remaining(self) -> int:
        return self.limit - self.position

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.remaining:
            raise _JavaError(f"a part of {size} bytes does not fit into the {self.remaining} bytes that are left")
        data = self.at(self.position, size)
        self.position += size
        return data

    def at(self, offset: int, size: int) -> bytes:
        buffer = np.empty(size, np.uint8)
        got = read_fully(self._opened, buffer, size, offset - self._file.file_from_offset)
        return buffer[:got].tobytes().ljust(size, b"\0")

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)


def _read_record(buffer: _Buffer, rules: BrokerRules) -> BrokerCheck:
    start = buffer.position
    compares_sizes = releases.COMPARES_SIZES.holds(rules.version)
    if compares_sizes and buffer.remaining <= 4:
        raise _JavaError("the file ends here without a blank")
    total_size = buffer.integer(4)
    if total_size < 0 and releases.REFUSES_NEGATIVE_SIZES.holds(rules.version):
        raise _JavaError(f"a size of {total_size} bytes")
    if compares_sizes and buffer.remaining < total_size - 4:
        raise _JavaError(f"a size of {total_size} bytes, more than the file has left")
    magic = buffer.integer(4)
    if magic == fmt.BLANK_MAGIC_CODE:
        return BrokerCheck(True, 0, buffer.position)
    is_v2 = magic == fmt.MESSAGE_MAGIC_CODE_V2
    if magic != fmt.MESSAGE_MAGIC_CODE and not (is_v2 and releases.READS_V2_RECORDS.holds(rules.version)):
        raise _JavaError("nothing was written here" if magic == 0 and total_size == 0 else "no magic code of a record")
    if total_size > ARRAY_MAX:
        return BrokerCheck(False, _FAILED, start, is_fatal=True, why=f"a size of {total_size} bytes")
    if total_size < 0:
        raise _JavaError(f"a size of {total_size} bytes")
    buffer.position = start
    _, _, body_crc, queue_id, _, queue_offset, physical_offset, sys_flag, _ = _HEAD.unpack(buffer.take(_HEAD.size))
    extra = 0
    for flag in (BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG):
        size = fmt.HOST_V6_SIZE if sys_flag & flag else fmt.HOST_V4_SIZE
        extra += size - fmt.HOST_V4_SIZE
        _array(buffer, size, total_size)
        if flag == BORNHOST_V6_FLAG:
            store_timestamp = buffer.integer(8)
    _, _, body_length = _BEHIND_HOSTS.unpack(buffer.take(_BEHIND_HOSTS.size))
    if body_length > 0:
        _read_body(buffer, body_length, total_size, body_crc, rules)
    topic_width = fmt.TOPIC_LENGTH_V2_SIZE if is_v2 else fmt.TOPIC_LENGTH_SIZE
    topic_length = buffer.integer(topic_width)
    topic = decode_utf8(_array(buffer, topic_length, total_size))
    properties_length = buffer.integer(fmt.PROPERTIES_LENGTH_SIZE)
    properties: dict[str, str] = {}
    if properties_length > 0:
        properties = parse_properties(decode_utf8(_array(buffer, properties_length, total_size)))
    code = tags_code(topic, properties, store_timestamp, rules.delays_ms)
    if code is None:
        raise _JavaError("DELAY is not a number")
    if rules.check_crc and rules.verifies_property_crc:
        _verify_property_crc(buffer, total_size, properties, releases.TAKES_A_CHECKSUM_OF_0.holds(rules.version))
    length = fmt.calc_msg_length(extra, body_length, topic_length, properties_length, topic_width)
    if total_size != length:
        why = f"its size is {total_size} bytes, that of its parts {length}"
        return BrokerCheck(False, total_size, buffer.position, why=why)
    if releases.READS_INNER_BATCHES.holds(rules.version) and inner_batch(properties) is None:
        raise _JavaError("INNER_NUM or INNER_BASE is not a number")
    record = BrokerRecord(
        topic=topic,
        queue_id=queue_id,
        physical_offset=physical_offset,
        msg_size=total_size,
        tags_code=code,
        store_timestamp=store_timestamp,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        properties=properties if properties_length > 0 else None,
    )
    return BrokerCheck(True, total_size, buffer.position, record)


def _array(buffer: _Buffer, size: int, total_size: int) -> bytes:
    """Read a part into the broker's array, which has the record's total size."""
    if not 0 <= size <= total_size:
        raise _JavaError(f"a part of {size} bytes in a record of {total_size}")
    return buffer.take(size)


def _read_body(buffer: _Buffer, size: int, total_size: int, body_crc: int, rules: BrokerRules) -> None:
    if not rules.check_crc:
        if size > buffer.remaining:
            raise _JavaError(f"a body of {size} bytes, more than the file has left")
        buffer.position += size
        return
    body = _array(buffer, size, total_size)
    if not rules.verifies_property_crc and zlib.crc32(body) & 0x7FFFFFFF != body_crc:
        raise _JavaError("the body does not have its checksum")


def _verify_property_crc(buffer: _Buffer, total_size: int, properties: dict[str, str], takes_0: bool) -> None:
    """Compare the record before the buffer's position with the checksum in its properties."""
    text = properties.get(_PROPERTY_CRC)
    if text is None:
        raise _JavaError("no checksum in the properties")
    expected = 0
    for digit in reversed(text):
        expected = (expected * 10 + ord(digit) - ord("0") + 2**31) % 2**32 - 2**31  # wraps as a Java int
    if expected < (0 if takes_0 else 1) or not buffer.start <= buffer.position - total_size:
        raise _JavaError("no good checksum in the properties")
    data = buffer.at(buffer.position - total_size, total_size - fmt.PROPERTY_CRC_SIZE)
    if zlib.crc32(data) & 0x7FFFFFFF != expected:
        raise _JavaError("the record does not have the checksum in its properties")
