"""The results of a run of the live break test: a line for each event, a table by kind, and JSON."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from faults.live_break.judge import Verdict
from faults.live_break.tail import ugly_lines

UGLY_SHOWN = 3


@dataclass
class Outcome:
    """The consequences of one event.

    Attributes
    ----------
    codes, said
        Exit codes of the runs that ended, and the line each ended with.
    ways
        Commands that it asked for, and that were run.
    seconds
        From the event, once done, until the tail had everything that was in the log by then.
    complaints
        Promises that were not kept.
    """

    kind: str
    codes: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ways: list[str] = field(default_factory=list)
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)
    is_over: bool = False

    def complain(self, what: str) -> None:
        """Note a promise that was not kept."""
        self.complaints.append(what)

    def look_at(self, said: str) -> None:
        """Complain about output that users should not see."""
        ugly = ugly_lines(said)
        if ugly:
            first = " / ".join(ugly[:UGLY_SHOWN])
            self.complain(f"{len(said.splitlines())} lines printed, {len(ugly)} of them ugly: {first}")

    def line(self) -> str:
        """The event in one line, its complaints below."""
        ways = f", then reput {', reput '.join(self.ways)}" if self.ways else ""
        ended = f"ended with {', '.join(map(str, self.codes))}{ways}" if self.codes else "went on"
        told = f": {self.said[0][:160]}" if self.said else ""
        return "\n".join(
            [f"{self.kind:16} {self.seconds:5.1f} s  {ended}{told}", *(f"      WRONG: {c}" for c in self.complaints)]
        )


@dataclass
class Report:
    """All events of a run and the comparison at its end."""

    release: str
    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    verdict: Verdict = field(default_factory=lambda: Verdict(wrong=["the run did not come to its end"]))

    @property
    def wrong(self) -> list[str]:
        """Everything that was not as promised."""
        events = [f"{outcome.kind}: {complaint}" for outcome in self.outcomes for complaint in outcome.complaints]
        return [*events, *self.verdict.wrong]

    def table(self) -> str:
        """Kinds of events, how often, exit codes, seconds until it was going again, promises not kept."""
        lines = [f"{'event':18}{'times':>6}{'median s':>10}{'most s':>8}{'wrong':>7}  ended with, said"]
        for kind in sorted({outcome.kind for outcome in self.outcomes}):
            those = [outcome for outcome in self.outcomes if outcome.kind == kind]
            seconds = [outcome.seconds for outcome in those]
            wrong = sum(bool(outcome.complaints) for outcome in those)
            codes = Counter(str(outcome.codes[0]) if outcome.codes else "went on" for outcome in those)
            ended = ", ".join(f"{code} ({count})" for code, count in codes.most_common())
            said = next((outcome.said[0] for outcome in those if outcome.said), "")
            figures = f"{statistics.median(seconds):10.1f}{max(seconds):8.1f}{wrong:7}"
            lines.append(f"{kind:18}{len(those):6}{figures}  {ended}{': ' + said[:100] if said else ''}")
        verdict = self.verdict
        lines += [
            "",
            f"messages in the log    {verdict.messages}",
            f"rows in the table      {verdict.rows}",
            f"files compared         {verdict.files}",
            f"expired unread         {', '.join(f'{sink} {n}' for sink, n in verdict.expired_unread.items()) or 0}",
            f"wrong                  {len(self.wrong)}",
        ]
        return "\n".join([*lines, *(f"  {line}" for line in self.wrong)])

    def write(self, path: Path) -> None:
        """The whole of it as JSON."""
        path.write_text(json.dumps({**asdict(self), "wrong": self.wrong}, indent=1) + "\n")
