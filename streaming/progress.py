"""What the user sees of a run: batches, rates, how far behind."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts
from reput.sinks.quarantine import EXPIRED

_log = logging.getLogger("reput")
_MB = 1_000_000


@dataclass(frozen=True)
class BatchReport:
    """One micro-batch of one query: `[start, end)` of the log, its messages, seconds from begin to durable.

    `anomalies` is what the sinks met in it, `quarantined` how many ranges each cause left out.
    """

    query: str
    start: int
    end: int
    messages: int
    seconds: float
    anomalies: AnomalyCounts = NO_ANOMALIES
    quarantined: Counter[str] = field(default_factory=Counter)


@dataclass
class _Total:
    batches: int = 0
    messages: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    end: int = 0
    behind_bytes: int | None = None
    last: BatchReport | None = None
    anomalies: AnomalyCounts = NO_ANOMALIES
    at_end: AnomalyCounts = NO_ANOMALIES
    quarantined: Counter[str] = field(default_factory=Counter)


def findings(anomalies: AnomalyCounts, quarantined: Counter[str]) -> str:
    """What is added to a line about a batch or a query; empty where all was in order."""
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(quarantined.items()) if cause != EXPIRED)
    found = [f", anomalies: {anomalies}"] if anomalies else []
    found += [f", quarantined: {causes}"] if causes else []
    found += [f", ranges expired unread: {quarantined[EXPIRED]}"] if quarantined[EXPIRED] else []
    return "".join(found)


class ProgressReporter:
    """Collects the queries' batches: a live table on a terminal, one log line a batch elsewhere."""

    def __init__(self, console: Console) -> None:
        self._totals: dict[str, _Total] = {}
        self._lock = threading.Lock()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def start(self) -> None:
        """Begin to show."""
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def on_batch(self, report: BatchReport) -> None:
        """Count a batch that is durable now."""
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
            behind = total.behind_bytes
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            return
        _log.info(
            "%s: [%d, %d): %d messages, %.0f messages/s, %.1f MB/s, %s bytes behind%s",
            report.query,
            report.start,
            report.end,
            report.messages,
            report.messages / max(report.seconds, 1e-9),
            (report.end - report.start) / max(report.seconds, 1e-9) / _MB,
            "?" if behind is None else behind,
            findings(report.anomalies, report.quarantined),
        )

    def on_latest(self, query: str, latest_offset: int, at_end: AnomalyCounts = NO_ANOMALIES) -> None:
        """Note the end of the log as the query last saw it, and what stands there that is no record."""
        with self._lock:
            total = self._totals.setdefault(query, _Total())
            total.behind_bytes = max(0, latest_offset - total.end)
            total.at_end = at_end

    def messages(self, query: str) -> int:
        """Messages that the query has processed in this run."""
        with self._lock:
            return self._totals.get(query, _Total()).messages

    def summary(self) -> list[str]:
        """One line a query about the whole run."""
        with self._lock:
            return [
                f"{name}: {total.messages} messages in {total.batches} batches, {total.seconds:.2f} s, "
                f"{total.messages / max(total.seconds, 1e-9):.0f} messages/s, "
                f"{total.size_bytes / max(total.seconds, 1e-9) / _MB:.1f} MB/s, end offset {total.end}"
                f"{findings(total.anomalies + total.at_end, total.quarantined)}"
                for name, total in sorted(self._totals.items())
                if total.batches
            ]

    def _table(self) -> Table:
        table = Table("query", "messages", "messages/s", "MB/s", "end offset", "bytes behind")
        with self._lock:
            for name, total in sorted(self._totals.items()):
                last = total.last
                seconds = max(last.seconds, 1e-9) if last else 1.0
                table.add_row(
                    name,
                    f"{total.messages:,}",
                    f"{last.messages / seconds:,.0f}" if last else "-",
                    f"{(last.end - last.start) / seconds / _MB:,.1f}" if last else "-",
                    f"{total.end:,}",
                    "?" if total.behind_bytes is None else f"{total.behind_bytes:,}",
                )
        return table
