"""Metrics for Prometheus, from `RunState`, with the names of the broker's and rocketmq-exporter's metrics.

A figure that the broker also has keeps its name after ``rocketmq_reput_``: ``dispatch_behind_bytes`` is 5.x's
``rocketmq_storage_dispatch_behind_bytes``, ``commitlog_maxoffset`` is the exporter's ``rocketmq_brokeruntime_...``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

import reput
from reput.streaming.process.jvm import last_jvm
from reput.streaming.status.run_state import BATCH_SECONDS, QueryPhase, QueryState, RunState, State, judge

_PREFIX = "rocketmq_reput_"
_QUERY = ("broker", "query")
_BROKER = ("broker",)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

#: Counters and gauges that parts of a run keep under a name of their own, with their meaning and their label.
COUNTS = {
    "expired_files": ("Files of queues and index that were removed since their records have expired.", "kind"),
    "table_merged_files": ("Files of the table that upkeep has merged into others.", "table"),
    "table_expired_rows": ("Rows that the table's retention has removed.", "table"),
}
GAUGES = {
    "table_files": "Data files of the table that have rows of this broker alone.",
    "table_small_files": "Small ones among them, which upkeep merges; some tens are usual.",
    "table_upkeep_refused": "1 if upkeep of the table has ended until the next start, else 0.",
}


class _Families:
    """Families of metrics, each made when it gets its first sample."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def gauge(self, name: str, words: str, labels: Sequence[str], values: Sequence[str], value: float | None) -> None:
        """Add a sample of a gauge; None adds nothing."""
        family = self._families.setdefault(name, GaugeMetricFamily(_PREFIX + name, words, labels=labels))
        if value is not None:
            family.add_metric(values, value)  # type: ignore[attr-defined]

    def counter(self, name: str, words: str, labels: Sequence[str], values: Sequence[str], value: float) -> None:
        """Add a sample of a counter."""
        family = self._families.setdefault(name, CounterMetricFamily(_PREFIX + name, words, labels=labels))
        family.add_metric(values, value)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())


class RunCollector(Collector):
    """Collects the metrics of `runs`, a broker each."""

    def __init__(self, runs: Sequence[RunState]) -> None:
        self._runs = runs

    def collect(self) -> Iterable[Metric]:
        """Yield the families with their present values."""
        families = _Families()
        for run in self._runs:
            with run.read():
                _add_broker(families, run)
                for name, query in sorted(run.queries.items()):
                    _add_query(families, [run.broker, name], query, run.clock())
        _add_memory(families)
        yield from families
        yield from BATCH_SECONDS.collect()
        yield InfoMetricFamily(_PREFIX + "build", "The release.", value={"version": reput.__version__})


def registry_of(runs: Sequence[RunState]) -> CollectorRegistry:
    """Return a registry with the metrics of `runs` and of this process."""
    registry = CollectorRegistry()
    registry.register(RunCollector(runs))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def _add_broker(families: _Families, run: RunState) -> None:
    judged, broker, to_epoch = judge(run).state, [run.broker], run.seconds_to_epoch()
    for state in State:
        words = "1 for the state that the run is in, 0 for the others."
        families.gauge("state", words, ("broker", "state"), [run.broker, state.value], float(state is judged))
    families.gauge(
        *("start_timestamp_seconds", "When the run was started.", _BROKER, broker, run.started_at + to_epoch),
    )
    log_end = None if run.log_end is None else run.log_end.offset
    families.gauge("commitlog_maxoffset", "The end of the log's whole records.", _BROKER, broker, log_end)
    looked = "When the main loop looked at the log last, whether it could be read or not; it does so every second."
    looked_at = None if run.looked_at is None else run.looked_at + to_epoch
    families.gauge("commitlog_looked_at_timestamp_seconds", looked, _BROKER, broker, looked_at)
    for name, words in GAUGES.items():
        families.gauge(name, words, _BROKER, broker, run.gauges.get(name))
    for (name, label), count in sorted(run.counts.items()):
        words, label_name = COUNTS[name]
        families.counter(name, words, ("broker", label_name), [run.broker, label], count)


def _add_query(families: _Families, labels: Sequence[str], query: QueryState, now: float) -> None:
    def gauge(name: str, words: str, value: float | None) -> None:
        families.gauge(name, words, _QUERY, labels, value)

    def counter(name: str, words: str, value: float) -> None:
        families.counter(name, words, _QUERY, labels, value)

    read = "The log is read up to here, exclusive; what was read last may not be durable."
    gauge("read_offset", read, query.read_end)
    gauge("commit_offset", "The effect of every record before this offset is durable.", query.end)
    gauge("dispatch_behind_bytes", "Bytes of the log whose effects are not durable.", query.lag.size_bytes)
    oldest = "Seconds since the first message was stored whose effect is not durable; 0 if there is none."
    gauge("dispatch_behind_seconds", oldest, query.lag.seconds)
    gauge("waiting", "1 while the query waits before it is started again, else 0.", query.phase is QueryPhase.WAITING)
    if query.phase is QueryPhase.WAITING and query.waits_code is not None:
        words = "1 while the query waits for an error of that code to pass; see docs/commands/README.md."
        families.gauge("waiting_for", words, (*_QUERY, "code"), [*labels, query.waits_code], 1)
    gauge("bad_end", "1 while the query waits at bytes that are not a record, else 0.", bool(query.bad_end))
    idle = None if query.last_at is None else max(0.0, now - query.last_at)
    gauge("idle_seconds", "Seconds since the last batch was durable.", idle)
    counter("batches", "Micro-batches.", query.batches)
    counter("messages", "Messages whose effect is durable.", query.messages)
    counter("bytes", "Bytes of the log whose effect is durable.", query.size_bytes)
    counter("restarts", "How often the query was started again after a failure.", query.restarts)
    counter("expired_unread_bytes", "Bytes of the log that had expired before they were read.", query.expired_bytes)
    for cause, count in sorted(query.quarantined.items()):
        words = "Ranges of the log that were left out."
        families.counter("quarantined", words, (*_QUERY, "cause"), [*labels, cause], count)
    for kind, count in query.anomalies.as_dict().items():
        words = "Effects that a broker never has in one undisturbed life; see docs/anomalies.md."
        families.counter("anomalies", words, (*_QUERY, "kind"), [*labels, kind], count)


def _add_memory(families: _Families) -> None:
    words = "Resident memory of the driver, of Spark's Java process and of its Python processes."
    jvm = last_jvm()
    for process, pids in (("driver", [os.getpid()]), *(() if jvm is None else jvm.processes().items())):
        families.gauge("memory_bytes", words, ("process",), [process], sum(map(_resident_bytes, pids)))
    families.gauge("threads", "Threads of the driver.", (), [], threading.active_count())


def _resident_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0
