"""The forms of a query's rows, and the errors about a path without a table; no Spark is started."""

from __future__ import annotations

import io
import json
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from support.command_line import run_reput

from reput.source.errors import OptionError, OutputError
from reput.streaming.output.paths import check_table
from reput.streaming.sql.output import Result, write_result

HOSTILE = "a\x1b]0;x\x07\x9b31m\u202eb\u2028c\td\x7f"


class Rows(Result):
    """Rows in a list."""

    def __init__(self, columns: list[str], *rows: tuple[Any, ...]) -> None:
        self.names, self._rows = columns, rows

    def rows(self) -> Iterator[Sequence[Any]]:
        return iter(self._rows)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        table = pa.Table.from_pylist([dict(zip(self.names, row, strict=True)) for row in self._rows])
        return table.schema, iter(table.to_batches())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(rows: Rows, output_format: str, *, out: io.StringIO | None = None, **how: Any) -> str:
    out = out or io.StringIO()
    width = how.pop("width", 200)
    console = Console(file=out, width=width, force_terminal=how.pop("terminal", True), color_system=None)
    write_result(rows, output_format, out, console=console, **how)
    return out.getvalue()


def is_harmless(text: str) -> bool:
    return not any(unicodedata.category(one) in {"Cc", "Cf", "Zl", "Zp"} for one in text.replace("\n", ""))


def test_csv_tells_null_from_empty_and_has_plain_line_ends() -> None:
    """NULL is nothing, an empty text two quotes; booleans are lower case; a line ends with a line feed."""
    text = written(
        Rows(["a", "b", "c", "d", "e"], (None, "", True, 1.5, 'x,"y"\r\nz'), (False, " a", 0, float("nan"), "p")), "csv"
    )
    assert text == 'a,b,c,d,e\n,"",true,1.5,"x,""y""\r\nz"\nfalse," a",0,NaN,p\n'


def test_values_of_other_types() -> None:
    """Times have milliseconds, or all they have; decimals no exponent; bytes are base64; the rest is JSON."""
    times = (datetime(2020, 1, 2, 3, 4, 5, 6000), datetime(2020, 1, 2, 3, 4, 5, 6), date(2020, 1, 2))  # noqa: DTZ001
    values = (*times, Decimal("1E+3"), bytearray(b"\x00\xff"), ["a", None], {1: datetime(2020, 1, 1)}, {"x": True})  # noqa: DTZ001
    rows = Rows(list("abcdefgh"), values)
    assert written(rows, "csv").splitlines()[1] == (
        "2020-01-02 03:04:05.006,2020-01-02 03:04:05.000006,2020-01-02,1000,AP8=,"
        '"[""a"", null]","{""1"": ""2020-01-01 00:00:00.000""}","{""x"": true}"'
    )
    found = json.loads(written(rows, "json"))
    assert (found["d"], found["e"], found["f"]) == ("1000", "AP8=", ["a", None])
    assert (found["g"], found["h"]) == ({"1": "2020-01-01 00:00:00.000"}, {"x": True})
    assert json.loads(written(Rows(["x", "y"], (float("inf"), float("nan"))), "json")) == {"x": "Infinity", "y": "NaN"}


@pytest.mark.parametrize("value", [HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}], ids=["text", "list", "map"])
def test_text_of_producers_is_harmless(value: object) -> None:
    """To a terminal in each form, and in JSON always, where it stays the same value; CSV in a file is exact."""
    rows = Rows([HOSTILE], (value,))
    for output_format in ("table", "csv", "json", "markdown"):
        assert is_harmless(written(rows, output_format, out=Terminal()))
    assert json.loads(written(rows, "json")) == {HOSTILE: value}
    assert is_harmless(written(rows, "json"))
    if isinstance(value, str):
        assert written(rows, "csv") == f"{HOSTILE}\n{HOSTILE}\n"


def test_a_terminal_has_numbers_on_the_right() -> None:
    """Counts have separators, also in blocks; offsets, which are copied into options, have none, nor has a file."""
    rows = Rows(["topic", "messages", "queue_offset"], ("A", 1234567, 7654321), ("B", None, 1))
    assert written(rows, "table").splitlines()[3:5] == [
        "│ A     │ 1,234,567 │      7654321 │",
        "│ B     │      NULL │            1 │",
    ]
    assert "  messages     | 1,234,567\n" in written(rows, "table", width=20)
    assert "│ A     │ 1234567  │ 7654321      │\n" in written(rows, "table", terminal=False)
    total = Rows(["count_star()", "x"], (12345, 0.5), (1, 10.25))
    assert "│       12,345 │   0.5 │" in written(total, "table")


def test_csv_safe_makes_formulas_text() -> None:
    """Texts that a spreadsheet would compute get an apostrophe; numbers, also as text, stay what they are."""
    texts = ("=1+1", "+a", "-b", "@x", "\tx", "\rx", "\uff1dx")
    rows = Rows([str(number) for number in range(10)], (*texts, -5, "-5.5", "a=b"))
    assert written(rows, "csv", csv_safe=True).split("\n", 1)[1] == (
        "'=1+1,'+a,'-b,'@x,'\tx,\"'\rx\",'\uff1dx,-5,-5.5,a=b\n"
    )
    assert "'" not in written(rows, "csv")


def test_tables_tell_null_from_empty_and_markdown_has_no_markup() -> None:
    """NULL is a word, an empty text nothing; what Markdown would take for markup is text."""
    rows = Rows(["a_b", "c"], (None, ""), ("<b>|`x`", "[y](z)"))
    assert written(rows, "markdown").splitlines() == [
        r"| a\_b | c |",
        "|---|---|",
        "| NULL |  |",
        r"| \<b\>\|\`x\` | \[y\](z) |",
    ]
    assert "│ NULL    │        │" in written(rows, "table")


def test_many_rows_are_several_grids() -> None:
    """Each has some thousand, so that not all are held at once; the number at the end is that of all."""
    lines = written(Rows(["a"], *((number,) for number in range(10_001))), "table").splitlines()
    assert sum("┃" in line for line in lines) == 2
    assert lines[-1] == "10001 rows"
    assert written(Rows(["a"]), "table").splitlines()[-1] == "0 rows"


def test_columns_of_one_name() -> None:
    """JSON would lose one of them; the other forms have both."""
    rows = Rows(["a", "a"], (1, 2))
    for output_format in ("json", "parquet"):
        with pytest.raises(OptionError, match="two columns are called a"):
            written(rows, output_format)
    assert written(rows, "csv") == "a,a\n1,2\n"


def test_a_wide_row_becomes_a_block() -> None:
    """Rows that fit are a grid, others have a line for each column; a file has the grid however wide it is."""
    names = [f"column_{number}" for number in range(80)]
    rows = Rows(names, tuple(range(80)), tuple(range(80)))
    lines = written(rows, "table", width=100).splitlines()
    assert lines[0] == "row 1"
    assert lines[1:81] == [f"  {name.ljust(9)} | {number}" for number, name in enumerate(names)]
    assert lines[-1] == "2 rows"
    long = written(rows, "table", width=100, terminal=False).splitlines()
    assert len(long) == 7
    assert all(name in long[1] for name in names)
    assert "┃" in written(Rows(["a"], (1,)), "table", width=100)


def unreadable(directory: Path) -> Path:
    (directory / "_delta_log").mkdir(parents=True)
    directory.chmod(0)
    return directory


def a_file(path: Path) -> Path:
    path.write_text("x")
    return path


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


PATHS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda path: path, "does not exist"),
    "file": (a_file, "is not a Delta table but a file"),
    "empty": (made, "is empty"),
    "other": (lambda path: made(path / "x").parent, "it has no _delta_log"),
    "no-commit": (lambda path: made(path / "_delta_log").parent, "its _delta_log holds no commit"),
}


@pytest.mark.parametrize("kind", PATHS)
def test_a_path_that_is_no_table(tmp_path: Path, kind: str) -> None:
    """One line says what was found instead, with the exit code for an operator's attention."""
    make, words = PATHS[kind]
    path = make(tmp_path / "t")
    result = run_reput(["sql", "--table", str(path), "SELECT 1"], code=1)
    assert result.stdout == ""
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_table_without_permission(tmp_path: Path) -> None:
    """Tried in a process of an unprivileged user, since root may read everything."""
    table = unreadable(tmp_path / "t")
    child = os.fork()
    if child == 0:
        code = 9
        try:
            if os.getuid() == 0:
                tmp_path.chmod(0o755)
                os.setuid(65534)
            check_table(table)
        except OutputError as error:
            code = 0 if "Permission denied" in str(error) else 8
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    table.chmod(0o700)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("options", [["--format", "xml"], ["--csv-safe"], ["--csv-safe", "--format", "json"]])
def test_wrong_usage(tmp_path: Path, options: list[str]) -> None:
    """Told before Spark is started."""
    result = run_reput(["sql", "--table", str(tmp_path), *options, "SELECT 1"], code=2)
    assert len(result.stderr.splitlines()) == 1
