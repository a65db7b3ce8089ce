"""What happens in a soak, and when: minutes of a run of an hour and a half, compressed for a shorter one."""

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

_PLAN = (
    (3, EXTRAS),
    (7, EXPIRE),
    (10, KILL),
    (14, EXPIRE),
    (16, QUIET),
    (23, EXPIRE),
    (25, EXTRAS),
    (28, RESTART),
    (32, EXPIRE),
    (36, FULL),
    (41, EXPIRE),
    (46, QUIET),
    (54, EXPIRE),
    (55, EXTRAS),
    (58, KILL),
    (63, EXPIRE),
    (68, QUIET),
    (76, EXPIRE),
    (79, EXTRAS),
    (83, EXPIRE),
)


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
    """All events of a run of so many minutes."""
    scale = minutes / RUN_MINUTES
    lasts = {
        QUIET: 60 * max(QUIET_MINUTES * min(scale, 1.0), QUIET_MINUTES_MIN),
        FULL: max(FULL_SECONDS * min(scale, 1.0), FULL_SECONDS_MIN),
    }
    return [Planned(60 * minute * scale, kind, lasts.get(kind, 0.0)) for minute, kind in _PLAN]
