"""Times: milliseconds since 1970, as RocketMQ has them, Python's times, and the text of both, in UTC."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def milliseconds_of(time: datetime) -> int:
    """Whole milliseconds from 1970 to a time with a zone."""
    return (time - EPOCH) // timedelta(milliseconds=1)


def time_of(milliseconds: int) -> datetime:
    """The time that many milliseconds after 1970, in UTC; raises OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def utc_text(time: datetime) -> str:
    """A time with a zone as ``2026-01-31T12:00:00.000Z``, rounded down to milliseconds."""
    # isoformat pads early years, strftime does not.
    return time.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def time_text(milliseconds: int) -> str | None:
    """The text of the time as by `utc_text`; None outside the years 1 to 9999."""
    try:
        return utc_text(time_of(milliseconds))
    except OverflowError:
        return None
