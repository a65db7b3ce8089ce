"""Text from outside, such as topics, keys and properties, made harmless for a terminal, a log and JSON.

A producer chooses this text. Control characters would move the cursor, change colours or write to the clipboard (ESC,
C1), and bidirectional marks would show the characters in a wrong order.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from contextvars import ContextVar

# Control (C0, DEL, C1), format (bidirectional marks, zero width), surrogates, line and paragraph separators.
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_encode = json.JSONEncoder(ensure_ascii=False).encode


def lines_of(text: str) -> list[str]:
    r"""The lines of a text that end with ``\n``, the only end of a line of JSON, without empty ones.

    ``str.splitlines`` also ends a line at U+2028 and six other characters, which JSON's texts contain unescaped.
    """
    return [line for line in text.split("\n") if line.strip()]


#: The form of the numbers of `counted`: ``,`` separates thousands, as people read them on a terminal.
NUMBER_FORM: ContextVar[str] = ContextVar("NUMBER_FORM", default="")


def counted(count: int, one: str, many: str | None = None, form: str | None = None) -> str:
    """A number with its noun, as `1 message` or `2 messages`; `form` formats the number, by default `NUMBER_FORM`."""
    if form is None:
        form = NUMBER_FORM.get()
    if many is None:
        ending = "es" if one.endswith(("ch", "x", "s")) else "s"
        many = f"{one[:-1]}ies" if one.endswith("ry") else f"{one}{ending}"
    return f"{count:{form}} {one if count == 1 else many}"


def printable(text: str) -> str:
    r"""`text` on one line, with each unsafe character as Python writes it: ``\x1b``, ``\u202e``, ``\n``."""
    return _escaped(text, lambda character: character.encode("unicode_escape").decode("ascii"))


def printable_json(value: object, *, default: Callable[[object], object] | None = None) -> str:
    """JSON on one line whose unsafe characters are escapes of JSON, so that a reader gets the same value."""
    # `json.dumps` would make an encoder for each call, a sixth of the time of a small row.
    text = _encode(value) if default is None else json.dumps(value, default=default, ensure_ascii=False)
    return _escaped(text, lambda character: json.dumps(character)[1:-1])


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():  # most text is, and the test is fast
        return text
    return "".join(
        escape(character) if unicodedata.category(character) in _UNSAFE_CATEGORIES else character for character in text
    )
