"""Rows as text: a table of aligned columns, or blocks on a terminal that is too narrow for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from reput.source.printable import printable

# Columns of numbers that are read as quantities; others, such as offsets, are copied into options.
_COUNTED = frozenset(
    {"msg_size", "body_size", "size", "rows", "messages", "bytes", "files", "copies", "halves", "unconsumed"}
    | {"given_up", "sent_back", "tried_again", "unique_keys", "messages_a_day", "bytes_a_day"}
    | {"log_bytes", "bytes_in_log", "queue_bytes"}
)
_COUNTED_BEGINS = ("count(", "count_star(", "sum(", "size_", "delay_ms")


class TextTable:
    """Aligned columns without frames, never cut or wrapped, so that ids can be copied.

    Rows may come in parts: a column is as wide as its widest cell so far. On a terminal of `width` columns numbers are
    aligned on the right, sizes and counts have separators, and rows that do not fit are blocks: one line for each cell
    that is not empty.
    """

    def __init__(self, names: Sequence[str], width: int | None = None) -> None:
        """Give no `width` for a table that does not go to a terminal."""
        self._widths = [0] * len(names)
        self._names, self._head = names, [[name] for name in names]
        self._width = width
        self._rows, self._has_blocks = 0, False

    def lines(self, columns: Sequence[Sequence[object]]) -> Iterator[str]:
        """Yield the lines of further rows, given column by column; before the first row, a line of the names."""
        if not any(columns):
            return
        texts = [list(map(_cell, column)) for column in columns]
        if self._width is not None:
            texts = [
                [with_separators(text, value) for text, value in zip(each, column, strict=True)]
                if is_counted(name)
                else each
                for name, each, column in zip(self._names, texts, columns, strict=True)
            ]
        cells = [[*head, *each] for head, each in zip(self._head, texts, strict=True)]
        widths = [max(width, *map(len, column)) for width, column in zip(self._widths, cells, strict=True)]
        if self._width is not None and (self._has_blocks or sum(widths) + 2 * len(widths) - 2 > self._width):
            self._has_blocks = True
            yield from self._blocks(texts)
            return
        self._rows += len(texts[0])
        self._head, self._widths = [[] for _ in columns], widths
        on_right = [self._width is not None and are_numbers(column) for column in columns]
        for line in zip(*cells, strict=True):
            yield "  ".join(
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(line, widths, on_right, strict=True)
            ).rstrip()

    def _blocks(self, texts: Sequence[Sequence[str]]) -> Iterator[str]:
        """Yield a heading for each row, and a line for each of its cells that is not empty."""
        width = max(map(len, self._names))
        for row in zip(*texts, strict=True):
            self._rows += 1
            yield f"row {self._rows}"
            yield from (f"  {name.ljust(width)} | {text}" for name, text in zip(self._names, row, strict=True) if text)

    def line_of_its_own(self, first: Sequence[object], text: str) -> Iterator[str]:
        """Yield a line whose first cells are in the table's columns, followed by `text`."""
        *head, last = self.lines([[value] for value in (*first, *[None] * (len(self._head) - len(first)))])
        yield from head
        if self._has_blocks:
            yield from (last, f"  {printable(text)}")
        else:
            yield f"{last}  {printable(text)}"


def is_counted(name: str) -> bool:
    """Whether the numbers of a column are quantities, which have separators on a terminal."""
    return name in _COUNTED or name.startswith(_COUNTED_BEGINS)


def are_numbers(column: Iterable[object]) -> bool:
    """Whether a column has numbers alone, and NULL; a terminal gets them aligned on the right."""
    return all(
        value is None or (isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)) for value in column
    )


def with_separators(text: str, value: object) -> str:
    """Return the text of a value, of a whole number with separators."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else text


def _cell(value: object) -> str:
    """Return a value as text, harmless for a terminal."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = " ".join(value)
    if isinstance(value, dict):
        value = " ".join(f"{name}={part}" for name, part in value.items())
    return printable(str(value))
