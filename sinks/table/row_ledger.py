"""How many rows of one broker a table must have, by physical offset, and the table's version where that was seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reput.source.errors import SinkError

# Enough to name the range of lost rows to about a thirtieth of the log; few enough for a record with every batch.
MARKS_MAX = 64


@dataclass(frozen=True)
class RowGap:
    """How many rows of `[start, end)` of the log are missing in a table; negative if there are too many."""

    start: int
    end: int
    missing: int


@dataclass(frozen=True)
class RowsTaken:
    """How many rows were taken away, and bounds of their physical offsets, both included."""

    least: int
    greatest: int
    count: int


@dataclass(frozen=True)
class RowLedger:
    """What was in a table at one of its versions.

    Attributes
    ----------
    version
        The table's version.
    commit
        The version's ``history.commit_digest``: another table, or a copy that went on, has a different one.
    marks
        Physical offsets where records begin, ascending, each with the number of rows before it.
    """

    version: int
    commit: str | None
    marks: tuple[tuple[int, int], ...]

    @classmethod
    def from_state(cls, state: dict[str, Any], file: Path | None = None) -> RowLedger | None:
        """The ledger in a progress record's state; None in a record older than ledgers. `file` is the record's.

        Raises
        ------
        SinkError
            The state has something else under the ledger's name.
        """
        known = state.get("ledger")
        if known is None:
            return None
        try:
            marks = tuple((int(offset), int(rows)) for offset, rows in known["marks"])
            return cls(int(known["version"]), known["commit"], marks)
        except (ValueError, TypeError, KeyError) as error:
            raise SinkError(
                f"the message table's progress record has a ledger that cannot be read ({error!r})",
                advice="remove the record",
                file=file,
            ) from error

    def to_state(self) -> dict[str, Any]:
        """The reverse of `from_state`."""
        marks = [list(mark) for mark in self.marks]
        return {"ledger": {"version": self.version, "commit": self.commit, "marks": marks}}

    @property
    def rows(self) -> int:
        """The number of rows before the last mark."""
        return self.marks[-1][1] if self.marks else 0

    @property
    def offsets(self) -> list[int]:
        """The marks' offsets."""
        return [offset for offset, _ in self.marks]

    def with_batch(self, end: int, rows: int) -> RowLedger:
        """The same with `rows` more up to `end`; if there are many marks, every other of the older half goes."""
        marks = [mark for mark in self.marks if mark[0] < end]
        marks.append((end, self.rows + rows))
        if len(marks) > MARKS_MAX:
            half = len(marks) // 2
            marks = [*marks[:half:2], *marks[half:]]
        return replace(self, marks=tuple(marks))

    def without(self, taken: Iterable[RowsTaken]) -> RowLedger:
        """The same without rows; marks between the least and the greatest of them go, as nobody knows their counts."""
        marks, end = list(self.marks), self.offsets[-1] if self.marks else 0
        for rows in taken:
            # A file's bounds are also those of other brokers' rows in it; of this one no row is behind the last mark.
            behind = [(offset, count - rows.count) for offset, count in marks if offset > min(rows.greatest, end - 1)]
            marks = [*(mark for mark in marks if mark[0] <= min(rows.least, end - 1)), *behind]
        return replace(self, marks=tuple(marks))

    def seen_at(self, version: int, commit: str | None) -> RowLedger:
        """The same, seen at another version of the table."""
        return replace(self, version=version, commit=commit)

    def until(self, end: int) -> RowLedger:
        """The ledger up to `end`: an older copy of the table has no more."""
        return replace(self, marks=tuple(mark for mark in self.marks if mark[0] <= end))

    def with_counts(self, counts: Sequence[int]) -> RowLedger:
        """The same offsets with `counts`, the numbers of rows found before each."""
        return replace(self, marks=tuple(zip(self.offsets, counts, strict=True)))

    def gaps(self, counts: Sequence[int]) -> list[RowGap]:
        """The ranges where `counts`, the numbers of rows found before each mark, are not as expected."""
        gaps: list[RowGap] = []
        start = known = found = 0
        for (offset, rows), count in zip(self.marks, counts, strict=True):
            if (missing := (rows - known) - (count - found)) != 0:
                gaps.append(RowGap(start, offset, missing))
            start, known, found = offset, rows, count
        return gaps
