"""What a dump writes: a table for people, or a line of JSON each; and the totals at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO

from reput.source.printable import printable, printable_json
from reput.streaming.process.terminal import terminal_width
from reput.streaming.process.text_table import TextTable

# Topics are counted by name up to here: a log that somebody forged could have one for each record.
_TOPICS_MAX = 10_000
_TOPICS_SHOWN = 10


@dataclass
class Totals:
    """What was shown, by verdict: how many, and how many bytes; records also by topic."""

    counts: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    other_topics: int = 0
    #: What is known of the whole, such as its ends.
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, verdict: str, count: int, size: int) -> None:
        """Add so many of one verdict, which take `size` bytes."""
        self.counts[verdict] += count
        self.sizes[verdict] += size

    def add_topics(self, topics: Mapping[str, int]) -> None:
        """Add records by topic."""
        for topic, count in topics.items():
            if topic in self.topics or len(self.topics) < _TOPICS_MAX:
                self.topics[topic] += count
            else:
                self.other_topics += count

    def as_dict(self) -> dict[str, Any]:
        """The totals as JSON has them."""
        verdicts = {name: {"count": count, "bytes": self.sizes[name]} for name, count in sorted(self.counts.items())}
        topics: dict[str, Any] = {"topics": dict(sorted(self.topics.items()))} if self.topics else {}
        if self.other_topics:
            topics["other_topics"] = self.other_topics
        return {**self.facts, "verdicts": verdicts, **topics}

    def lines(self) -> list[str]:
        """The totals for people."""
        counts = [f"{count} {name} ({self.sizes[name]} bytes)" for name, count in sorted(self.counts.items())]
        text = ", ".join(f"{name} {value}" for name, value in self.facts.items())
        lines = [": ".join(filter(None, (text, ", ".join(counts) or "nothing")))]
        if self.topics:
            named = [f"{topic} {count}" for topic, count in self.topics.most_common(_TOPICS_SHOWN)]
            more = len(self.topics) - len(named)
            lines.append(f"topics: {', '.join(named)}{f', and {more} more' if more else ''}")
        return lines


class Printer(Protocol):
    """How a dump is written."""

    def header(self, fields: Mapping[str, Any]) -> None:
        """Write what stands before the rows."""

    def rows(self, columns: Sequence[Sequence[Any]]) -> None:
        """Write rows, given by the columns of the names that the printer was made with."""

    def other(self, fields: Mapping[str, Any], first: Sequence[Any], text: str) -> None:
        """Write a row of another kind: its `fields`, or for people the `first` columns and a `text`."""

    def totals(self, totals: Totals) -> None:
        """Write the totals."""


class JsonPrinter:
    """One object a line; the header's is in ``header``, the totals' in ``totals``."""

    def __init__(self, names: Sequence[str], out: TextIO) -> None:
        self._names, self._out = names, out

    def header(self, fields: Mapping[str, Any]) -> None:
        """Write the header."""
        self._write({"header": dict(fields)})

    def rows(self, columns: Sequence[Sequence[Any]]) -> None:
        """Write rows; a field without a value is null."""
        self._out.writelines(
            f"{printable_json(dict(zip(self._names, values, strict=True)))}\n" for values in zip(*columns, strict=True)
        )

    def other(self, fields: Mapping[str, Any], first: Sequence[Any], text: str) -> None:  # noqa: ARG002
        """Write the fields."""
        self._write(fields)

    def totals(self, totals: Totals) -> None:
        """Write the totals."""
        self._write({"totals": totals.as_dict()})

    def _write(self, value: Mapping[str, Any]) -> None:
        self._out.write(f"{printable_json(value)}\n")


class TablePrinter:
    """A header of names and values, then aligned columns; the totals go to `note`, line by line."""

    def __init__(self, names: Sequence[str], out: TextIO, note: Callable[[str], object]) -> None:
        self._table, self._out, self._note = TextTable(names, terminal_width(out)), out, note

    def header(self, fields: Mapping[str, Any]) -> None:
        """Write the header."""
        self._lines(f"{name}: {printable(str(value))}" for name, value in fields.items() if value is not None)

    def rows(self, columns: Sequence[Sequence[Any]]) -> None:
        """Write rows."""
        self._lines(self._table.lines(columns))

    def other(self, fields: Mapping[str, Any], first: Sequence[Any], text: str) -> None:  # noqa: ARG002
        """Write the first cells and the text."""
        self._lines(self._table.line_of_its_own(first, text))

    def totals(self, totals: Totals) -> None:
        """Pass the totals on."""
        for line in totals.lines():
            self._note(printable(line))

    def _lines(self, lines: Iterable[str]) -> None:
        self._out.writelines(f"{line}\n" for line in lines)
