"""The cost of metrics and page in throughput: a log is caught up with, scraped every second, and not scraped."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from broker.java_process import free_port

from benchmarks import machine, measure, report
from benchmarks.measure import Run
from benchmarks.shapes import SHAPES, made_log
from benchmarks.soaking.prometheus import get
from benchmarks.subjects import TAIL, ReputCase

MESSAGES = 10_000_000
ROUNDS = 10
SCRAPE_SECONDS, POLL_SECONDS = 1.0, 2.0
#: The share of the rate that may be lost, and of processor time that may be added.
COST_MAX = 0.01
PAGE, NAME = "soak.md", "soak-metrics-cost"


class Reader(threading.Thread):
    """Asks for a page every few seconds, even if there is no answer."""

    def __init__(self, url: str, every_s: float) -> None:
        super().__init__(daemon=True)
        self._url, self._every_s = url, every_s
        self._is_over = threading.Event()
        self.answers = 0

    def run(self) -> None:
        """Ask until told to stop."""
        while not self._is_over.wait(self._every_s):
            with suppress(OSError):
                get(self._url)
                self.answers += 1

    def stop(self) -> None:
        """End it."""
        self._is_over.set()
        self.join()


@dataclass(frozen=True)
class Case:
    """With metrics and readers of them, or without."""

    name: str
    is_read: bool


CASES = (Case("without", is_read=False), Case("with metrics and page", is_read=True))


def run(rounds: int, messages: int, work: Path, docs: Path | None, say: Callable[[str], None]) -> list[str]:
    """Measure in turn; a sentence if the rate is lower by more than is asked."""
    found_on = machine.facts(work)
    log = made_log(work, "metrics-cost", replace(SHAPES["standard"], messages=messages))
    port, answers = free_port(), []

    def one(case: Case) -> Run:
        options = (("metricsPort", str(port)),) if case.is_read else ()
        readers = [
            Reader(f"http://localhost:{port}/{path}", every)
            for path, every in (("metrics", SCRAPE_SECONDS), ("status", POLL_SECONDS))
            if case.is_read
        ]
        for reader in readers:
            reader.start()
        try:
            found = ReputCase(case.name, "without", options, has_table=True, command=TAIL).measure(log, work).run
        finally:
            for reader in readers:
                reader.stop()
        answers.extend(reader.answers for reader in readers)
        say(f"{case.name}: {found.messages / found.seconds:,.0f} messages/s")
        return found

    runs = measure.in_turn(CASES, rounds, one)
    without, with_both = (runs[case] for case in CASES)
    rate = Ratio.of_rounds([_rate(each) for each in with_both], [_rate(each) for each in without])
    cpu = Ratio.of_rounds([_cpu(each) for each in with_both], [_cpu(each) for each in without])
    rows = [
        [
            case.name,
            f"{statistics.median(map(_rate, found)):,.0f}",
            f"{min(map(_rate, found)):,.0f} to {max(map(_rate, found)):,.0f}",
            f"{statistics.median(map(_cpu, found)):.1f}",
        ]
        for case, found in runs.items()
    ]
    block = (
        f"{rounds} rounds of {messages:,} messages with a table; {machine.sentence(found_on)}.\n\n"
        f"{report.markdown_table(('metrics and page', 'messages/s', 'slowest to fastest', 'CPU s'), rows)}\n\n"
        f"Of a round, with metrics and page beside without: the rate is {rate}, processor time {cpu}, at the median."
    )
    wrong = too_dear(rate, cpu)
    if not all(answers):
        wrong.append(f"a reader got no answer, so that nothing was measured: {answers}")
    results = {
        "machine": found_on,
        "failed": wrong,
        "rate": asdict(rate),
        "processor_time": asdict(cpu),
        "answers": answers,
        "runs": {case.name: [asdict(each) for each in found] for case, found in runs.items()},
    }
    report.save(results, block, NAME, work, docs, PAGE)
    say(block)
    return wrong


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios of each round, and by how much chance may have moved it.

    A machine that slows down for a while slows both runs of a round. `uncertainty` is half of McGill's notch: two
    medians whose notches do not overlap differ, at a level of about 95 %.
    """

    median: float
    uncertainty: float

    @classmethod
    def of_rounds(cls, ours: Sequence[float], others: Sequence[float]) -> Ratio:
        """Ours divided by the other's of the same round; at least two rounds."""
        ratios = [one / other for one, other in zip(ours, others, strict=True)]
        lower, _, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        return cls(statistics.median(ratios), 1.57 * (upper - lower) / math.sqrt(len(ratios)))

    def __str__(self) -> str:
        return f"{self.median:.3f} (± {self.uncertainty:.3f})"


def too_dear(rate: Ratio, cpu: Ratio) -> list[str]:
    """Say what costs more than COST_MAX, at the median; empty if nothing does."""
    wrong = []
    if rate.median < 1 - COST_MAX:
        wrong.append(f"metrics and page take {100 * (1 - rate.median):.1f} % of the throughput")
    if cpu.median > 1 + COST_MAX:
        wrong.append(f"metrics and page add {100 * (cpu.median - 1):.1f} % of processor time")
    return wrong


def _rate(run: Run) -> float:
    return run.messages / run.seconds


def _cpu(run: Run) -> float:
    return run.usage.cpu_in_all
