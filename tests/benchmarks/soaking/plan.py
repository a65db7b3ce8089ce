"""The events of a soak, and their times: minutes of a run of an hour and a half, compressed for a shorter one."""

from __future__ import annotations

from dataclasses import dataclass

RUN_MINUTES = 90.0
QUIET_MINUTES, QUIET_MINUTES_MIN = 5.0, 0.6
FULL_SECONDS, FULL_SECONDS_MIN = 60.0, 15.0
#: How long after its end an event may still show: in the lag, in alerts, in files.
AFTERMATH_SECONDS = 180.0

EXPIRE, KILL, QUIET, RESTART, FULL, EXTRAS = (
    "segments expire",
    "kill -9",
    "quiet",
    "broker restarts",
    "disk full",
    "extras",
)

# Segments expire every few minutes, as they do in service, where each hour brings as many as it takes away.
_EXPIRIES = (
    3,
    5,
    7,
    12,
    14,
    22,
    24,
    27,
    31,
    33,
    35,
    39,
    41,
    43,
    45,
    52,
    54,
    56,
    61,
    63,
    65,
    67,
    74,
    76,
    78,
    81,
    83,
    85,
    87,
)
# The last kill leaves an hour in which growth is judged, the time behind a full disk among it.
_OTHERS = (
    (3, EXTRAS),
    (10, KILL),
    (16, QUIET),
    (25, EXTRAS),
    (28, RESTART),
    (30, KILL),
    (36, FULL),
    (46, QUIET),
    (55, EXTRAS),
    (68, QUIET),
    (79, EXTRAS),
)
_PLAN = sorted([*((minute, EXPIRE) for minute in _EXPIRIES), *_OTHERS])


@dataclass(frozen=True)
class Planned:
    """An event, its moment in seconds after the run began, and how long it lasts."""

    at: float
    kind: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Event:
    """An event that has happened, in seconds since the epoch; `words` say what was seen."""

    kind: str
    begin: float
    end: float
    words: str = ""


def plan(minutes: float) -> list[Planned]:
    """Return all events of a run of this many minutes."""
    scale = minutes / RUN_MINUTES
    lasts = {
        QUIET: 60 * max(QUIET_MINUTES * min(scale, 1.0), QUIET_MINUTES_MIN),
        FULL: max(FULL_SECONDS * min(scale, 1.0), FULL_SECONDS_MIN),
    }
    return [Planned(60 * minute * scale, kind, lasts.get(kind, 0.0)) for minute, kind in _PLAN]
