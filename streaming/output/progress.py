"""What the user sees of a run: batches, rates, lag."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.quarantine import EXPIRED
from reput.streaming.output.log_end import LogEnd

_log = logging.getLogger("reput")
_MB = 1_000_000
_SHOWN_EVERY_S = 1.0
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True)
class BatchReport:
    """One micro-batch of one query: `[start, end)` of the log, its messages, the seconds until it was durable.

    `anomalies` are those of its records, `quarantined` counts the ranges left out by cause, and `store_timestamp` is
    that of its last record in milliseconds, None without a record.
    """

    query: str
    start: int
    end: int
    messages: int
    seconds: float
    anomalies: AnomalyCounts = NO_ANOMALIES
    quarantined: Counter[str] = field(default_factory=Counter)
    store_timestamp: int | None = None


@dataclass(frozen=True)
class Lag:
    """How far a query is behind the log's end: in bytes, and in seconds of store time between the two last records.

    A value is None if it is not known. Both are 0 for a query that has the whole log.
    """

    size_bytes: int | None = None
    seconds: float | None = None

    @classmethod
    def between(cls, log: LogEnd | None, end: int, store_timestamp: int | None) -> Lag:
        """The lag of a query that ends at `end`, and whose last record was stored at `store_timestamp`."""
        if log is None:
            return cls()
        if log.offset <= end:
            return cls(0, 0.0)
        if log.store_timestamp is None or store_timestamp is None:
            return cls(log.offset - end)
        return cls(log.offset - end, max(0, log.store_timestamp - store_timestamp) / 1000)

    def __str__(self) -> str:
        size = "?" if self.size_bytes is None else self.size_bytes
        return f"{size} bytes and {_seconds(self.seconds)} s behind"


def _seconds(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds:.1f}"


@dataclass(frozen=True)
class QueryHealth:
    """Whether a query works, or waits for a failure to pass.

    `failure` is what it waits for, and `since` when that began, in seconds since 1970; both are None while it works.
    `restarts` counts how often it was to be opened again in the whole run.
    """

    state: Literal["running", "waiting"] = "running"
    failure: str | None = None
    since: float | None = None
    restarts: int = 0


@dataclass
class _Total:
    batches: int = 0
    messages: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    end: int = 0
    store_timestamp: int | None = None
    last: BatchReport | None = None
    anomalies: AnomalyCounts = NO_ANOMALIES
    quarantined: Counter[str] = field(default_factory=Counter)


def findings(anomalies: AnomalyCounts, quarantined: Counter[str]) -> str:
    """What a line about a batch or a query ends with; empty if all was in order."""
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(quarantined.items()) if cause != EXPIRED)
    found = [f", anomalies: {anomalies}"] if anomalies else []
    found += [f", quarantined: {causes}"] if causes else []
    found += [f", ranges expired unread: {quarantined[EXPIRED]}"] if quarantined[EXPIRED] else []
    return "".join(found)


class ProgressReporter:
    """Collects the queries' batches: a live table on a terminal, one log line a batch elsewhere."""

    def __init__(self, console: Console) -> None:
        self._totals: dict[str, _Total] = {}
        self._health: dict[str, QueryHealth] = {}
        self._lock = threading.Lock()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._look_at_log: Callable[[int], LogEnd | None] = lambda _: None
        self._log_end: LogEnd | None = None
        self._shown_at = 0.0

    def start(self, look_at_log: Callable[[int], LogEnd | None]) -> None:
        """Begin to show progress; `look_at_log` finds the log's end from an offset on at which a record begins."""
        self._look_at_log = look_at_log
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        """Look for the log's end a last time, and leave the terminal as it was."""
        self._look()
        if self._live is not None:
            self._live.stop()

    def on_batch(self, report: BatchReport) -> None:
        """Count a durable batch."""
        with self._lock:
            total = self._totals.setdefault(report.query, _Total())
            total.batches += 1
            total.messages += report.messages
            total.size_bytes += report.end - report.start
            total.seconds += report.seconds
            total.end = report.end
            total.last = report
            total.anomalies += report.anomalies
            total.quarantined += report.quarantined
            if report.store_timestamp is not None:
                total.store_timestamp = report.store_timestamp
        log_end = self._look()
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            return
        _log.info(
            "%s: [%d, %d): %d messages, %.0f messages/s, %.1f MB/s, %s%s",
            report.query,
            report.start,
            report.end,
            report.messages,
            report.messages / max(report.seconds, 1e-9),
            (report.end - report.start) / max(report.seconds, 1e-9) / _MB,
            Lag.between(log_end, report.end, total.store_timestamp),
            findings(report.anomalies, report.quarantined),
        )

    def on_waiting(self, query: str, failure: str, pause_s: float, attempt: int) -> None:  # noqa: ARG002
        """Note that the query failed and is opened again in `pause_s` seconds, for the `attempt`-th time in a row."""
        with self._lock:
            known = self._health.get(query, QueryHealth())
            since = time.time() if known.since is None else known.since
            self._health[query] = QueryHealth("waiting", failure, since, known.restarts + 1)

    def on_resumed(self, query: str) -> None:
        """Note that the query goes on."""
        with self._lock:
            self._health[query] = QueryHealth(restarts=self._health.get(query, QueryHealth()).restarts)

    def health(self, query: str) -> QueryHealth:
        """Whether the query works."""
        with self._lock:
            return self._health.get(query, QueryHealth())

    def refresh(self) -> None:
        """Update the live table's lag; to be called now and then."""
        now = time.monotonic()
        if self._live is not None and self._totals and now - self._shown_at >= _SHOWN_EVERY_S:
            self._shown_at = now
            self._look()
            self._live.update(self._table(), refresh=True)

    def messages(self, query: str) -> int:
        """The number of messages that the query has processed in this run."""
        with self._lock:
            return self._totals.get(query, _Total()).messages

    def summary(self) -> list[str]:
        """A line for each query about the whole run."""
        with self._lock:
            at_end = NO_ANOMALIES if self._log_end is None else self._log_end.at_end
            return [
                f"{name}: {total.messages} messages in {total.batches} batches, {total.seconds:.2f} s, "
                f"{total.messages / max(total.seconds, 1e-9):.0f} messages/s, "
                f"{total.size_bytes / max(total.seconds, 1e-9) / _MB:.1f} MB/s, end offset {total.end}, "
                f"{Lag.between(self._log_end, total.end, total.store_timestamp)}"
                f"{findings(total.anomalies + at_end, total.quarantined)}"
                for name, total in sorted(self._totals.items())
                if total.batches
            ]

    def _look(self) -> LogEnd | None:
        """Where the log ends now; None, rather than an earlier end, if that cannot be seen."""
        with self._lock:
            furthest = max((total.end for total in self._totals.values()), default=None)
        log_end = None if furthest is None else self._look_at_log(furthest)
        with self._lock:
            self._log_end = log_end
        return log_end

    def _table(self) -> Table:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("query")
        for name in ("messages", "per s", "MB/s", "end offset", "behind", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        with self._lock:
            for name, total in sorted(self._totals.items()):
                last = total.last
                seconds = max(last.seconds, 1e-9) if last else 1.0
                lag = Lag.between(self._log_end, total.end, total.store_timestamp)
                table.add_row(
                    name,
                    f"{total.messages:,}",
                    f"{last.messages / seconds:,.0f}" if last else "-",
                    f"{(last.end - last.start) / seconds / _MB:,.1f}" if last else "-",
                    str(total.end),
                    size_text(lag.size_bytes),
                    _seconds(lag.seconds),
                )
        return table


def size_text(size_bytes: int | None) -> str:
    """A size for people; '?' for None."""
    if size_bytes is None:
        return "?"
    for factor, unit in _UNITS:
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} B"
