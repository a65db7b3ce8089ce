"""Text to Java's values: ``Integer#valueOf``, ``Long#valueOf``, ``Double#valueOf``, ``Boolean#valueOf``."""

from __future__ import annotations

import math
import re
import unicodedata

INTEGER_MIN, INTEGER_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1

_SHORT_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NAMED = re.compile(r"[+-]?(?:NaN|Infinity)")
_TYPE_SUFFIXES = "fFdD"
# What ``String#trim`` takes away, which is not what Python's `strip` does.
_TRIMMED = "".join(map(chr, range(0x21)))


def parse_integer(text: str) -> int:
    """``Integer#valueOf`` in base 10; see `parse_long`."""
    value = parse_long(text)
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ValueError(text)
    return value


def parse_long(text: str) -> int:
    """``Long#valueOf`` in base 10.

    One leading sign and any decimal digits of the Basic Multilingual Plane; no blanks, no underscores, no suffix.

    Raises
    ------
    ValueError
        Where Java throws NumberFormatException, also when the number does not fit.
    """
    if _SHORT_NUMBER.fullmatch(text):
        return int(text)
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits:
        raise ValueError(text)
    value = 0
    for char in digits:
        digit = unicodedata.decimal(char, -1) if char <= "\uffff" else -1
        value = value * 10 + digit
        if digit < 0 or value > LONG_MAX + 1:
            raise ValueError(text)
    value = -value if text[0] == "-" else value
    if value > LONG_MAX:
        raise ValueError(text)
    return value


def parse_double(text: str) -> float:
    """``Double#valueOf``: decimal or hexadecimal, ``NaN``, ``Infinity``, a type suffix, blanks at both ends.

    Too large is infinite, too small is zero.

    Raises
    ------
    ValueError
        Where Java throws NumberFormatException.
    """
    trimmed = text.strip(_TRIMMED)
    if _NAMED.fullmatch(trimmed):
        return float(trimmed)
    number = trimmed[:-1] if trimmed[-1:] in tuple(_TYPE_SUFFIXES) else trimmed
    if _DECIMAL.fullmatch(number):
        return float(number)
    if _HEXADECIMAL.fullmatch(number):
        try:
            return float.fromhex(number)
        except OverflowError:
            return float("-inf") if number[0] == "-" else float("inf")
    raise ValueError(text)


def parse_boolean(text: str) -> bool:
    """``Boolean#valueOf``: "true" in any case; everything else is false."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """``Double#compare``: -1, 0 or 1; NaN is the greatest and equals itself, 0.0 is greater than -0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(value: float) -> int:
    """Among values that are neither less nor greater than each other: -0.0, then the others, then NaN."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1
