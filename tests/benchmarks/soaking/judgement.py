"""Judges a soak's samples: whether anything grows, whether an idle tail is idle, whether alerts fired for nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.soaking.plan import AFTERMATH_SECONDS, FULL, KILL, QUIET, RESTART, Event
from benchmarks.soaking.prometheus import Firing
from benchmarks.soaking.run import HEAP_MB
from benchmarks.soaking.samples import DRIVER, JVM, MB, WORKERS, Sample

#: The time after a start in which caches, compiled code and the JVM's heap become even.
WARM_UP_SECONDS = 300.0
STRETCH_SECONDS_MIN = 600.0
IDLE_SHARE_MAX = 0.02
IDLE_SETTLE_SECONDS = 60.0
_HOUR = 3600.0
#: Events after which the tail may be away or behind for a while, and what may fire then.
MAY_FIRE = {KILL: frozenset[str](), RESTART: frozenset[str](), FULL: frozenset({"ReputOutputFull", "ReputWaiting"})}


@dataclass(frozen=True)
class Series:
    """A figure over time that must not grow for ever.

    It may grow by `share_an_hour` of its median, or by `an_hour`, whichever is more; and as it likes up to `bound`.
    """

    name: str
    unit: str
    value: Callable[[Sample], float | None]
    share_an_hour: float
    an_hour: float
    bound: float = 0.0


# The heap's limit, and the rest of a JVM of Spark's: code, classes, threads, buffers.
JVM_MB_MAX = HEAP_MB + 640.0


def of_process(kind: str, name: str) -> Callable[[Sample], float | None]:
    """Return a figure of one kind; None without such a process, or while the JVM forks, which doubles everything."""

    def value(sample: Sample) -> float | None:
        found = sample.processes.get(kind)
        return None if found is None or (kind == JVM and found.count > 1) else float(getattr(found, name))

    return value


def _files(place: str, name: str, per: float = 1.0) -> Callable[[Sample], float | None]:
    return lambda sample: getattr(sample.files[place], name) / per


def _beside_files(sample: Sample) -> float | None:
    """Each queue file that was written has a descriptor until it expires; the files are judged themselves."""
    descriptors = of_process(DRIVER, "descriptors")(sample)
    return None if descriptors is None else descriptors - sample.files["output"].files


SERIES = (
    Series("memory of the driver", "MB", of_process(DRIVER, "rss"), 0.05, 20),
    Series("memory of the JVM", "MB", of_process(JVM, "rss"), 0.10, 60, JVM_MB_MAX),
    Series("what is alive in the JVM's heap", "MB", lambda sample: sample.live_heap_mb, 0.10, 20),
    Series("memory of the workers", "MB", of_process(WORKERS, "rss"), 0.05, 40),
    Series("descriptors of the driver beside one for each file in the output", "", _beside_files, 0.05, 6, 24),
    *(Series(f"descriptors of the {kind}", "", of_process(kind, "descriptors"), 0.05, 6) for kind in (JVM, WORKERS)),
    *(Series(f"threads of the {kind}", "", of_process(kind, "threads"), 0.05, 6) for kind in (DRIVER, JVM, WORKERS)),
    *(
        Series(f"files in the {place}", "", _files(place, "files"), 0.10, 30)
        for place in ("output", "table", "checkpoint")
    ),
    Series("bytes in the output", "MB", _files("output", "bytes", MB), 0.10, 5),
    Series("bytes in the checkpoint", "MB", _files("checkpoint", "bytes", MB), 0.10, 0.1),
    Series("bytes in the logs", "MB", _files("logs", "bytes", MB), 0.0, 0.1),
)


@dataclass(frozen=True)
class Growth:
    """How a series grew in one stretch without a restart, as a robust slope an hour."""

    series: str
    unit: str
    begin: float
    end: float
    median: float
    an_hour: float
    allowed: float
    is_bound: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether it grew more than is allowed; what never exceeded its bound may grow up to that."""
        return self.an_hour > self.allowed and not self.is_bound


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs (Theil and Sen): what a third of wild values does not move."""
    at, found = np.asarray(times, np.float64), np.asarray(values, np.float64)
    first, second = np.triu_indices(at.size, 1)
    return float(np.median((found[second] - found[first]) / (at[second] - at[first])))


def stretches(samples: Sequence[Sample], begin: float, end: float) -> Iterator[list[Sample]]:
    """The samples of the last two thirds between restarts, each without the first minutes after a start."""
    started: dict[int, float] = {}
    for sample in samples:
        if sample.pid is not None:
            started.setdefault(sample.pid, sample.at)
    judged = [sample for sample in samples if begin + (end - begin) / 3 <= sample.at <= end]
    for pid, group in itertools.groupby(judged, key=lambda sample: sample.pid):
        found = [sample for sample in group if pid is not None and sample.at >= started[pid] + WARM_UP_SECONDS]
        if len(found) > 2 and found[-1].at - found[0].at >= STRETCH_SECONDS_MIN:
            yield found


def growths(samples: Sequence[Sample], begin: float, end: float, series: Sequence[Series] = SERIES) -> list[Growth]:
    """The growth of every series in every stretch."""
    found = []
    for stretch in stretches(samples, begin, end):
        for each in series:
            points = [(sample.at, value) for sample in stretch if (value := each.value(sample)) is not None]
            if len(points) < 3:
                continue
            times, values = zip(*points, strict=True)
            median = float(np.median(values))
            allowed = max(each.an_hour, each.share_an_hour * median)
            grew = _HOUR * slope(times, values)
            is_bound = max(values) <= each.bound
            found.append(Growth(each.name, each.unit, times[0], times[-1], median, grew, allowed, is_bound))
    return found


@dataclass(frozen=True)
class Idle:
    """The part of a core that the tail's processes took while nothing came, from one moment to another."""

    begin: float
    end: float
    share: float
    by_kind: dict[str, float]


def idles(samples: Sequence[Sample], events: Sequence[Event]) -> list[Idle]:
    """Return each quiet stretch after its first minute, except those in which the tail was started again.

    The JVM's work for a collection of its heap on request belongs to the measurement, and is left out: it comes between
    the sample that requests it and the next one.
    """
    found = []
    for event in events:
        if event.kind != QUIET:
            continue
        settled = event.begin + min(IDLE_SETTLE_SECONDS, (event.end - event.begin) / 3)
        quiet = [sample for sample in samples if settled <= sample.at <= event.end]
        steps = [(one, other) for one, other in itertools.pairwise(quiet) if one.live_heap_mb is None]
        if not steps or len({sample.pid for sample in quiet}) > 1 or quiet[0].pid is None:
            continue
        seconds = sum(other.at - one.at for one, other in steps)
        shares = {
            kind: sum(other.processes[kind].cpu - one.processes[kind].cpu for one, other in steps) / seconds
            for kind in quiet[0].processes
        }
        found.append(Idle(quiet[0].at, quiet[-1].at, sum(shares.values()), shares))
    return found


def false_alerts(alerts: Sequence[Firing], events: Sequence[Event]) -> list[Firing]:
    """Alerts that began to fire when nothing explains them."""

    def is_explained(firing: Firing) -> bool:
        return any(
            firing.alert in MAY_FIRE.get(event.kind, frozenset())
            and event.begin <= firing.begin <= event.end + AFTERMATH_SECONDS
            for event in events
        )

    return [firing for firing in alerts if not is_explained(firing)]
