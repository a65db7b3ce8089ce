"""Cases that proofs counted themselves, added up to one line each at the end of a run.

A test that takes the fixture `proof` calls ``proof("G6 crash points")`` once a case, or with a number. The run ends
with lines such as ``G6 crash points: 6,120, 0 failures``: a failure is a test that counted such cases and failed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

PROPERTY = "proof"


class Proof:
    """Counts the cases of one test; what it counted belongs to the test's report."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}  # plain, so that a report can travel between processes

    def __call__(self, what: str, count: int = 1) -> None:
        """Add cases of `what`, which begins with the guarantee: ``G6 crash points``."""
        self.counts[what] = self.counts.get(what, 0) + int(count)


def summary_lines(passed: Iterable[Any], failed: Iterable[Any]) -> list[str]:
    """One line for everything counted, from pytest's reports, by guarantee."""
    cases: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for reports, counter in ((passed, Counter()), (failed, failures)):
        for report in reports:
            for name, counts in getattr(report, "user_properties", ()):
                if name == PROPERTY and report.when == "call":
                    cases.update(counts)
                    counter.update(dict.fromkeys(counts, 1))
    by_guarantee = sorted(cases, key=lambda what: (int((re.findall(r"\d+", what) or ["0"])[0]), what))
    return [f"{what}: {cases[what]:,}, {failures[what]} failures" for what in by_guarantee]
