"""A log whose end a test moves by hand, for code that shows how far queries lag."""

from __future__ import annotations

from dataclasses import dataclass, field

from reput.streaming.status.batch_report import LogEnd


@dataclass
class SeenLog:
    """A ``LogWatch``: the end, and store times in milliseconds by the offset that is asked for."""

    end: LogEnd | None
    stored: dict[int, int] = field(default_factory=dict)

    def look(self, start: int) -> LogEnd | None:
        return self.end

    def store_timestamp_at(self, offset: int) -> int | None:
        return self.stored.get(offset)
