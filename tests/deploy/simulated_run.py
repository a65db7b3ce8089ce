"""A run as Prometheus sees it over hours: a real `RunState` by a clock of its own, scraped every 30 s."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from support.seen_log import SeenLog

from reput.source.errors import ReputError
from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.metrics import RunCollector
from reput.streaming.status.run_state import RunState

SCRAPED_EVERY_S = 30
_TURNED_EVERY_S = 5
_QUERIES = ("logic", "table")
_TARGET = 'instance="a:9464", job="reput"'


class SimulatedRun:
    """A log that grows by 1,000 bytes a second, two queries after it, and faults that may befall them.

    Attributes
    ----------
    rate
        The bytes that the broker writes in a second, and the most that a query keeps.
    behind_s
        How far each query is behind, in seconds.
    """

    def __init__(self) -> None:
        self.rate, self.behind_s = 1_000.0, dict.fromkeys(_QUERIES, 0.0)
        self.is_down = self.is_hung = False
        self.keeps = set(_QUERIES)
        self._now = 0.0
        self._written: list[tuple[float, float]] = [(0.0, 0.0)]  # when, and where the log ended then
        self._log = SeenLog(LogEnd(0))
        self._samples: dict[str, dict[int, float]] = defaultdict(dict)
        self.start()

    def start(self, *, at_once: bool = True) -> None:
        """Start the process again; `at_once` with its queries."""
        self.state = RunState("broker-a", clock=lambda: self._now)
        self._kept = {query: self._offset_at(self._now - self.behind_s[query]) for query in _QUERIES}
        if at_once:
            self.open()

    def open(self) -> None:
        """Let the queries run."""
        for query in _QUERIES:
            self.state.on_running(query, self._kept[query])

    def wait(self, query: str, error: type[ReputError], seconds: float) -> None:
        """Let a query fail with `error` again and again for this time, and then continue."""
        end = self._now + seconds
        self.keeps.discard(query)
        attempt = 0
        while self._now < end:
            attempt += 1
            self.state.on_waiting(query, "it fails", 60.0, attempt, error.code)
            self.live(min(60.0, end - self._now) / 60)
            self.state.on_running(query, self._kept[query])
        self.state.on_resumed(query)
        self.keeps.add(query)

    def find(self, query: str, cause: str | None = None, expired_bytes: int = 0) -> None:
        """Let a batch leave out a range because of `cause`, or miss what has expired."""
        kept = self._kept[query]
        causes = Counter() if cause is None else Counter({cause: 1})
        self.state.on_batch(BatchReport(query, kept, kept, 0, 0.1, quarantined=causes, expired_bytes=expired_bytes))

    def live(self, minutes: float, each: Callable[[float], None] = lambda _: None) -> None:
        """Let this many minutes pass; `each` is called with the minute that it is, before every turn."""
        for _ in range(round(minutes * 60 / _TURNED_EVERY_S)):
            self._now += _TURNED_EVERY_S
            each(self._now / 60)
            self._written.append((self._now, self._written[-1][1] + self.rate * _TURNED_EVERY_S))
            if not (self.is_down or self.is_hung):
                self._turn()
            if self._now % SCRAPED_EVERY_S == 0:
                self._scrape()

    def _offset_at(self, moment: float) -> int:
        return int(next((end for when, end in reversed(self._written) if when <= moment), 0.0))

    def _turn(self) -> None:
        self._log.end = LogEnd(self._offset_at(self._now))
        for query in self.keeps & set(self.state.queries):
            before, end = self._kept[query], self._offset_at(self._now - self.behind_s[query])
            if end > before:
                self._kept[query] = end
                self.state.on_batch(BatchReport(query, before, end, 1, 0.1))
        for kept in self._kept.values():
            stored = next((when for when, end in self._written if end > kept), self._now)
            self._log.stored[kept] = round(stored * 1000)
        self.state.look(self._log)

    def _scrape(self) -> None:
        self._samples[f"up{{{_TARGET}}}"][round(self._now)] = float(not self.is_down)
        for family in () if self.is_down else RunCollector([self.state]).collect():
            for sample in family.samples:
                if "broker" not in sample.labels or "_batch_seconds" in sample.name:
                    continue
                labels = ", ".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                self._samples[f"{sample.name}{{{labels}, {_TARGET}}}"][round(self._now)] = float(sample.value)

    @property
    def minutes(self) -> int:
        """How long it has lasted, in whole minutes."""
        return int(self._now // 60)

    def series(self) -> list[dict[str, str]]:
        """All samples, as promtool reads them: `_` before a series begins, and `stale` once it has ended."""
        moments = range(0, round(self._now) + 1, SCRAPED_EVERY_S)
        found = []
        for name, samples in self._samples.items():
            values = []
            for at in moments:
                is_over = bool(values) and values[-1] not in ("_", "stale")
                values.append(repr(samples[at]) if at in samples else "stale" if is_over else "_")
            found.append({"series": name, "values": " ".join(values)})
        return found
