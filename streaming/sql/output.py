"""The rows of a query, in one of three forms: a drawn table, CSV, or one JSON object per line.

Rows hold what producers wrote. A table is always harmless to a terminal. JSON escapes unsafe characters, which keeps
the value. CSV is exact, except on a terminal, where it is as harmless as the table.
"""

from __future__ import annotations

import base64
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, TextIO

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, VariantVal, YearMonthIntervalType
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from reput.source.errors import OptionError
from reput.source.printable import printable, printable_json

FORMATS = ("table", "csv", "json")

# The finalizer of the iterator that `toLocalIterator` returns.
_ROWS_GO: Final = "PyLocalIterable.__del__"
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_QUOTED: Final = re.compile(r'[",\r\n]|^\s|\s$|^$')
# Python has no value for two of these types, so all intervals are shown as Spark's text.
_AS_TEXT: Final = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


def write_result(
    result: DataFrame, output_format: str, out: TextIO, console: Console, *, csv_safe: bool = False
) -> int:
    """Write all rows in one of `FORMATS`, and return how many.

    CSV and JSON go to `out`, row by row. The table goes to `console`, once all rows are there. `csv_safe` puts a ``'``
    before a CSV text that a spreadsheet would take for a formula.

    Raises
    ------
    OptionError
        Two columns have the same name, which JSON cannot represent.
    """
    names = result.columns
    result = _with_texts(result)
    if output_format == "table":
        return _write_table(names, result.collect(), console)
    if output_format == "json":
        _check_names(names)
        lines = (_json_line(names, row) for row in _one_by_one(result))
    else:
        on_terminal = out.isatty()
        rows: Iterator[Iterable[Any]] = _one_by_one(result)
        out.write(_csv_line(names, safe=csv_safe, on_terminal=on_terminal))
        lines = (_csv_line(row, safe=csv_safe, on_terminal=on_terminal) for row in rows)
    count = 0
    for count, line in enumerate(lines, 1):  # noqa: B007  counts, too
        out.write(line)
    return count


def _one_by_one(result: DataFrame) -> Iterator[Row]:
    """The rows, which need not be read to their end.

    If they are not, pyspark's iterator may find its socket closed when it is finalized, and Python would print that.
    """
    if not isinstance(sys.unraisablehook, _UnreadRows):
        sys.unraisablehook = _UnreadRows(sys.unraisablehook)
    return result.toLocalIterator()


class _UnreadRows:
    """A hook that ignores failures in finalizing an iterator over rows, and passes all others on to `others`."""

    def __init__(self, others: Callable[[Any], Any]) -> None:
        self._others = others

    def __call__(self, unraisable: Any) -> None:
        name = getattr(unraisable.object, "__qualname__", "")
        if not (name.endswith(_ROWS_GO) and isinstance(unraisable.exc_value, OSError | ValueError)):
            self._others(unraisable)


def _with_texts(result: DataFrame) -> DataFrame:
    if not any(isinstance(field.dataType, _AS_TEXT) for field in result.schema):
        return result
    numbered = result.toDF(*(str(number) for number in range(len(result.columns))))  # names may repeat
    return numbered.select(
        *(
            sql.col(str(number)).cast("string") if isinstance(field.dataType, _AS_TEXT) else sql.col(str(number))
            for number, field in enumerate(result.schema)
        )
    )


def _json_value(value: Any) -> Any:
    """`value` as JSON. Bytes become base64; values of types that JSON lacks become text, as in a table."""
    if isinstance(value, Row):
        return {name: _json_value(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _text(key): _json_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(part) for part in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, VariantVal):
        return _json_value(value.toPython())
    return _text(value)


def _text(value: Any) -> str:
    """A value other than NULL as text, on one line unless it is itself a text of several lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, tuple, dict, VariantVal)):
        return printable_json(_json_value(value))
    return str(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise OptionError(f"two columns are called {printable(name)}: JSON needs a name for each, give one with AS")


def _json_line(names: list[str], row: Row) -> str:
    return printable_json({name: _json_value(value) for name, value in zip(names, row, strict=True)}) + "\n"


def _csv_line(row: Iterable[Any], *, safe: bool, on_terminal: bool) -> str:
    """A row as a line of CSV: NULL is nothing between two commas, an empty text is two quotes."""
    return ",".join("" if value is None else _csv_field(value, safe, on_terminal) for value in row) + "\n"


def _csv_field(value: Any, safe: bool, on_terminal: bool) -> str:
    text = _text(value)
    if safe and isinstance(value, str) and _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    if on_terminal:
        text = printable(text)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _write_table(names: list[str], rows: list[Row], console: Console) -> int:
    """Write a grid if the terminal is wide enough, else one cell per line under a heading per row. No cell is cut."""
    headers = [printable(name) for name in names]
    cells = [["" if value is None else printable(_text(value)) for value in row] for row in rows]
    grid = Table()
    for header in headers:
        grid.add_column(Text(header))
    for row in cells:
        grid.add_row(*map(Text, row))
    width = Measurement.get(console, console.options.update(width=1 << 20), grid).maximum
    if width <= console.width:
        console.print(grid)
    elif not console.is_terminal:
        Console(file=console.file, width=width).print(grid)
    else:
        _write_vertically(headers, cells, console)
    console.print(f"{len(rows)} row{'' if len(rows) == 1 else 's'}", highlight=False)
    return len(rows)


def _write_vertically(headers: list[str], cells: list[list[str]], console: Console) -> None:
    width = max(map(len, headers))
    for number, row in enumerate(cells, 1):
        console.print(Text(f"row {number}", style="bold"))
        for header, cell in zip(headers, row, strict=True):
            console.print(Text(f"  {header.ljust(width)} | {cell}"), soft_wrap=True)
