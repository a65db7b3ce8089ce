"""A Java properties file, as ``Properties#load(InputStream)`` reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import javaproperties

# A line of a backslash alone adds nothing to the line after it, which may then even be a comment.
_NOTHING = re.compile(r"[ \t\f\r\n]*\\(?:\r\n|\r|\n|\Z)")
_LOGICAL_LINE = re.compile(r"([ \t\f\r\n]*)((?:[#!][^\r\n]*)|(?:\\(?:\r\n|.)|[^\\\r\n])*)", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Property:
    """One property and the line of the file, from 1, where it begins."""

    name: str
    value: str
    line: int


def load_properties(data: bytes) -> dict[str, Property]:
    r"""The properties of a file by name; of several with one name the last counts, as in Java.

    Every byte is a character of ISO 8859-1, so that there is no file of a wrong encoding.

    Raises
    ------
    ValueError
        A name or value has a malformed ``\uXXXX``, which Java refuses, too; the message names the line.
    """
    text = data.decode("iso-8859-1")
    found: dict[str, Property] = {}
    at, line = 0, 1
    while at < len(text):
        nothing = _NOTHING.match(text, at)
        if nothing is not None:
            line += len(_LINE_END.findall(nothing[0]))
            at = nothing.end()
            continue
        logical = _LOGICAL_LINE.match(text, at)
        assert logical is not None
        line += len(_LINE_END.findall(logical[1]))
        try:
            pairs: dict[str, str] = javaproperties.loads(logical[2])
        except javaproperties.InvalidUEscapeError as error:
            msg = f"line {line}: {error}"
            raise ValueError(msg) from error
        found.update((name, Property(name, value, line)) for name, value in pairs.items())
        line += len(_LINE_END.findall(logical[2]))
        at = logical.end()
    return found
