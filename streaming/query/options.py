"""The options of `reput query`, which of them go together, and how messages are printed.

Messages are printed as a table for people, or as JSON with one line per message. Times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

from reput.source.errors import OptionError
from reput.source.printable import printable_json
from reput.source.record.message_properties import KEY_SEPARATOR
from reput.source.times import milliseconds_of
from reput.streaming.process.text_table import TextTable

_Time = TypeVar("_Time", int, datetime)

FORMATS = ("table", "json")
_COLUMNS = (
    "store_time",
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "msg_size",
    "tags",
    "keys",
    "uniq_key",
)


def parse_time(text: str) -> int:
    """Milliseconds since 1970, given as a whole number or as an ISO 8601 time, which is UTC without an offset.

    Raises
    ------
    OptionError
        The text is not a number and not a time.
    """
    if text.isascii() and text.removeprefix("-").isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise OptionError(
            f"time {text!r}: milliseconds since 1970 wanted, or a time like 2026-01-31T12:00:00Z"
        ) from None
    return milliseconds_of(time if time.tzinfo else time.replace(tzinfo=timezone.utc))


def check_period(begin_flag: str, begin: _Time | None, end_flag: str, end: _Time | None) -> None:
    """Raise OptionError for a period that ends before it begins; None means no limit."""
    if begin is not None and end is not None and end < begin:
        raise OptionError(f"{end_flag} is before {begin_flag}: no time is between them")


def check_format(output_format: str) -> None:
    """Raise OptionError if it is not one of `FORMATS`."""
    if output_format not in FORMATS:
        raise OptionError(f"--format {output_format}: one of {', '.join(FORMATS)} wanted")


def lines(rows: Sequence[dict[str, Any]], output_format: str, width: int | None = None) -> Iterator[str]:
    """Return the messages in one of `FORMATS`, without line ends; `width` is that of the terminal, if it is one."""
    if output_format == "json":
        return (printable_json(row) for row in rows)
    return _table(rows, width)


def _table(rows: Sequence[dict[str, Any]], width: int | None) -> Iterator[str]:
    more = [name for name in ("msg_id", "chosen", "entry") if any(name in row for row in rows)]
    bodies = [name for name in ("body", "body_base64", "body_compressed_base64") if any(name in row for row in rows)]
    names = [*_COLUMNS, *more, *bodies]
    yield from TextTable(names, width).lines([[row.get(name) for row in rows] for name in names])


#: The most index entries that a broker takes, even if more are asked for, and the same for a unique key.
MAX_MSGS_NUM_BATCH, DEFAULT_QUERY_MAX_NUM = 64, 32
# A unique key of any client so far: 32 or 34 digits, 56 of a client that has an IPv6 address.
_UNIQUE_KEY = re.compile(r"[0-9A-Fa-f]{32,64}")
_UPPER_OF_GO = 20
_KINDS = ("key", "uniq_key", "msg_id", "queue_offset", "time")
_QUEUE = {"topic", "queue_id"}
_LISTED = "'reput dump --topic TOPIC --since TIME --until TIME' lists all messages of a topic and time"
_LISTED_IN_TABLE = "'reput sql' chooses messages by anything else"
# The options that each kind needs, in a store and in a table, and those that it also allows.
_WANTED = {
    "key": {"topic"},
    "uniq_key": {"topic"},
    "msg_id": set[str](),
    "queue_offset": _QUEUE,
    "time": _QUEUE,
}
_WANTED_OF_TABLE = _WANTED | {"key": set[str](), "uniq_key": set[str]()}
_ALLOWED = {
    "key": {"since", "until", "end", "limit"},
    "uniq_key": {"since", "until", "end", "limit"},
    "msg_id": set[str](),
    "queue_offset": {"limit"},
    "time": {"limit"},
}


def check_key(key: str) -> None:
    """Raise OptionError if no message can have this key."""
    if not key or KEY_SEPARATOR in key:
        raise OptionError(f"key {key!r}: KEYS are split at blanks, so a key is a text without any")


def check_unique_key(key: str) -> None:
    """Raise OptionError if this is not a unique key."""
    if not key:
        raise OptionError("the unique key is empty")


@dataclass(frozen=True)
class QueryOptions:
    """The search as given on the command line; None means not given.

    `broker` is for a table only. `until` is exclusive; `end`, its old name, includes its time.
    """

    topic: str | None = None
    key: str | None = None
    uniq_key: str | None = None
    msg_id: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    time: str | None = None
    since: str | None = None
    until: str | None = None
    end: str | None = None
    limit: int | None = None
    broker: str | None = None

    def kind(self, *, of_table: bool = False) -> str:
        """The option that says what is looked for: key, uniq_key, msg_id, queue_offset or time.

        Raises
        ------
        OptionError
            None or several are given, an option that it needs is missing, or one is given that it does not allow.
        """
        given = {field.name for field in fields(self) if getattr(self, field.name) is not None}
        asked = [name for name in _KINDS if name in given]
        if len(asked) != 1:
            found = ", ".join(map(_flag, asked)) or "none"
            raise OptionError(
                f"exactly one of {', '.join(map(_flag, _KINDS))} wanted, found {found}",
                advice=None if asked else _LISTED_IN_TABLE if of_table else _LISTED,
            )
        kind = asked[0]
        if missing := sorted((_WANTED_OF_TABLE if of_table else _WANTED)[kind] - given):
            raise OptionError(f"{_flag(kind)} needs {' and '.join(map(_flag, missing))}")
        allowed = _WANTED[kind] | _ALLOWED[kind] | ({"broker"} if of_table else set())
        if foreign := sorted(given - {kind} - allowed):
            raise OptionError(f"{_flag(kind)} does not go with {', '.join(map(_flag, foreign))}")
        return kind

    def needs(self) -> str | None:
        """The files that a search of a store needs beside the log: ``index``, ``consumequeue``, or None for none."""
        kind = self.kind()
        return None if kind == "msg_id" else "index" if kind in ("key", "uniq_key") else "consumequeue"

    def in_other_cases(self) -> Iterator[QueryOptions]:
        """Yield the same with the unique key in other cases, if it consists of hexadecimal digits as clients make them.

        Brokers also compare keys as they are. Java's client has upper case, Go's has it in the first 20 digits and
        lower case in the others.
        """
        key = self.uniq_key
        if key is not None and _UNIQUE_KEY.fullmatch(key):
            forms = (key.upper(), key[:_UPPER_OF_GO].upper() + key[_UPPER_OF_GO:].lower(), key.lower())
            yield from (replace(self, uniq_key=form) for form in dict.fromkeys(forms) if form != key)

    @property
    def period(self) -> tuple[int | None, int | None]:
        """The first and the last store time of a key's messages, in milliseconds; None where there is no limit.

        Raises
        ------
        OptionError
            A time cannot be read, both ends are given, or the period ends before it begins.
        """
        since, until, end = (None if text is None else parse_time(text) for text in (self.since, self.until, self.end))
        if until is not None and end is not None:
            raise OptionError("--until does not go with --end, its old name, which includes its time")
        check_period("--since", since, "--end" if until is None else "--until", end if until is None else until)
        return since, end if until is None else until - 1

    @property
    def entries(self) -> int:
        """The number of messages to read from a place in a queue."""
        return 1 if self.limit is None else self.limit

    @property
    def most(self) -> int:
        """The most entries of a key to read; a broker's limit if the options have none."""
        return self.limit or (DEFAULT_QUERY_MAX_NUM if self.key is None else MAX_MSGS_NUM_BATCH)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
