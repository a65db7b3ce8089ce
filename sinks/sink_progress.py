"""How far a sink is: a small durable record of its own, keyed by physical offset."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reput.sinks.durable_file import DurableFiles
from reput.sinks.store_path import progress_file
from reput.source.errors import SinkError

_VERSION = 1


@dataclass(frozen=True)
class RecordFingerprint:
    """Enough of one record to know it again: its place, size, store timestamp (ms) and body CRC."""

    offset: int
    size: int
    store_timestamp: int
    body_crc: int


@dataclass(frozen=True)
class SinkProgress:
    """What a sink has done, durably.

    Attributes
    ----------
    start_offset
        Where the sink's very first batch began; Spark's checkpoint does not hold it.
    end_offset
        The effect of every record before this place is on disk, and of none from it on.
    last_record
        The last record whose effect is on disk, or None.
    state
        What the sink itself needs to go on.
    """

    start_offset: int
    end_offset: int
    last_record: RecordFingerprint | None = None
    state: dict[str, Any] = field(default_factory=dict)


class ProgressFile:
    """One sink's progress record below an output."""

    def __init__(self, files: DurableFiles, sink: str) -> None:
        self._files = files
        self._parts = progress_file(sink)

    @property
    def path(self) -> Path:
        """Where the record lies."""
        return self._files.root.joinpath(*self._parts)

    def load(self) -> SinkProgress | None:
        """The record, or None when there is none.

        Raises
        ------
        SinkError
            The file is not a progress record of this version.
        """
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return None
        try:
            record = json.loads(text)
            last = record.pop("last_record")
            if record.pop("version") == _VERSION:
                return SinkProgress(last_record=RecordFingerprint(**last) if last else None, **record)
            why: object = f"its version is not {_VERSION}"
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            why = error
        msg = f"{self.path} is no progress record of reput ({why}); remove it to derive the sink from the log again"
        raise SinkError(msg)

    def store(self, progress: SinkProgress) -> None:
        """Put the record in place, whole and durably."""
        text = json.dumps({"version": _VERSION, **asdict(progress)}, indent=1)
        self._files.replace(*self._parts, data=text.encode() + b"\n")
