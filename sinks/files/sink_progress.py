"""How far a sink has come: a small durable record of its own, keyed by physical offset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import progress_file
from reput.source.errors import SinkError, check_format
from reput.source.record.message_decoder import RecordFingerprint

__all__ = ["ProgressFile", "RecordFingerprint", "SinkProgress"]

_VERSION = 1


@dataclass(frozen=True)
class SinkProgress:
    """The durable effects of a sink.

    Attributes
    ----------
    start_offset
        Where the sink's very first batch began; Spark's checkpoint does not hold it.
    end_offset
        The effects of all records before this physical offset, and of no others, are on disk.
    last_record
        The last record whose effect is on disk, or None.
    state
        The values that the sink itself needs to continue.
    """

    start_offset: int
    end_offset: int
    last_record: RecordFingerprint | None = None
    state: dict[str, Any] = field(default_factory=dict)


class ProgressFile:
    """One sink's progress record below an output; `progress` is the record that was stored last."""

    def __init__(self, files: DurableFiles, sink: str) -> None:
        self._files = files
        self._parts = progress_file(sink)
        self.progress = SinkProgress(0, 0)

    @property
    def path(self) -> Path:
        """The record's file."""
        return self._files.root.joinpath(*self._parts)

    def load(self) -> SinkProgress | None:
        """The record, or None if there is none.

        Raises
        ------
        SinkError
            The file is not a progress record.
        LaterFormatError
            A later release wrote it.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return _decoded(json.loads(data), self.path)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SinkError(
                f"{self.path} is not a progress record of reput ({error!r})",
                advice="remove it to derive the sink from the log again",
                file=self.path,
            ) from error

    def store(self, progress: SinkProgress) -> None:
        """Put the record in place, completely and durably."""
        text = json.dumps({"version": _VERSION, **asdict(progress)}, indent=1)
        self._files.replace(*self._parts, data=text.encode() + b"\n")
        self.progress = progress

    def advance(self, end_offset: int, last_record: RecordFingerprint | None, state: Mapping[str, Any]) -> None:
        """Record, durably, that the sink has the effects of all records before `end_offset`.

        `last_record` is the last record that was added; None keeps the previous one.
        """
        last = last_record or self.progress.last_record
        self.store(SinkProgress(self.progress.start_offset, end_offset, last, dict(state)))

    def pass_over(self, end_offset: int, state: Mapping[str, Any] | None = None) -> None:
        """Record, durably, that the sink continues at `end_offset`, after records it never got; None keeps `state`."""
        kept = self.progress.state if state is None else dict(state)
        self.store(SinkProgress(self.progress.start_offset, end_offset, None, kept))

    def remove(self) -> None:
        """Remove the record; the caller syncs."""
        self._files.remove(*self._parts)


class KeepsProgress:
    """Base of classes that have the effects of the log up to an offset, durably, and record that in `_record`."""

    _record: ProgressFile

    @property
    def end_offset(self) -> int:
        """The effect of every record before this physical offset is durable."""
        return self._record.progress.end_offset

    @property
    def last_record(self) -> RecordFingerprint | None:
        """The last record whose effect is durable; None before the first, and after records that expired unread."""
        return self._record.progress.last_record

    def pass_over(self, end_offset: int) -> None:
        """Continue at `end_offset`, durably: the records before it expired unread."""
        self._record.pass_over(end_offset)


def _decoded(record: dict[str, Any], path: Path) -> SinkProgress:
    check_format(path, record.pop("version"), _VERSION, file=path)
    last = record.pop("last_record")
    fingerprint = None if last is None else RecordFingerprint(**last)
    progress = SinkProgress(last_record=fingerprint, **record)
    numbers = [progress.start_offset, progress.end_offset, *(astuple(fingerprint) if fingerprint else ())]
    if not all(type(number) is int for number in numbers) or not isinstance(progress.state, dict):
        msg = f"{record}: whole numbers wanted"
        raise TypeError(msg)
    return progress
