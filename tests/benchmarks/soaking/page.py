"""A soak's results: figures as JSON, a block of docs/soak.md, and plots."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine, plots, report
from benchmarks.soaking.judgement import SERIES, Growth, Idle, growths, idles, of_process
from benchmarks.soaking.plan import EXTRAS
from benchmarks.soaking.run import Record
from benchmarks.soaking.samples import KINDS, MB, Sample

PAGE, NAME = "soak.md", "soak"
PROCESSES, FILES = "soak-processes", "soak-files"
#: Samples of the page's JSON file are a minute apart.
MINUTE = 60.0


def write(record: Record, samples: Sequence[Sample], wrong: Sequence[str], work: Path, docs: Path | None) -> None:
    """Write NAME.json, the plots and, with `docs`, the page's block; below `work` otherwise."""
    grown, quiet = growths(samples, record.begin, record.end), idles(samples, record.events)
    results: dict[str, Any] = {
        **record.as_dict(),
        "failed": list(wrong),
        "growth": [asdict(each) for each in grown],
        "idle": [asdict(each) for each in quiet],
        "samples": thin(samples, record.begin),
    }
    block = page_block(record, samples, wrong, grown, quiet)
    directory = report.save(results, block, NAME, work, docs, PAGE)
    marks = [
        (event.kind, minutes(event.begin, record), minutes(event.end, record))
        for event in record.events
        if event.kind != EXTRAS
    ]
    plots.over_time(process_panels(samples, record), marks, directory / f"{PROCESSES}.png", "The tail's processes")
    plots.over_time(
        file_panels(samples, record), marks, directory / f"{FILES}.png", "Its files, and how far it is behind"
    )
    print(block, flush=True)


def minutes(at: float, record: Record) -> float:
    """Minutes after the run's begin."""
    return (at - record.begin) / MINUTE


def thin(samples: Sequence[Sample], begin: float) -> dict[str, list[float | None]]:
    """A sample a minute, each figure of the judgement as a row."""
    kept: dict[int, Sample] = {}
    for sample in samples:
        kept.setdefault(int((sample.at - begin) // MINUTE), sample)
    rows: dict[str, list[float | None]] = {"minute": [round((each.at - begin) / MINUTE, 2) for each in kept.values()]}
    for series in SERIES:
        rows[series.name] = [None if (v := series.value(each)) is None else round(v, 2) for each in kept.values()]
    for name in sorted({name for each in kept.values() for name in each.shown}):
        rows[f"shown: {name}"] = [each.shown.get(name) for each in kept.values()]
    return rows


# --- plots -----------------------------------------------------------------------------------------------


def _line(
    samples: Sequence[Sample], record: Record, value: Callable[[Sample], float | None]
) -> list[tuple[float, float]]:
    """Points over minutes; a hole where there is no value."""
    found = [(minutes(sample.at, record), value(sample)) for sample in samples]
    return [(minute, float("nan") if each is None else each) for minute, each in found]


def process_panels(samples: Sequence[Sample], record: Record) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Memory, descriptors, threads and processor time of each kind of process."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for unit, name in (("memory, MB", "rss"), ("descriptors", "descriptors"), ("threads", "threads")):
        panels[unit] = {kind: _line(samples, record, of_process(kind, name)) for kind in KINDS}
    panels["cores"] = {kind: cores(samples, record, kind) for kind in KINDS}
    return panels


def cores(samples: Sequence[Sample], record: Record, kind: str) -> list[tuple[float, float]]:
    """Processor time of a kind between two samples of one run, a second."""
    found = []
    for before, after in zip(samples, samples[1:], strict=False):
        same = before.pid == after.pid and kind in before.processes and kind in after.processes
        took = after.processes[kind].cpu - before.processes[kind].cpu if same else float("nan")
        found.append((minutes(after.at, record), max(took, 0.0) / (after.at - before.at) if same else took))
    return found


def file_panels(samples: Sequence[Sample], record: Record) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Files and bytes by place, and what `/status` says of the lag."""

    def files(name: str, places: Sequence[str], per: float = 1.0) -> dict[str, list[tuple[float, float]]]:
        return {
            place: _line(samples, record, lambda each, place=place: getattr(each.files[place], name) / per)  # type: ignore[misc]
            for place in places
        }

    return {
        "files": files("files", ("output", "table", "checkpoint")),
        "MB": files("bytes", ("output", "table"), MB),
        "logs and\ncheckpoint, kB": files("bytes", ("logs", "checkpoint"), 1000.0),
        "behind, s": {
            query: _line(samples, record, lambda each, query=query: each.shown.get(f"{query} seconds"))  # type: ignore[misc]
            for query in ("logic", "table")
        },
    }


# --- the page --------------------------------------------------------------------------------------------


def page_block(
    record: Record, samples: Sequence[Sample], wrong: Sequence[str], grown: Sequence[Growth], quiet: Sequence[Idle]
) -> str:
    """The verdict and round figures, as Markdown."""
    verdict = "Nothing failed." if not wrong else "\n".join(["What failed:", "", *(f"* {line}" for line in wrong)])
    parts = [
        (
            f"{record.minutes:g} minutes, RocketMQ {record.release}, {record.rate} messages/s; "
            f"{machine.sentence(record.machine)}."
        ),
        verdict,
        f"![Memory, descriptors, threads and cores over the run](benchmarks/{PROCESSES}.png)",
        f"![Files, bytes and lag over the run](benchmarks/{FILES}.png)",
        report.markdown_table(("compared at the end", "number"), _compared(record)),
        report.markdown_table(
            ("while messages come", "median", "most", "an hour, from restart to restart"), _figures(samples, grown)
        ),
        report.markdown_table(("event", "minute", "what was seen"), _events(record)),
        _alerts(record),
        *(
            f"Idle, minute {minutes(idle.begin, record):.0f} to {minutes(idle.end, record):.0f}: {_idle(idle)}."
            for idle in quiet
        ),
    ]
    return "\n\n".join(parts)


def _compared(record: Record) -> list[list[str]]:
    found = record.equality
    return [
        ["messages of the log", f"{found.messages:,}"],
        ["rows of the table", f"{found.rows:,}"],
        ["queue entries", f"{found.entries:,}"],
        ["queue and index files, those that had expired among them", f"{found.files:,}"],
        ["messages that expired unread", f"{found.expired_unread:,}"],
        ["differences", f"{len(found.wrong):,}"],
    ]


def _figures(samples: Sequence[Sample], grown: Sequence[Growth]) -> list[list[str]]:
    rows = []
    for series in SERIES:
        values = [value for sample in samples if (value := series.value(sample)) is not None]
        if not values:
            continue
        slopes = [f"{each.an_hour:+,.3g}" for each in grown if each.series == series.name]
        name = f"{series.name}, {series.unit}" if series.unit else series.name
        rows.append([name, f"{statistics.median(values):,.3g}", f"{max(values):,.3g}", "; ".join(slopes) or "-"])
    return rows


def _events(record: Record) -> list[list[str]]:
    return [[event.kind, f"{minutes(event.begin, record):.1f}", event.words] for event in record.events]


def _alerts(record: Record) -> str:
    if not record.alerts:
        return "No alert fired."
    told = [
        f"{firing.alert} from minute {minutes(firing.begin, record):.1f} to {minutes(firing.end, record):.1f}"
        for firing in record.alerts
    ]
    return f"Alerts that fired: {', '.join(told)}."


def _idle(idle: Idle) -> str:
    shares = ", ".join(f"{kind} {100 * share:.2f} %" for kind, share in idle.by_kind.items())
    return f"all processes together {100 * idle.share:.2f} % of a core ({shares})"
