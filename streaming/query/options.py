"""What `reput query` is asked for, and which of its options go together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from reput.source.errors import OptionError
from reput.source.record.message_properties import KEY_SEPARATOR

#: The most index entries that a broker takes, even if more are asked for, and the same for a unique key.
MAX_MSGS_NUM_BATCH, DEFAULT_QUERY_MAX_NUM = 64, 32
# A unique key of any client so far: 32 or 34 digits, 56 of a client that has an IPv6 address.
_UNIQUE_KEY = re.compile(r"[0-9A-Fa-f]{32,64}")
_UPPER_OF_GO = 20
_KINDS = ("key", "unique_key", "msg_id", "queue_offset", "time")
_QUEUE = {"topic", "queue_id"}
# What each kind needs, in a store and in a table, and what it allows beside that.
_WANTED = {
    "key": {"topic"},
    "unique_key": {"topic"},
    "msg_id": set[str](),
    "queue_offset": _QUEUE,
    "time": _QUEUE,
}
_WANTED_OF_TABLE = _WANTED | {"key": set[str](), "unique_key": set[str]()}
_ALLOWED = {
    "key": {"begin", "end", "max_num"},
    "unique_key": {"begin", "end", "max_num"},
    "msg_id": set[str](),
    "queue_offset": {"count"},
    "time": {"count"},
}


def check_key(key: str) -> None:
    """Raise OptionError for what no message can have among its KEYS."""
    if not key or KEY_SEPARATOR in key:
        raise OptionError(f"key {key!r}: KEYS are split at blanks, so a key is a text without any")


def check_unique_key(key: str) -> None:
    """Raise OptionError for what is no unique key."""
    if not key:
        raise OptionError("the unique key is empty")


@dataclass(frozen=True)
class QueryOptions:
    """What is looked for, as given on the command line; None means not given. `broker` is asked of a table only."""

    topic: str | None = None
    key: str | None = None
    unique_key: str | None = None
    msg_id: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    time: str | None = None
    count: int | None = None
    begin: str | None = None
    end: str | None = None
    max_num: int | None = None
    broker: str | None = None

    def kind(self, *, of_table: bool = False) -> str:
        """The option that says what is looked for: key, unique_key, msg_id, queue_offset or time.

        Raises
        ------
        OptionError
            None or several are given, an option that it needs is missing, or one is given that it does not allow.
        """
        given = {field.name for field in fields(self) if getattr(self, field.name) is not None}
        asked = [name for name in _KINDS if name in given]
        if len(asked) != 1:
            found = ", ".join(map(_flag, asked)) or "none"
            raise OptionError(f"exactly one of {', '.join(map(_flag, _KINDS))} wanted, found {found}")
        kind = asked[0]
        if missing := sorted((_WANTED_OF_TABLE if of_table else _WANTED)[kind] - given):
            raise OptionError(f"{_flag(kind)} needs {' and '.join(map(_flag, missing))}")
        allowed = _WANTED[kind] | _ALLOWED[kind] | ({"broker"} if of_table else set())
        if foreign := sorted(given - {kind} - allowed):
            raise OptionError(f"{_flag(kind)} does not go with {', '.join(map(_flag, foreign))}")
        return kind

    def in_other_cases(self) -> Iterator[QueryOptions]:
        """The same with the unique key in other cases, if it is one of hexadecimal digits as clients make them.

        Keys are compared as they are, by brokers, too. Java's client has upper case, Go's has it in the first 20 digits
        and lower case in the others.
        """
        key = self.unique_key
        if key is not None and _UNIQUE_KEY.fullmatch(key):
            forms = (key.upper(), key[:_UPPER_OF_GO].upper() + key[_UPPER_OF_GO:].lower(), key.lower())
            yield from (replace(self, unique_key=form) for form in dict.fromkeys(forms) if form != key)

    @property
    def entries(self) -> int:
        """How many messages are wanted from a place in a queue on."""
        return 1 if self.count is None else self.count

    @property
    def most(self) -> int:
        """How many entries of a key are taken at most: as many as by a broker, if nothing else is said."""
        return self.max_num or (DEFAULT_QUERY_MAX_NUM if self.key is None else MAX_MSGS_NUM_BATCH)


def _flag(name: str) -> str:
    return "--max" if name == "max_num" else f"--{name.replace('_', '-')}"
