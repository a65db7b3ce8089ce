"""Text as Java sees it: UTF-8 decoding with Java's replacement, ``String#hashCode``, ``Integer#parseInt``."""

from __future__ import annotations

import codecs
import unicodedata

_REPLACEMENT = "\ufffd"


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace malformed bytes as ``new String(bytes, UTF_8)`` does.

    Java and Python agree but for encoded surrogates: ``ED A0..BF`` with or without its third byte is one
    malformed unit in Java, and two or three in Python.
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
    """``Short#parseShort`` in base 10, or None where Java throws NumberFormatException."""
    return _parse(text, 2**15 - 1)


def parse_int(text: str) -> int | None:
    """``Integer#parseInt`` in base 10, or None where Java throws NumberFormatException."""
    return _parse(text, 2**31 - 1)


def parse_long(text: str) -> int | None:
    """``Long#parseLong`` in base 10, or None where Java throws NumberFormatException."""
    return _parse(text, 2**63 - 1)


def _parse(text: str, largest: int) -> int | None:
    # Java takes any decimal digit of the Basic Multilingual Plane and one sign, and nothing else: no blanks.
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
