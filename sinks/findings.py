"""The result of a check of a store: differences, each located and described, and notes, counted by cause."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

# The number of differences of each section of a store that are reported one by one; all are counted.
FIRST_MAX = 20


@dataclass(frozen=True)
class Difference:
    """One contradiction between a store and its log.

    Attributes
    ----------
    kind
        A stable word for programs, such as ``entry_missing``.
    text
        The fault, in words.
    file, byte_offset
        The file below the output, and the byte in it; None if there is none.
    queue_offset
        The number of the entry in its queue, or of an index entry in its file.
    physical_offset
        The physical offset of the record that it concerns.
    expected, found
        Both sides, as text.
    """

    kind: str
    text: str
    file: str | None = None
    byte_offset: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    expected: str | None = None
    found: str | None = None


@dataclass
class Findings:
    """Differences and notes of one section of a store; only the first `FIRST_MAX` differences are kept.

    `remarks` are facts in words that are not differences; only the first `FIRST_MAX` are kept.
    """

    counts: Counter[str] = field(default_factory=Counter)
    first: list[Difference] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def differ(self, difference: Difference, count: int = 1) -> None:
        """Add a difference, which stands for `count` differences of its kind."""
        self.counts[difference.kind] += count
        if len(self.first) < FIRST_MAX:
            self.first.append(difference)

    def note(self, cause: str, count: int = 1) -> None:
        """Count something worth mentioning that is not a difference; a count of 0 adds nothing."""
        if count:
            self.notes[cause] += count

    def tell(self, remark: str) -> None:
        """Add a remark."""
        if len(self.remarks) < FIRST_MAX:
            self.remarks.append(remark)

    def add(self, other: Findings) -> None:
        """Add the findings of another task of the same check."""
        self.counts += other.counts
        self.notes += other.notes
        self.first += other.first[: max(0, FIRST_MAX - len(self.first))]
        self.remarks += other.remarks[: max(0, FIRST_MAX - len(self.remarks))]

    @property
    def differences(self) -> int:
        """The number of differences."""
        return sum(self.counts.values())

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "counts": dict(self.counts),
            "differences": [asdict(difference) for difference in self.first],
            "notes": dict(self.notes),
        }
