"""Dumps as tests ask for them: the lines of JSON, taken apart."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.settings import Settings
from reput.streaming.dump.dump import DumpRequest, Streams, dump_file, dump_store
from reput.streaming.dump.entry_files import FileKind


@dataclass
class Dumped:
    """The output of a dump: its header, its rows, its totals, and its notes."""

    rows: list[dict[str, Any]]
    totals: dict[str, Any]
    header: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """How many of each verdict, by the totals."""
        return {verdict: each["count"] for verdict, each in self.totals["verdicts"].items()}

    def of(self, verdict: str) -> list[dict[str, Any]]:
        """The rows of one verdict."""
        return [row for row in self.rows if row["verdict"] == verdict]

    def offsets(self) -> list[int]:
        """The physical offsets of all rows."""
        return [row["physical_offset"] for row in self.rows]


def log_dump(config: PipelineConfig, **request: Any) -> Dumped:
    """The dump of a store's log."""
    out, notes = io.StringIO(), list[str]()
    dump_store(config, DumpRequest(as_json=True, **request), Streams(out, notes.append))
    return _taken_apart(out.getvalue(), notes)


def file_dump(path: Path, settings: Settings | None = None, kind: FileKind | None = None, **request: Any) -> Dumped:
    """The dump of one file."""
    out, notes = io.StringIO(), list[str]()
    dump_file(path, kind, settings or Settings(), DumpRequest(as_json=True, **request), Streams(out, notes.append))
    return _taken_apart(out.getvalue(), notes)


def _taken_apart(text: str, notes: list[str]) -> Dumped:
    # All at once: line by line would take most of the time of tests that dump whole stores.
    said = text.splitlines()
    lines = json.loads(f"[{','.join(said)}]")
    assert len(lines) == len(said)
    header = lines.pop(0)["header"] if "header" in lines[0] else {}
    totals = lines.pop()["totals"]
    return Dumped(lines, totals, header, notes)
