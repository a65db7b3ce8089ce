"""A micro-batch and its findings, and its query's lag as the driver sees it now."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, anomaly_at_end
from reput.sinks.quarantine import EXPIRED
from reput.source.errors import ReputError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import HEAD_SIZE, first_store_timestamp, is_blank


@dataclass(frozen=True)
class LogEnd:
    """The end of the whole records that may be read, and the last of them.

    Attributes
    ----------
    offset
        The end, exclusive. A last record that is still held back (``tailGuardMs``) is after it.
    at_end
        The anomaly at the end, if the bytes there are not those at the end of every growing log.
    """

    offset: int
    at_end: AnomalyCounts = NO_ANOMALIES


class LogEndWatch:
    """Finds the end of the log on request, from any thread; a log that did not grow is not read again."""

    def __init__(self, log: LogReader) -> None:
        """Take `log`, which must not be used by anything else; it does not log warnings."""
        self._log = log
        log.warns = False
        self._lock = threading.Lock()

    def look_ahead(self, start: int) -> None:
        """Look once in a separate thread, before anyone waits: in a segment of 1 GiB the first look takes a while."""
        threading.Thread(target=self.look, args=(start,), name="reput-log-end", daemon=True).start()

    def look(self, start: int) -> LogEnd | None:
        """Return the end now, searched from `start`, where a record begins; None if the log cannot be read now.

        The queries read the same log and report its failures.
        """
        with self._lock:
            try:
                return self._look(start)
            except (ReputError, OSError):
                return None

    def _look(self, start: int) -> LogEnd:
        end = self._log.end(start)
        bad = self._log.bad_end
        at_end = NO_ANOMALIES if bad is None else anomaly_at_end(bad)
        return LogEnd(end, at_end)

    def store_timestamp_at(self, offset: int) -> int | None:
        """Return the store time in milliseconds of the first record from `offset` on, where a record begins.

        None if the bytes there are not a record, or cannot be read.
        """
        with self._lock:
            try:
                return self._store_timestamp_at(offset)
            except (ReputError, OSError):
                return None

    def _store_timestamp_at(self, offset: int) -> int | None:
        queue = self._log.queue()
        file = queue.find(offset)
        while file is not None:
            _, _, head = self._log.look_at(offset, HEAD_SIZE)
            if not is_blank(head, file.frame):
                return first_store_timestamp(head, file.frame)
            offset = file.end
            file = queue.find(offset)
        return None


#: The phases of a micro-batch, in order. Spark plans it and notes its end; reput reads, writes and syncs.
PHASES = ("plan", "read", "write", "sync", "commit")
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_TIMES = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class BatchReport:
    """One micro-batch of one query.

    Attributes
    ----------
    query
        Its query, ``logic`` or ``table``.
    start, end
        The range of the log, end exclusive.
    messages
        How many it has.
    seconds
        From its begin until it was durable.
    anomalies, quarantined
        The anomalies of its records, and the ranges that were left out, by cause.
    phases
        Seconds by phase, of those in `PHASES` that were measured.
    expired_bytes
        How many bytes of the log expired unread before it.
    """

    query: str
    start: int
    end: int
    messages: int
    seconds: float
    anomalies: AnomalyCounts = NO_ANOMALIES
    quarantined: Counter[str] = field(default_factory=Counter)
    phases: Mapping[str, float] = field(default_factory=dict)
    expired_bytes: int = 0

    def followed_by(self, later: BatchReport) -> BatchReport:
        """Join this report and a `later` one of the same query."""
        phases = {
            name: self.phases.get(name, 0.0) + later.phases.get(name, 0.0) for name in {**self.phases, **later.phases}
        }
        return BatchReport(
            *(self.query, self.start, later.end, self.messages + later.messages, self.seconds + later.seconds),
            anomalies=self.anomalies + later.anomalies,
            quarantined=self.quarantined + later.quarantined,
            phases=phases,
            expired_bytes=self.expired_bytes + later.expired_bytes,
        )


class LogWatch(Protocol):
    """Finds the present end of the log (``LogEndWatch``)."""

    def look(self, start: int) -> LogEnd | None:
        """Return the end now, searched from `start`, where a record begins; None if the log cannot be read now."""

    def store_timestamp_at(self, offset: int) -> int | None:
        """Return the store time of the first record from `offset` on, in milliseconds; None if it is not known."""


@dataclass(frozen=True)
class Lag:
    """How far a query is behind the log: in bytes, and in seconds since the first message that it lacks was stored.

    RocketMQ calls the seconds a consumer group's lag latency (``ConsumerLagCalculator``). ``None`` means unknown. Both
    values are 0 for a query that has the whole log.
    """

    size_bytes: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, log_end: LogEnd | None, end: int, watch: LogWatch, now: float | None = None) -> Lag:
        """Return the lag at `now` (seconds since the epoch) of a query that ends at `end`."""
        if log_end is None:
            return cls()
        if log_end.offset <= end:
            return cls(0, 0.0)
        stored = watch.store_timestamp_at(end)
        now = time.time() if now is None else now
        return cls(log_end.offset - end, None if stored is None else max(0.0, now - stored / 1000))

    def __str__(self) -> str:
        size = "?" if self.size_bytes is None else self.size_bytes
        seconds = "?" if self.seconds is None else f"{self.seconds:.1f}"
        return f"{size} bytes and {seconds} s behind"


def findings(anomalies: AnomalyCounts, quarantined: Counter[str]) -> str:
    """Return the end of a line about a batch or a query; empty if everything was in order."""
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(quarantined.items()) if cause != EXPIRED)
    found = [f", anomalies: {anomalies}"] if anomalies else []
    found += [f", quarantined: {causes}"] if causes else []
    found += [f", ranges expired unread: {quarantined[EXPIRED]}"] if quarantined[EXPIRED] else []
    return "".join(found)


def size_text(size_bytes: int | None) -> str:
    """Return a size for people; '?' for None."""
    if size_bytes is None:
        return "?"
    for factor, unit in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"


def duration_text(seconds: float | None) -> str:
    """Return a duration for people, as ``12.3 s``, ``5.0 min`` or ``2.5 d``; '?' for None."""
    if seconds is None:
        return "?"
    for factor, unit in _TIMES:
        if seconds >= 2 * factor:
            return f"{seconds / factor:.1f} {unit}"
    return f"{seconds:.1f} s"
