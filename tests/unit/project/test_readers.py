"""The comparison of rows in `make readers`, and the page with its results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from readers.__main__ import FILES, JAVA, LOG, READERS, Comparison, Reader, attempt
from readers.tables import Table, plain_row
from support.paths import ROOT

ROWS: list[dict[str, Any]] = [
    {
        "broker": "a",
        "physical_offset": 0,
        "topic": "订单",
        "keys": [],
        "properties": [("b", "1"), ("a", "")],
        "flag": 0,
    },
    {"broker": "a", "physical_offset": 9, "topic": "U", "keys": ["k"], "properties": [], "flag": -1},
]
TYPES = {"keys": pa.list_(pa.string()), "properties": pa.map_(pa.string(), pa.string())}
OWN_PYARROW = Reader("pyarrow", FILES, ("pyarrow",), "pyarrow", None)


def table_of(path: Path, rows: list[dict[str, Any]] | None = None) -> Table:
    """A table with these rows, that must have `ROWS`."""
    columns = {name: pa.array([row[name] for row in rows or ROWS], TYPES.get(name)) for name in ROWS[0]}
    write_deltalake(path, pa.table(columns))
    return Table("kind", path, {(row["broker"], row["physical_offset"]): plain_row(row) for row in ROWS})


def compared(*rows: dict[str, Any]) -> list[str]:
    table = Table("kind", Path("t"), {(row["broker"], row["physical_offset"]): plain_row(row) for row in ROWS})
    comparison = Comparison({"t": table})
    comparison.feed(json.dumps(line) for line in ("t", *rows))
    comparison.finish()
    return comparison.differences


def test_rows_in_another_order_are_equal() -> None:
    """The order of rows, columns and pairs does not count, and a null may be left out."""
    second = {"uniq_key": None, **dict(reversed(ROWS[1].items()))}
    assert compared(second, {**ROWS[0], "properties": [("a", ""), ("b", "1")]}) == []


@pytest.mark.parametrize(
    ("column", "value", "seen"),
    [
        ("topic", "订單", "topic is '订單' instead of '订单'"),
        ("keys", None, "keys is None instead of []"),
        ("flag", 0.0, "flag is 0.0 instead of 0"),
        ("flag", None, "flag is None instead of 0"),
        ("properties", [("b", "1")], "properties is"),
        ("body", "", "body is '' instead of None"),
    ],
)
def test_each_value_that_differs_is_seen(column: str, value: object, seen: str) -> None:
    (found,) = compared({**ROWS[0], column: value}, ROWS[1])
    assert seen in found


def test_rows_that_are_missing_or_too_many_are_seen() -> None:
    assert compared(ROWS[0]) == ["kind: rows that are missing: 1"]
    assert compared(*ROWS, ROWS[0]) == ["kind: a row that is not in the log, or twice: ('a', 0)"]


def test_a_reader_is_equal_only_if_each_value_is(tmp_path: Path) -> None:
    assert attempt(OWN_PYARROW, [table_of(tmp_path / "t")], tmp_path) == ("equal", "      2 rows  equal")
    wrong = table_of(tmp_path / "u", [ROWS[0], {**ROWS[1], "flag": 1}])
    assert attempt(OWN_PYARROW, [wrong], tmp_path) == ("differs", "      2 rows  differences: 1")


def test_a_reader_that_fails_differs_unless_it_is_known_to(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t")
    missing = replace(OWN_PYARROW, function="no_such_reader")
    assert attempt(missing, [table], tmp_path)[0] == "differs"
    outcome, words = attempt(replace(missing, refuses="KeyError"), [table], tmp_path)
    assert (outcome, words) == ("refuses", "      0 rows  does not read it: KeyError: 'no_such_reader'")


def test_a_reader_that_prints_no_rows_differs(tmp_path: Path) -> None:
    recipe = replace(JAVA, tool="echo", source="reader.mjs", steps=(), command=("echo", "no JSON"))
    reader = replace(OWN_PYARROW, recipe=recipe, packages=("pyarrow==1",))
    outcome, words = attempt(reader, [table_of(tmp_path / "t")], tmp_path)
    assert outcome == "differs"
    assert "what it prints is not a row" in words


def test_a_reader_without_its_tool_is_not_tried(tmp_path: Path) -> None:
    recipe = replace(JAVA, tool="no-such-tool")
    outcome, words = attempt(replace(OWN_PYARROW, recipe=recipe), [], tmp_path)
    assert (outcome, words) == ("not tried", f"not tried: needs {JAVA.get}")


def test_a_reader_that_cannot_be_installed_is_not_counted_as_not_tried(tmp_path: Path) -> None:
    recipe = replace(JAVA, tool="python3", steps=("python3 {packages}",))
    broken = replace(OWN_PYARROW, recipe=recipe, packages=("no-such-file==1",))
    outcome, words = attempt(broken, [], tmp_path)
    assert outcome == "not installed"
    assert "no-such-file" in words


def test_the_page_has_a_row_for_each_reader() -> None:
    page = (ROOT / "docs" / "readers.md").read_text(encoding="utf-8")
    rows = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in page.splitlines() if line.startswith("| ")]
    tried = [row for row in rows if row[2] in (LOG, FILES)]
    assert tried == [(reader.name, reader.version, reader.reads) for reader in READERS]
