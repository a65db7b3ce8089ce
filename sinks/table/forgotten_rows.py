"""The record of rows that were forgotten: physical offsets by broker, and when; never the content of a message.

Each `reput table forget` leaves a file below `_forgotten`, which readers of the table, upkeep, VACUUM and RESTORE leave
alone. Because of it `reput verify` does not miss these rows, and nothing brings them back unasked.
"""

from __future__ import annotations

import base64
import json
import uuid
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import numpy as np

from reput.sinks.table.storage import TableStorage
from reput.source.arrays import Int64s
from reput.source.errors import OutputError, check_format
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.printable import counted

_DIRECTORY = "_forgotten"
_VERSION = 1


def _none() -> Int64s:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class ForgottenRows:
    """One broker's forgotten rows: their physical offsets, ascending, and how many on each day (UTC)."""

    offsets: Int64s = field(default_factory=_none)
    days: Mapping[str, int] = field(default_factory=dict)

    def left_of(self, columns: RecordColumns) -> RecordColumns:
        """The records whose rows were not forgotten; records have ascending offsets."""
        if not len(columns) or not len(self.offsets):
            return columns
        first, last = int(columns.physical_offset[0]), int(columns.physical_offset[-1])
        low, high = np.searchsorted(self.offsets, (first, last + 1))
        if low == high:
            return columns
        return columns.where(~np.isin(columns.physical_offset, self.offsets[low:high]))

    def between(self, begin: int, end: int) -> int:
        """The number of forgotten rows with offsets in `[begin, end)`."""
        return int(np.searchsorted(self.offsets, end) - np.searchsorted(self.offsets, begin))

    def __str__(self) -> str:
        """Their number and days, in words."""
        days = list(self.days)
        when = f"on {days[0]}" if len(days) == 1 else f"from {min(days)} to {max(days)}"
        return f"{counted(len(self.offsets), 'row was', 'rows were')} forgotten {when}"


#: Nothing was forgotten.
NONE_FORGOTTEN = ForgottenRows()


class ForgettingRecord:
    """The file of one forgetting in progress."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage
        self._offsets: dict[str, set[int]] = {}
        self._at = datetime.now(timezone.utc)
        self._name = f"{_DIRECTORY}/{self._at:%Y%m%dT%H%M%S}-{uuid.uuid4()}.json"

    def add(self, brokers: Iterable[str | None], offsets: Iterable[int | None]) -> None:
        """Add rows to forget; rows without a broker or an offset are ignored, because they belong to no log."""
        for broker, offset in zip(brokers, offsets, strict=True):
            if broker is not None and offset is not None:
                self._offsets.setdefault(broker, set()).add(offset)

    def put(self) -> None:
        """Write it durably, before the commit that deletes the rows; raises OutputError."""
        if self._offsets:
            known = {broker: np.array(sorted(offsets), np.int64) for broker, offsets in self._offsets.items()}
            _put(self._storage, self._name, self._at.isoformat(), known)


def forgotten_rows(storage: TableStorage, broker: str) -> ForgottenRows:
    """The broker's rows that were forgotten.

    Raises
    ------
    OutputError
        A record of them cannot be read, or a later version of reput wrote it.
    """
    offsets, days = [_none()], dict[str, int]()
    for name in _names(storage):
        at, known = _read(storage, name)
        if len(found := known.get(broker, _none())):
            offsets.append(found)
            days[at[:10]] = days.get(at[:10], 0) + len(found)
    return ForgottenRows(np.unique(np.concatenate(offsets)), days)


def no_longer_forgotten(storage: TableStorage, broker: str, begin: int, end: int) -> None:
    """Record that the table has the broker's rows with offsets in `[begin, end)` again; raises OutputError."""
    for name in _names(storage):
        at, known = _read(storage, name)
        there = known.get(broker, _none())
        left = there[(there < begin) | (there >= end)]
        if len(left) == len(there):
            continue
        others = {each: offsets for each, offsets in known.items() if each != broker}
        known = others | ({broker: left} if len(left) else {})
        if known:
            _put(storage, name, at, known)
        else:
            storage.remove([name], durable=True)


def _names(storage: TableStorage) -> list[str]:
    return sorted(file.name for file in storage.files(_DIRECTORY) if file.name.endswith(".json"))


def _put(storage: TableStorage, name: str, at: str, offsets: Mapping[str, Int64s]) -> None:
    document = {"formatVersion": _VERSION, "at": at, "brokers": {key: _packed(each) for key, each in offsets.items()}}
    storage.put(name, json.dumps(document).encode(), durable=True)


def _packed(offsets: Int64s) -> str:
    """Ascending offsets as their differences, compressed."""
    return base64.b64encode(zlib.compress(np.diff(offsets, prepend=0).astype("<i8").tobytes())).decode()


def _read(storage: TableStorage, name: str) -> tuple[str, dict[str, Int64s]]:
    path = storage.location / name
    try:
        document: Any = json.loads(storage.read(name))
        check_format(path, document["formatVersion"], _VERSION, file=path)
        unpacked = {key: zlib.decompress(base64.b64decode(each)) for key, each in document["brokers"].items()}
        return str(document["at"]), {key: np.cumsum(np.frombuffer(each, "<i8")) for key, each in unpacked.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, zlib.error) as error:
        raise OutputError(
            f"{path}: the record of forgotten rows cannot be read ({type(error).__name__})",
            advice="put it back from a backup, or remove it: then these rows are missed, and may come back",
            file=path,
        ) from error
