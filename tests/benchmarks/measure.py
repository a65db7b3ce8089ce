"""The figures kept of a run, and those computed from several: medians and ratios. Opens nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Usage:
    """Processor time in seconds and peak memory in MB by kind of process.

    `own_mb` leaves out pages of mapped files: memory that goes when the process does. Of several processes of a kind
    memory is that of the largest, processor time the sum.
    """

    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    peak_mb: Mapping[str, float] = field(default_factory=dict)
    own_mb: Mapping[str, float] = field(default_factory=dict)

    @property
    def cpu_in_all(self) -> float:
        """Seconds of all kinds together."""
        return sum(self.cpu_seconds.values())


@dataclass(frozen=True)
class Run:
    """One run of one case. Seconds: of the work alone, and in all from the start of the first process."""

    messages: int
    seconds: float
    seconds_in_all: float
    usage: Usage
    #: How many files were compared with the broker's and found equal; 0: there was nothing to compare with yet.
    files_equal: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """Medians of a case's runs; `rate_min` and `rate_max` are the slowest and the fastest run."""

    case: str
    base: str
    runs: int
    messages: int
    seconds: float
    seconds_in_all: float
    rate_min: float
    rate_max: float
    cpu_seconds: float
    own_mb: Mapping[str, float]
    peak_mb: Mapping[str, float]
    files_equal: int

    @property
    def rate(self) -> float:
        """Messages a second without start-up."""
        return self.messages / self.seconds

    @property
    def rate_in_all(self) -> float:
        """Messages a second with start-up."""
        return self.messages / self.seconds_in_all

    @property
    def micros(self) -> float:
        """Microseconds a message without start-up."""
        return self.seconds / self.messages * 1e6

    @property
    def cpu_micros(self) -> float:
        """Microseconds of processor time a message, of all processes, start-up included."""
        return self.cpu_seconds / self.messages * 1e6


def summarize(case: str, base: str, runs: Sequence[Run]) -> Summary:
    """Medians of at least one run, all of the same number of messages.

    `files_equal` is the least of the runs that were compared.
    """
    counts = {run.messages for run in runs}
    if len(counts) != 1:
        raise ValueError(f"{case}: runs of different numbers of messages, {sorted(counts)}")
    rates = [run.messages / run.seconds for run in runs]
    return Summary(
        case=case,
        base=base,
        runs=len(runs),
        messages=counts.pop(),
        seconds=statistics.median(run.seconds for run in runs),
        seconds_in_all=statistics.median(run.seconds_in_all for run in runs),
        rate_min=min(rates),
        rate_max=max(rates),
        cpu_seconds=statistics.median(run.usage.cpu_in_all for run in runs),
        own_mb=_medians([run.usage.own_mb for run in runs]),
        peak_mb=_medians([run.usage.peak_mb for run in runs]),
        files_equal=min((run.files_equal for run in runs if run.files_equal), default=0),
    )


def ratio(summary: Summary, others: Iterable[Summary]) -> float | None:
    """How many times the rate of its base it has; None when the base was not measured."""
    for other in others:
        if other.case == summary.base:
            return summary.rate / other.rate
    return None


def in_turn(cases: Sequence[T], rounds: int, measure: Callable[[T], Run]) -> dict[T, list[Run]]:
    """Measure every case once a round: what slows the machine for a while slows all of them.

    Every second round has the other order, so that no case always runs behind the same one.
    """
    runs: dict[T, list[Run]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in reversed(cases) if number % 2 else cases:
            runs[case].append(measure(case))
    return runs


def as_dict(summary: Summary, runs: Sequence[Run]) -> dict[str, Any]:
    """Everything, for a JSON file."""
    return {**asdict(summary), "rate": summary.rate, "all_runs": [asdict(run) for run in runs]}


def _medians(values: Sequence[Mapping[str, float]]) -> dict[str, float]:
    kinds = {kind for value in values for kind in value}
    return {kind: statistics.median(value.get(kind, 0.0) for value in values) for kind in sorted(kinds)}
