"""What metrics and page take of the throughput: a log is caught up with, scraped every second, and not scraped."""

from __future__ import annotations

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

MESSAGES = 5_000_000
SCRAPE_SECONDS, POLL_SECONDS = 1.0, 2.0
LOSS_MAX = 0.01
PAGE, NAME = "soak.md", "soak-metrics-cost"


class Reader(threading.Thread):
    """Asks for a page every so many seconds, whether somebody answers or not."""

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
    rates = {case.name: [each.messages / each.seconds for each in found] for case, found in runs.items()}
    ratio = pairwise_ratio(rates[CASES[1].name], rates[CASES[0].name])
    rows = [
        [name, f"{statistics.median(found):,.0f}", f"{min(found):,.0f} to {max(found):,.0f}"]
        for name, found in rates.items()
    ]
    block = (
        f"{rounds} rounds of {messages:,} messages with a table; {machine.sentence(found_on)}.\n\n"
        f"{report.markdown_table(('metrics and page', 'messages/s', 'slowest to fastest'), rows)}\n\n"
        f"With metrics and page the rate is {ratio:.3f} of that without, at the median of the rounds."
    )
    wrong = [f"metrics and page take {100 * (1 - ratio):.1f} % of the throughput"] if ratio < 1 - LOSS_MAX else []
    if not all(answers):
        wrong.append(f"a reader got no answer, so that nothing was measured: {answers}")
    results = {
        "machine": found_on,
        "failed": wrong,
        "ratio": ratio,
        "answers": answers,
        "runs": {case.name: [asdict(each) for each in found] for case, found in runs.items()},
    }
    report.save(results, block, NAME, work, docs, PAGE)
    say(block)
    return wrong


def pairwise_ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios of each round: what slows the machine for a while slows both of a round."""
    return statistics.median(one / other for one, other in zip(ours, others, strict=True))
