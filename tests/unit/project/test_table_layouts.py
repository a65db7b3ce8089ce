"""The counts and the page of the benchmark of the table's layouts, which does not run here."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from benchmarks import layouts_page
from benchmarks.table_questions import Question, ask_deltalake, may_hold, reading

BEGIN = datetime(2026, 11, 21, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two files of two row groups with two rows each: a topic a group, a second a row."""
    for first in (0, 4):
        rows = pa.table(
            {
                "topic": pa.array(["a", "a", "b", "b"]),
                "store_time": pa.array(
                    [BEGIN + n * SECOND for n in range(first, first + 4)], pa.timestamp("us", "UTC")
                ),
                "keys": pa.array([[f"k{n}", f"k{n}"] if n else None for n in range(first, first + 4)]),
                "msg_size": pa.array(range(first, first + 4), pa.int64()),
            }
        )
        properties = deltalake.WriterProperties(max_row_group_size=2, write_batch_size=2)
        deltalake.write_deltalake(str(tmp_path / "t"), rows, mode="append", writer_properties=properties)
    return tmp_path / "t"


@pytest.mark.parametrize(
    ("bounds", "key", "rows", "files", "row_groups"),
    [
        ({"store_time": (BEGIN, BEGIN + SECOND)}, None, 2, 1, 1),
        ({"store_time": (BEGIN + 3 * SECOND, BEGIN + 4 * SECOND)}, None, 2, 2, 2),
        ({"topic": ("b", "b")}, None, 4, 2, 2),
        ({"topic": ("b", "b"), "store_time": (BEGIN, BEGIN + SECOND)}, None, 0, 1, 0),
        ({}, "k5", 1, 2, 4),
    ],
)
def test_what_a_question_reads(
    bounds: dict[str, tuple[object, object]], key: str | None, rows: int, files: int, row_groups: int, table: Path
) -> None:
    """By the statistics of files and row groups; bytes only of the columns that the question needs."""
    question = Question("q", ("msg_size",), bounds, key)
    found = reading(table, question)
    assert ask_deltalake(table, question) == rows
    assert (found.files, found.row_groups, found.of_files, found.of_row_groups) == (files, row_groups, 2, 4)
    assert found.of_bytes * row_groups // 8 <= found.bytes <= found.of_bytes
    everything = reading(table, Question("q", ("msg_size", "topic", "store_time", "keys"), bounds, key))
    assert everything.of_bytes > found.of_bytes


def test_bounds_that_are_rounded_or_unknown_leave_nothing_out() -> None:
    rounded = BEGIN + timedelta(microseconds=999)
    assert may_hold(BEGIN, BEGIN, (rounded, rounded))
    assert not may_hold(BEGIN, BEGIN, (BEGIN + SECOND, BEGIN + SECOND))
    assert may_hold(None, None, ("a", "b"))


def test_the_page_says_what_was_measured() -> None:
    """The page has every result, and a tool's message stays one line."""
    question = {"question": "all", "rows": 5, "spark_s": 0.5, "deltalake_s": 0.25, "files": 1, "row_groups": 2}
    question |= {"bytes": 3 << 20, "of_files": 4, "of_row_groups": 5, "of_bytes": 6 << 20}
    layout = {
        "layout": "own",
        "upkeep_s_a_million": 1.5,
        "upkeep_bytes_a_million": 2 << 20,
        "files": 1234,
        "bytes_a_message": 20.5,
        "questions": [question],
        "oldest_day": {"removed": 7, "written": 8, "bytes_written": 9 << 20, "seconds": 1.25},
        "protocol": "reader 1, writer 2",
        "features": [],
        "users": {"deltalake reads": "yes", "deltalake appends": "no: it cannot"},
    }
    facts = {"machine": {"date": "today"}, "messages": 5000, "days": 5, "loaded_files": 3, "layouts": [layout]}
    page = layouts_page.page(facts | {"versions": {"deltalake": "1"}})
    for part in (
        "--messages 5000\n",
        "5,000 messages of 100 topics over 5 days; 3 files",
        "Measured: date today.",
        "| own | 1.5 | 2.0 | 1,234 | 20.5 |",
        "| own | 1 of 4 | 2 of 5 | 3.0 | 0.50 | 0.25 |",
        "| own | 7 | 8 | 9.0 | 1.2 |",
        "| deltalake appends | no |",
        "* own, deltalake appends: it cannot",
    ):
        assert part in page
