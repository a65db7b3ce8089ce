"""`reput report` as a command: where the page goes, what it takes, what an output adds, and how it fails."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from support.command_line import invoke
from support.report_page import ReportPage
from support.report_tables import HOSTILE, row_of, write_rows
from typer.testing import Result

from reput.sinks.quarantine import QuarantinedRange
from reput.sinks.table.quarantine_table import QUARANTINE_SCHEMA, quarantine_table_path
from reput.streaming.status.batch_report import BatchReport
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import StatusFile


def report(*words: object) -> Result:
    return invoke(["report", *map(str, words)])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions of a row each."""
    path = tmp_path_factory.mktemp("report") / "table"
    for number in range(2):
        write_rows(path, [row_of(queue_offset=number)])
    return path


def state(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_it_writes_one_file_and_nothing_else(table: Path, tmp_path: Path) -> None:
    """It replaces the earlier one; the table is unchanged."""
    before, html = state(table), tmp_path / "report.html"
    html.write_text("the last one")
    done = report("--table", table, "--html", html, "--title", "Orders & <more>")
    assert done.exit_code == 0
    assert done.output.startswith(f"{html}: 2 messages, 0 findings, version 1 of the table, ")
    page = ReportPage(html.read_text())
    assert "Orders & <more>" in page.text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert state(table) == before


def test_an_older_version_and_a_period(table: Path, tmp_path: Path) -> None:
    """They are what the page is of, and it says so."""
    html = tmp_path / "report.html"
    words = ("--at", 0, "--since", "2026-01-31T12:00:00Z", "--until", "2026-01-31T12:00:00.001Z", "--topic", "T*")
    done = report("--table", table, "--html", html, *words)
    assert done.exit_code == 0, done.output
    page = ReportPage(html.read_text())
    assert page.tiles["Messages"][0] == "1"
    assert "period" in page.text
    assert "from 2026-01-31 12:00:00 UTC until before 2026-01-31 12:00:00 UTC" in page.text
    assert "version0topicsT*" in page.text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--html", "{table}/report.html"), 2, "is in the table that is read"),
        (("--html", "{other}/sub/report.html"), 2, "is in a Delta table"),
        (("--html", "{tmp}/commitlog/report.html"), 2, "is among the files of a log or a queue"),
        (("--html", "{tmp}/log/report.html"), 2, "is among the files of a log or a queue"),
        (("--html", "{tmp}"), 2, "is not a file"),
        (("--html", "{tmp}/none/report.html"), 1, "No such file or directory"),
        (("--html", "{tmp}/r.html", "--at", "7"), 2, "has no version 7"),
        (("--html", "{tmp}/r.html", "--since", "soon"), 2, "milliseconds since 1970 wanted"),
        (("--html", "{tmp}/r.html", "--since", "999999999999999999"), 2, "outside the years 1 to 9999"),
        (("--html", "{tmp}/r.html", "--since", "5", "--until", "5"), 2, "--until must be later than --since"),
        (("--html", "{tmp}/r.html", "--title", " "), 2, "--title is empty"),
        (("--html", "{tmp}/r.html", "--output", "{tmp}/none"), 1, "the directory does not exist"),
        (("--html", "{tmp}/r.html", "--option", "sqlMaxMemory=1"), 2, "sqlMaxMemory"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], code: int, said: str, table: Path, tmp_path: Path) -> None:
    """In one line, and nothing is written."""
    other = tmp_path / "other"
    (other / "_delta_log").mkdir(parents=True)
    (other / "sub").mkdir()
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{0:020d}").write_bytes(b"\0" * 8)
    before, table_before = state(tmp_path), state(table)
    done = report("--table", table, *(word.format(table=table, other=other, tmp=tmp_path) for word in words))
    assert done.exit_code == code
    assert said in done.output
    assert len(done.output.splitlines()) == 1
    assert (state(tmp_path), state(table)) == (before, table_before)


def test_tables_that_are_none_of_reputs(tmp_path: Path) -> None:
    """A directory, and a Delta table of something else."""
    html = tmp_path / "r.html"
    assert "does not exist" in report("--table", tmp_path / "none", "--html", html).output
    deltalake.write_deltalake(str(tmp_path / "foreign"), pa.table({"topic": ["a"]}))
    done = report("--table", tmp_path / "foreign", "--html", html)
    assert (done.exit_code, "has no column broker" in done.output) == (1, True)
    assert not html.exists()


def test_too_little_memory_leaves_the_last_page(table: Path, tmp_path: Path) -> None:
    """And the line says what to do."""
    big = tmp_path / "table"
    topics = pa.array([f"{number:0200d}" for number in range(200_000)])
    rows = pa.Table.from_pylist([row_of()] * 1, deltalake_schema(table)).take([0] * len(topics))
    deltalake.write_deltalake(str(big), rows.set_column(rows.schema.get_field_index("topic"), "topic", topics))
    html = tmp_path / "r.html"
    html.write_text("the last one")
    done = report("--table", big, "--html", html, "--option", "sqlMaxMemory=64m")
    assert done.exit_code == 75
    assert "sqlMaxMemory=8g" in done.output
    assert html.read_text() == "the last one"


def deltalake_schema(table: Path) -> pa.Schema:
    return pa.schema(deltalake.DeltaTable(str(table)).schema().to_arrow())


def test_without_matplotlib_it_says_how_to_get_it(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, before anything is computed."""
    for name in [name for name in sys.modules if name.startswith("reput.streaming.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = report("--table", table, "--html", tmp_path / "r.html")
    assert done.exit_code == 1
    assert "the module matplotlib is missing" in done.output
    assert f"{sys.executable} -m pip install matplotlib" in done.output
    assert len(done.output.splitlines()) == 1


def quarantined(broker: str, offset: int, length: int, cause: str) -> QuarantinedRange:
    return QuarantinedRange(broker, offset, length, cause, "f", 0, "00", "2026-01-31T12:00:00.000Z", "quarantine")


def test_damage_and_lag_of_an_output(table: Path, tmp_path: Path) -> None:
    """Ranges of the table beside the table and of the output, each once; what the tail last said of itself."""
    output, html = tmp_path / "out", tmp_path / "r.html"
    (output / "reput").mkdir(parents=True)
    lines = [quarantined("b", 1_000, 50, "BAD_CRC"), quarantined("b", 5_000, 7, HOSTILE[1])]
    (output / "reput" / "quarantine.jsonl").write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))
    rows = [asdict(lines[0]), asdict(quarantined("c", 1_000, 300, "BAD_CRC"))]
    beside = quarantine_table_path(table)
    deltalake.write_deltalake(str(beside), pa.Table.from_pylist(rows, QUARANTINE_SCHEMA))
    run = RunState("b")
    run.on_running("table", 0)
    run.on_batch(BatchReport("table", 0, 100, 4, 0.1, quarantined=Counter(BAD_CRC=1)))
    run.on_finding("table", f"found {HOSTILE[0]}")
    StatusFile(output, run).write({}, 0.0, at_once=True)

    done = report("--table", table, "--html", html, "--output", output)
    assert done.exit_code == 0, done.output
    page = ReportPage(html.read_text())
    assert [list(row.values()) for row in page.rows("Parts of the log that were left out")] == [
        ["c", "BAD_CRC", 1, 300, 1_000],
        ["b", "BAD_CRC", 1, 50, 1_000],
        ["b", HOSTILE[1], 1, 7, 5_000],
    ]
    assert "3 parts of the log left out, 357 B together" in page.text
    assert "The table is not kept as it should be: stopped" in page.text  # the output's lock is free
    (behind,) = page.rows("How far each is behind the log")
    assert (behind["broker"], behind["what"], behind["state"]) == ("b", "the table", "running")
    assert f"table: found {HOSTILE[0]}" in page.text


def test_an_output_that_no_tail_has_kept(table: Path, tmp_path: Path) -> None:
    """It says nothing of lag, and the page says that."""
    (tmp_path / "out").mkdir()
    done = report("--table", table, "--html", tmp_path / "r.html", "--output", tmp_path / "out")
    assert done.exit_code == 0
    assert "No tail has left word" in ReportPage((tmp_path / "r.html").read_text()).text
