"""The report of `reput verify`: a line for each section with its first differences, or all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.markup import escape

from reput.sinks.findings import Difference
from reput.source.printable import counted, printable
from reput.streaming.verify.store_verification import StoreSection, VerifyReport

_SHOWN = 5


def as_json(report: VerifyReport) -> str:
    """The report as one JSON object, whose fields are stable."""
    return json.dumps(
        {
            "store": str(report.store),
            "output": str(report.output),
            "running": report.holder,
            "log": {"start": report.log_start, "compared_until": report.limit, "end": report.log_end},
            "messages": report.messages,
            "differences": report.differences,
            "parts": {
                section.name: {
                    "compared": section.compared,
                    "differences": section.findings.differences,
                    "by_kind": dict(section.findings.counts),
                    "first": section.findings.as_dict()["differences"],
                    "notes": dict(section.findings.notes),
                    **({"remarks": section.findings.remarks} if section.findings.remarks else {}),
                    **({"advice": section.advice} if section.advice else {}),
                    **({"not_seen": section.not_seen} if section.not_seen else {}),
                }
                for section in report.sections
            },
            "sha256": dict(report.digests),
        },
        indent=1,
    )


# What was compared, one and several of it.
_ONE: Final = {
    "messages": "message",
    "queues": "queue",
    "entries": "entry",
    "files": "file",
    "keys": "key",
    "rows": "row",
    "columns": "column",
}


def print_report(report: VerifyReport, console: Console) -> None:
    """Print the report for people."""
    if report.holder is not None:
        text = f"{report.holder} runs on {report.output} now: what it writes meanwhile is not compared"
        console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
    console.print(f"log [{report.log_start}, {report.limit}): {counted(report.messages, 'message')}", markup=False)
    for section in report.sections:
        console.print(_line(section), soft_wrap=True, highlight=False)
        for remark in section.findings.remarks[:_SHOWN]:
            console.print(f"  {printable(remark)}", markup=False, highlight=False, soft_wrap=True)
        for difference in section.findings.first[:_SHOWN]:
            console.print(f"  {_describe(difference)}", markup=False, highlight=False, soft_wrap=True)
        more = section.findings.differences - min(len(section.findings.first), _SHOWN)
        if more > 0:
            console.print(f"  and {more} more (--json tells 20 of each part)", markup=False, highlight=False)
        if section.not_seen:
            console.print(f"  {printable(section.not_seen)}", markup=False, highlight=False, soft_wrap=True)
        if section.advice:
            console.print(f"  {section.advice}", markup=False, highlight=False, soft_wrap=True)
    verdict = "nothing differs" if not report.differences else counted(report.differences, "difference")
    console.print(verdict, style="bold green" if not report.differences else "bold red", highlight=False)


def _line(section: StoreSection) -> str:
    compared = ", ".join(counted(count, _ONE.get(what, what), what) for what, count in section.compared.items())
    found = section.findings.differences
    verdict = f"[red]{_counts(section.findings.counts.items())}[/red]" if found else "[green]agrees[/green]"
    notes = _counts(section.findings.notes.items())
    return f"{section.name:<11}{escape(compared) + ': ' if compared else ''}{verdict}{f' ({notes})' if notes else ''}"


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts)


def _describe(difference: Difference) -> str:
    where = difference.file or ""
    if difference.byte_offset is not None:
        where += f", byte {difference.byte_offset}"
    return printable(f"{where}: {difference.text}" if where else difference.text)
