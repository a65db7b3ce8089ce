"""The output of a rebuild: one line a second, and a report at the end."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.quarantine import EXPIRED
from reput.source.options import shown
from reput.source.printable import counted
from reput.streaming.rebuild.output import OutputCounts
from reput.streaming.status.batch_report import findings, size_text

_log = logging.getLogger("reput")
_MB = 1_000_000
# A wave may take a tenth of a second.
_LINE_EVERY_S = 1.0
# How many queues are named whose entries have moved.
_SHOWN = 5


@dataclass(frozen=True)
class RebuildReport:
    """The result of a rebuild.

    Attributes
    ----------
    start, end
        The range of the log, `end` exclusive.
    resumed_at
        Where this run began: at `start`, or where an earlier one was stopped. The fields below count from here.
    messages, size_bytes
        Read in this run.
    keys
        Keys put into the index in this run.
    queues, queue_files, index_files
        How many were put in place.
    anomalies
        Counts above 0 by cause (docs/anomalies.md).
    quarantined
        How many ranges this run left out, by cause; segments that are missing are EXPIRED.
    missing
        Which stretches of the log this run passed over because their segments are missing: begin and end of each.
    entries_moved
        How many entries got a smaller number than their message's queue offset in this run, by queue (`topic-id`).
    seconds
        By phase: `start_up` (before the log is read), `read` and `write` (side by side), `swap`; `all` is wall time.
    messages_per_second, messages_per_second_in_all
        Without and with the start-up.
    """

    start: int
    end: int
    resumed_at: int
    messages: int
    size_bytes: int
    keys: int
    queues: int
    queue_files: int
    index_files: int
    anomalies: dict[str, int]
    quarantined: dict[str, int]
    missing: list[tuple[int, int]]
    entries_moved: dict[str, int]
    seconds: dict[str, float]
    messages_per_second: float
    messages_per_second_in_all: float

    def to_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(asdict(self), indent=1)

    def text(self) -> str:
        """The report as a few lines for people."""
        phases = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items() if name != "all")
        read = f"{counted(self.messages, 'message')}, {counted(self.keys, 'key')}"
        per_second = f"{counted(round(self.messages_per_second), 'message')}/s"
        queues = f"{counted(self.queues, 'queue')} in {counted(self.queue_files, 'file')}" if self.queues else ""
        index = counted(self.index_files, "index file") if self.index_files else ""
        made = ", ".join(filter(None, (queues, index))) or "no queue or index file"
        span = f"[{self.start}, {self.end})"
        lines = [
            f"rebuilt {span}: {read} in {self.seconds['all']:.1f} s, {per_second} without the start-up",
            f"{made}; {phases}",
        ]
        for what, counts in (("anomalies", self.anomalies), ("quarantined", self.quarantined)):
            if counts:
                lines.append(f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
        for begin, end in self.missing:
            lines.append(f"passed over: [{begin}, {end}), {counted(end - begin, 'byte')} of segments that are missing")
        if self.entries_moved:
            entries = counted(sum(self.entries_moved.values()), "entry has", "entries have")
            first = [f"{shown(queue)} ({count})" for queue, count in self.entries_moved.items()]
            lines.append(
                f"{entries} a smaller number than the message's queue offset, in {counted(len(first), 'queue')}: "
                f"{', '.join(first[:_SHOWN])}{', ...' if len(first) > _SHOWN else ''}"
            )
        return "\n".join(lines)


class RebuildProgress:
    """Counts the waves of one rebuild; the process began at `began` (seconds of ``time.monotonic``)."""

    def __init__(self, began: float | None = None) -> None:
        self._began = time.monotonic() if began is None else began
        self._reading_since = self._began
        self._range = (0, 0, 0)
        self._messages = self._keys = 0
        self.missing: list[tuple[int, int]] = []
        self._moved: dict[str, int] = {}
        self._anomalies = NO_ANOMALIES
        self._quarantined: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()
        self._said_at = self._began
        # What was found since.
        self._unsaid: tuple[AnomalyCounts, Counter[str]] = NO_ANOMALIES, Counter()

    def begin(self, start: int, resumed_at: int, end: int) -> None:
        """Note that the log is read from now on: `[resumed_at, end)` of `[start, end)`."""
        self._reading_since = time.monotonic()
        self._range = (start, resumed_at, end)

    def add_seconds(self, phase: str, seconds: float) -> None:
        """Add to the time that a phase took."""
        with self._lock:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def on_wave(self, end: int, messages: int, keys: int, anomalies: AnomalyCounts, quarantined: Counter[str]) -> None:
        """Note that a wave up to `end` is durable; `quarantined` counts the ranges that it left out, by cause.

        Once a second, and of the last wave, a line says how far it is and what was found.
        """
        now = time.monotonic()
        seconds = max(now - self._reading_since, 1e-9)
        self._messages += messages
        self._keys += keys
        self._anomalies += anomalies
        self._quarantined += quarantined
        start, resumed_at, stop = self._range
        rate = (end - resumed_at) / seconds
        unsaid = self._unsaid[0] + anomalies, self._unsaid[1] + quarantined
        if end < stop and now - self._said_at < _LINE_EVERY_S:
            self._unsaid = unsaid
            return
        self._said_at, self._unsaid = now, (NO_ANOMALIES, Counter())
        _log.info(
            "rebuild: %s of %s, %s/s, %.1f MB/s, %.0f s left%s",
            size_text(end - start),
            size_text(stop - start),
            counted(round(self._messages / seconds), "message"),
            rate / _MB,
            (stop - end) / max(rate, 1e-9),
            findings(*unsaid),
        )

    def on_missing(self, begin: int, end: int) -> None:
        """Note that `[begin, end)` of the log is passed over, since its segments are missing."""
        self.missing.append((begin, end))
        self._quarantined[EXPIRED] += 1

    def on_moved(self, counts: Mapping[tuple[bytes, int], int]) -> None:
        """Note how many entries have a smaller number than their message's queue offset, by queue."""
        names = {queue: f"{queue[0].decode('utf-8', 'backslashreplace')}-{queue[1]}" for queue in counts}
        self._moved = {names[queue]: count for queue, count in counts.items()}

    def report(self, counts: OutputCounts) -> RebuildReport:
        """The report of a rebuild whose result is in place."""
        now = time.monotonic()
        start, resumed_at, end = self._range
        seconds = {"start_up": self._reading_since - self._began, **self._seconds, "all": now - self._began}
        return RebuildReport(
            start,
            end,
            resumed_at,
            self._messages,
            end - resumed_at - sum(after - begin for begin, after in self.missing),
            self._keys,
            counts.queues,
            counts.queue_files,
            counts.index_files,
            {name: count for name, count in vars(self._anomalies).items() if count},
            dict(sorted(self._quarantined.items())),
            self.missing,
            self._moved,
            {name: round(value, 3) for name, value in seconds.items()},
            round(self._messages / max(now - self._reading_since, 1e-9), 1),
            round(self._messages / max(now - self._began, 1e-9), 1),
        )
