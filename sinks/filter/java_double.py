"""Java's doubles: ``Double#valueOf`` of a text, ``Double#compare``."""

from __future__ import annotations

import math
import re

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_NAMED = re.compile(r"[+-]?(?:NaN|Infinity)")
_TYPE_SUFFIXES = "fFdD"
# What ``String#trim`` takes away, which is not what Python's `strip` does.
_TRIMMED = "".join(map(chr, range(0x21)))


def parse_double(text: str) -> float | None:
    """``Double#valueOf``, or None where Java throws NumberFormatException.

    The text may be decimal, hexadecimal, ``NaN`` or ``Infinity``, with a type suffix and blanks at both ends. A number
    that is too large becomes infinite, one that is too small becomes zero.
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
    return None


def compare_doubles(left: float, right: float) -> int:
    """``Double#compare``: -1, 0 or 1; NaN is the greatest and equals itself, 0.0 is greater than -0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(value: float) -> int:
    """The order of values that are neither less nor greater than each other: -0.0, then the others, then NaN."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1
