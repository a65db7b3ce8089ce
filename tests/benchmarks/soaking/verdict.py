"""The failures of a soak, in sentences; a good soak has none."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.soaking.judgement import IDLE_SHARE_MAX, false_alerts, growths, idles
from benchmarks.soaking.plan import EXPIRE, KILL, QUIET
from benchmarks.soaking.run import SAMPLE_SECONDS, Record
from benchmarks.soaking.samples import Sample

MINUTES_TO_JUDGE_GROWTH = 45.0
SAMPLES_LEAST = 0.9


def failures(record: Record, samples: Sequence[Sample]) -> list[str]:
    """Every promise of the run that was not kept."""
    found = [*record.complaints, *record.equality.wrong]
    if not record.equality.messages or not record.equality.files:
        found.append("nothing was compared")
    if record.verify_code != 0:
        found.append(f"reput verify ended with {record.verify_code}")
    if record.exit_code != 0:
        found.append(f"the tail ended with {record.exit_code} when it was stopped")
    expected = (record.end - record.begin) / SAMPLE_SECONDS
    if len(samples) < SAMPLES_LEAST * expected:
        found.append(f"{len(samples)} samples instead of {expected:.0f}")
    kills = sum(event.kind == KILL for event in record.events)
    if len(record.starts) != 1 + kills:
        codes = [start["code"] for start in record.starts]
        found.append(f"{len(record.starts)} starts of the tail for {kills} kills, which ended with {codes}")
    if not any(event.kind == EXPIRE and not event.words.startswith("failed") for event in record.events):
        found.append("no segment has expired")
    for growth in growths(samples, record.begin, record.end):
        if growth.is_wrong:
            place = f"from minute {(growth.begin - record.begin) / 60:.0f} to {(growth.end - record.begin) / 60:.0f}"
            found.append(
                f"{growth.series} grow by {growth.an_hour:,.1f} {growth.unit} an hour {place}, "
                f"{growth.allowed:,.1f} is allowed at a median of {growth.median:,.1f}"
            )
    quiet = idles(samples, record.events)
    if len(quiet) < sum(event.kind == QUIET for event in record.events):
        found.append("a quiet stretch was disturbed, so that nothing can be said of it")
    found += [
        f"an idle tail takes {100 * idle.share:.1f} % of a core" for idle in quiet if idle.share >= IDLE_SHARE_MAX
    ]
    for firing in false_alerts(record.alerts, record.events):
        found.append(
            f"{firing.alert} fired in minute {(firing.begin - record.begin) / 60:.1f} for nothing: {firing.labels}"
        )
    if record.minutes < MINUTES_TO_JUDGE_GROWTH:
        found.append(f"a run of {record.minutes:g} minutes is too short to say that nothing grows")
    return list(dict.fromkeys(found))
