"""Messages as lines: a table for people, or JSON with one line per message. Times are UTC."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from reput.source.errors import OptionError
from reput.source.printable import printable_json
from reput.streaming.process.text_table import TextTable

_Time = TypeVar("_Time", int, datetime)

FORMATS = ("table", "json")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
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
    return ((time if time.tzinfo else time.replace(tzinfo=timezone.utc)) - _EPOCH) // timedelta(milliseconds=1)


def check_period(begin_flag: str, begin: _Time | None, end_flag: str, end: _Time | None) -> None:
    """Raise OptionError for a period that ends before it begins; None means no limit."""
    if begin is not None and end is not None and end < begin:
        raise OptionError(f"{end_flag} is before {begin_flag}: no time is between them")


def time_text(milliseconds: int) -> str | None:
    """The time as ISO 8601 in UTC, None outside the years 1 to 9999."""
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
    return time.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


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
