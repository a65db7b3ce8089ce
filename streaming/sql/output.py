"""The input and the result of a query, for either engine; and its rows in one of five forms.

The forms are a drawn table, CSV, one JSON object per line, Markdown, or Parquet. Rows hold texts of producers. Tables
are always harmless to a terminal. JSON escapes unsafe characters, which keeps the value. CSV is exact, except on a
terminal, where it is as harmless as the table. Parquet is exact.
"""

from __future__ import annotations

import base64
import io
import math
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timezone
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

import pyarrow as pa

from reput.sinks.files.durable_file import written_beside
from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import LOG
from reput.source.errors import OptionError, OutputError, output_error_of
from reput.source.log.store_layout import COMMIT_LOG, is_file_name
from reput.source.printable import counted, printable, printable_json
from reput.streaming.process.terminal import drop_output
from reput.streaming.process.text_table import are_numbers, is_counted, with_separators

if TYPE_CHECKING:
    from rich.console import Console

#: Relations that a statement may read beside the table, by name in lower case: a few rows, in memory.
Relations: TypeAlias = Mapping[str, pa.Table]
NO_RELATIONS: Final[Relations] = MappingProxyType({})
#: Names that a part of a statement sees: its own queries (WITH) and relations beside the table, in lower case.
Scope: TypeAlias = frozenset[str]


def folded(name: str) -> str:
    """Return the name in lower case; one beyond ASCII stays as it is, since languages fold it in different ways."""
    return name.lower() if name.isascii() else name


class Result(ABC):
    """The rows of a query, which can be read only once."""

    names: list[str]

    @abstractmethod
    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows, one by one: NULL as None, times in UTC, maps and structs as dicts."""

    @abstractmethod
    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows in Arrow batches, with the types that a Parquet file gets."""


class AnsweredResult(Result):
    """The rows of `result`; without any, `if_empty` is called before anything is written, and may raise."""

    def __init__(self, result: Result, if_empty: Callable[[], object]) -> None:
        self.names, self._result, self._if_empty = result.names, result, if_empty

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows."""
        rows = self._result.rows()
        first = list(islice(rows, 1))
        if not first:
            self._if_empty()
        return chain(first, rows)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows in Arrow batches."""
        schema, batches = self._result.batches()
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            self._if_empty()
        return schema, batches if first is None else chain([first], batches)


class ListedResult(Result):
    """Rows in a list."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.names, self._rows = list(names), rows

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows."""
        return iter(self._rows)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows, with the types that Arrow finds for them."""
        columns = [[row[number] for row in self._rows] for number in range(len(self.names))]
        table = pa.table(columns, names=self.names)
        return table.schema, iter(table.to_batches())


FORMATS = ("table", "csv", "json", "markdown", "parquet")

# At most this many rows are drawn as one table, whose columns are as wide as their widest cell.
_ROWS_A_TABLE: Final = 10_000
_NULL: Final = "NULL"
_FORMULA: Final = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_QUOTED: Final = re.compile(r'[",\r\n]|^\s|\s$|^$')
# Characters that Markdown would take for markup.
_MARKUP: Final = re.compile(r"[\\`*_\[\]<>|&~#!]")


def write_result(
    result: Result, output_format: str, out: TextIO, *, console: Console | None = None, csv_safe: bool = False
) -> int:
    """Write all rows to `out` in one of `FORMATS`, and return how many.

    Rows are written as they come; in a table, some thousand at a time, and to `console` if it is given. `csv_safe` puts
    a ``'`` before a CSV text that a spreadsheet would take for a formula. Parquet goes to the bytes below `out`.

    Raises
    ------
    OptionError
        Two columns have the same name, which JSON and Parquet cannot represent.
    """
    names = result.names
    if output_format in ("json", "parquet"):
        _check_names(names)
    if output_format == "parquet":
        return _write_parquet(result, out)
    if output_format == "table":
        return _write_tables(names, result.rows(), console or _console(out))
    on_terminal = out.isatty()
    if output_format == "json":
        lines: Iterator[str] = (_json_line(names, row) for row in result.rows())
    elif output_format == "markdown":
        lines = (_markdown_line([_NULL if value is None else _text(value) for value in row]) for row in result.rows())
        out.write(_markdown_line(names) + "|---" * len(names) + "|\n")
    else:
        lines = (_csv_line(row, safe=csv_safe, on_terminal=on_terminal) for row in result.rows())
        out.write(_csv_line(names, safe=csv_safe, on_terminal=on_terminal))
    count = 0
    for count, line in enumerate(lines, 1):  # noqa: B007  counts, too
        out.write(line)
    return count


def _write_parquet(result: Result, out: TextIO) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415  the other forms need none of it

    schema, batches = result.batches()
    count = 0
    with pq.ParquetWriter(out.buffer, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _json_value(value: Any) -> Any:
    """Return `value` as JSON. Bytes become base64; values of types that JSON lacks become text, as in a table."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else _text(key): _json_value(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(part) for part in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return _text(value)


def _text(value: Any) -> str:
    """Return a value other than NULL as text, on one line unless it is itself a text of several lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        utc: datetime = value if value.tzinfo is None else value.astimezone(timezone.utc).replace(tzinfo=None)
        return utc.isoformat(sep=" ", timespec="microseconds" if utc.microsecond % 1000 else "milliseconds")
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (list, tuple, dict)):
        return printable_json(_json_value(value))
    return str(value)


def _float_text(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise OptionError(
                f"two columns are called {printable(name)}: JSON and Parquet need a name for each, give one with AS"
            )


def _json_line(names: list[str], row: Sequence[Any]) -> str:
    return printable_json({name: _json_value(value) for name, value in zip(names, row, strict=True)}) + "\n"


def _csv_line(row: Iterable[Any], *, safe: bool, on_terminal: bool) -> str:
    """Return a row as a line of CSV: NULL is nothing between two commas, an empty text is two quotes."""
    return ",".join("" if value is None else _csv_field(value, safe, on_terminal) for value in row) + "\n"


def _csv_field(value: Any, safe: bool, on_terminal: bool) -> str:
    text = _text(value)
    if safe and isinstance(value, str) and _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    if on_terminal:
        text = printable(text)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_MARKUP.sub(r"\\\g<0>", printable(cell)) for cell in cells) + " |\n"


def _console(out: TextIO) -> Console:
    from rich.console import Console  # noqa: PLC0415  the other forms need none of it

    return Console(file=out)


def _write_tables(names: list[str], rows: Iterator[Sequence[Any]], console: Console) -> int:
    """Write a grid of some thousand rows at a time, then their number."""
    headers, count = [printable(name) for name in names], 0
    for first in chain([next(rows, None)], rows):
        block = [] if first is None else [first, *islice(rows, _ROWS_A_TABLE - 1)]
        _write_table(headers, block, console)
        count += len(block)
    console.print(counted(count, "row"), highlight=False)
    return count


def _write_table(headers: list[str], rows: list[Sequence[Any]], console: Console) -> None:
    """Write a grid if the terminal is wide enough, else one cell per line under a heading per row. No cell is cut.

    On a terminal, numbers are aligned on the right, and those that count something have separators.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.measure import Measurement  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [[_NULL if value is None else printable(_text(value)) for value in row] for row in rows]
    on_right = [False] * len(headers)
    if console.is_terminal:
        cells = [
            [
                with_separators(text, value) if is_counted(header) else text
                for header, text, value in zip(headers, texts, row, strict=True)
            ]
            for texts, row in zip(cells, rows, strict=True)
        ]
        on_right = [are_numbers(row[number] for row in rows) for number in range(len(headers))]
    grid = Table()
    for header, right in zip(headers, on_right, strict=True):
        grid.add_column(Text(header), justify="right" if right else "left")
    for row in cells:
        grid.add_row(*map(Text, row))
    width = Measurement.get(console, console.options.update(width=1 << 20), grid).maximum
    if width <= console.width:
        console.print(grid)
    elif not console.is_terminal:
        Console(file=console.file, width=width).print(grid)
    else:
        _write_vertically(headers, cells, console)


def _write_vertically(headers: list[str], cells: list[list[str]], console: Console) -> None:
    from rich.text import Text  # noqa: PLC0415

    width = max(map(len, headers))
    for number, row in enumerate(cells, 1):
        console.print(Text(f"row {number}", style="bold"))
        for header, cell in zip(headers, row, strict=True):
            console.print(Text(f"  {header.ljust(width)} | {cell}"), soft_wrap=True)


# ----------------------------------------------------------------------------------------------------------------------
# The destination of a query's rows: a file of its own, or standard output.


@contextmanager
def output_file(path: Path, table: TableLocation, *, option: str = "--output") -> Iterator[TextIO]:
    """Open a new text file that takes the place of `path` once it is complete; it is never half a file.

    Raises
    ------
    OptionError
        `path`, the value of `option`, is in a Delta table or among the files of a store, or a file cannot replace it.
    OutputError
        It cannot be written.
    """
    check_output_file(path, table, option=option)
    try:
        with written_beside(path) as file:
            out = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n")
            yield out
            out.flush()
            out.detach()
    except OSError as error:
        raise output_error_of(error)(f"cannot write {path}: {error.strerror}", file=path) from error


def check_output_file(path: Path, table: TableLocation, *, option: str) -> None:
    """Raise OptionError under the conditions of `output_file`, before anything is computed."""
    whole = path.resolve()
    if isinstance(table, Path) and whole.is_relative_to(table.resolve()):
        raise OptionError(f"{option} {path} is in the table that is read")
    if any((directory / LOG).is_dir() for directory in whole.parents):
        raise OptionError(f"{option} {path} is in a Delta table")
    if COMMIT_LOG in whole.parent.parts or any(map(is_file_name, _names_in(whole.parent))):
        raise OptionError(f"{option} {path} is among the files of a log or a queue: nothing else is written there")
    if path.exists() and not path.is_file():
        raise OptionError(f"{option} {path} is not a file")


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208  names alone are wanted
    except OSError:  # reported when the file is written
        return []


@contextmanager
def standard_output() -> Iterator[TextIO]:
    """Open standard output, in UTF-8 unless it is a terminal, which gets what it can show; raises OutputError.

    A reader that has enough, such as ``head``, raises BrokenPipeError.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        if sys.stdout.isatty():
            sys.stdout.reconfigure(errors="backslashreplace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        yield sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_output()
        raise OutputError(
            f"cannot write the result to standard output: {error.strerror}", file="/dev/stdout"
        ) from error
