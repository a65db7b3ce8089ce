"""The properties that the store reads from a record's properties text (``MessageDecoder#string2messageProperties``)."""

from __future__ import annotations

import codecs
import unicodedata

# ----------------------------------------------------------------------------------------------------------------------
# Text as Java sees it: UTF-8 decoding with Java's replacement, ``String#hashCode``, ``Integer#parseInt``.

_REPLACEMENT = "\ufffd"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace malformed bytes as ``new String(bytes, UTF_8)`` does.

    Java and Python differ only in encoded surrogates: ``ED A0..BF`` with or without its third byte is one malformed
    unit in Java, and two or three in Python.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF:
        end = start + 2
        if end < len(data) and 0x80 <= data[end] <= 0xBF:
            end += 1
    return _REPLACEMENT, end


codecs.register_error("reput_java", _replace_as_java)


def decode_utf8(data: bytes) -> str:
    """`data` as ``new String(data, UTF_8)`` reads it: never fails, malformed units become U+FFFD."""
    return data.decode("utf-8", "reput_java")


def hash_code(text: str) -> int:
    """``String#hashCode``: over UTF-16 code units, wrapped to a signed 32-bit integer."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def parse_short(text: str) -> int | None:
    """``Short#parseShort`` in base 10; None if Java throws NumberFormatException."""
    return _parse(text, 2**15 - 1)


def parse_int(text: str) -> int | None:
    """``Integer#parseInt`` in base 10; None if Java throws NumberFormatException."""
    return _parse(text, 2**31 - 1)


def parse_long(text: str) -> int | None:
    """``Long#parseLong`` in base 10; None if Java throws NumberFormatException."""
    return _parse(text, 2**63 - 1)


def _parse(text: str, largest: int) -> int | None:
    # Java accepts one sign and any decimal digits of the Basic Multilingual Plane, and no blanks.
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        return None
    value = 0
    for char in digits:
        digit = unicodedata.decimal(char, -1) if char <= "\uffff" else -1
        if digit < 0:
            return None
        value = value * 10 + digit
        if value > largest + 1:
            return None
    value = -value if text[0] == "-" else value
    return value if value <= largest else None


NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
KEY_SEPARATOR = " "

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_UNIQ_KEY = "UNIQ_KEY"
PROPERTY_DELAY = "DELAY"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"  # more queues, separated by commas, and
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"  # the message's offset in each
PROPERTY_INNER_NUM = "INNER_NUM"  # messages in an inner batch (5.x), and
PROPERTY_INNER_BASE = "INNER_BASE"  # the queue offset of its first

# The values of a record that is not an inner batch (``DispatchRequest``).
DEFAULT_BATCH_NUM = 1
DEFAULT_MSG_BASE_OFFSET = -1

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

DEFAULT_MESSAGE_DELAY_LEVEL = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_properties(text: str) -> dict[str, str]:
    """Properties of a record, as 4.9.1 and later read them.

    Items end at U+0002 or at the end of the text; the name ends at the item's first U+0001. An item with an empty name,
    an empty value or no separator is dropped. The last of several equal names wins.
    """
    properties: dict[str, str] = {}
    for item in text.split(PROPERTY_SEPARATOR):
        name, _, value = item.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def split_keys(keys: str) -> list[str]:
    """The single keys of a KEYS property: split at each blank, without empty ones (``IndexService#buildIndex``)."""
    return [key for key in keys.split(KEY_SEPARATOR) if key]


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Delays in milliseconds, level 1 first (``ScheduleMessageService#parseDelayLevel``).

    Blanks at the end are ignored. Of two blanks, the second begins an empty item.

    Raises
    ------
    ValueError
        An item is not a number followed by s, m, h or d, with which a broker does not start, or its delay is more than
        a long of milliseconds.
    """
    delays = []
    items = text.rstrip(" ").split(" ") if text.strip(" ") or not text else []
    for item in items:
        unit = _UNIT_MS.get(item[-1:])
        count = parse_long(item[:-1])
        if unit is None or count is None or abs(unit * count) >= 2**63:
            raise ValueError(item)
        delays.append(unit * count)
    return tuple(delays)


def tags_code(topic: str, properties: dict[str, str], store_timestamp: int, delays_ms: tuple[int, ...]) -> int | None:
    """The ConsumeQueue entry's third field (``CommitLog#checkMessageAndReturnSize``).

    The hash of the whole TAGS text, 0 without tags; on the schedule topic the delivery time in milliseconds. None if
    the broker's ``Integer.parseInt`` of DELAY throws, which makes it refuse the record.
    """
    tags = properties.get(PROPERTY_TAGS)
    code = hash_code(tags) if tags else 0
    delay = properties.get(PROPERTY_DELAY)
    if topic != SCHEDULE_TOPIC or delay is None:
        return code
    level = parse_int(delay)
    if level is None:
        return None
    level = min(level, len(delays_ms))
    if level <= 0:
        return code
    # Java's long wraps.
    return (store_timestamp + delays_ms[level - 1] + 2**63) % 2**64 - 2**63


def inner_batch(properties: dict[str, str]) -> tuple[int, int] | None:
    """The number of messages of a record, and the queue offset of the first (5.x ``CommitLog#setBatchSizeIfNeeded``).

    The defaults unless the record has both properties, whatever sysFlag says. None if ``Long.parseLong`` of INNER_BASE
    or ``Short.parseShort`` of INNER_NUM throws, which makes the broker refuse the record.
    """
    if PROPERTY_INNER_NUM not in properties or PROPERTY_INNER_BASE not in properties:
        return DEFAULT_BATCH_NUM, DEFAULT_MSG_BASE_OFFSET
    base = parse_long(properties[PROPERTY_INNER_BASE])
    count = parse_short(properties[PROPERTY_INNER_NUM])
    return None if base is None or count is None else (count, base)
