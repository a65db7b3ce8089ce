"""The epochs of a replica in a controller's group: who wrote from which physical offset (5.x ``EpochFileCache``).

``<storePathRootDir>/epochFileCheckpoint`` is a ``CheckpointFile``: the number of entries, a CRC-32 of their lines
without its highest bit (0 is not compared), and a line ``epoch-startOffset`` for each. A new master begins an epoch at
the end of its log. A replica that follows it copies the entry together with the log.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reput.source.errors import StoreError

EPOCH_FILE: Final = "epochFileCheckpoint"
_BACKUP: Final = f"{EPOCH_FILE}.bak"
_ENTRY: Final = re.compile(r"([0-9]+)-([0-9]+)")
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class Epoch:
    """The term of one master: the log's bytes `[start, end)` by physical offsets; the last epoch has no end."""

    epoch: int
    start: int
    end: int = _OFFSET_MAX


def load_epochs(store: Path) -> list[Epoch]:
    """The epochs of a store, oldest first; empty if it was never in a controller's group.

    If the file is missing, empty or damaged, its ``.bak`` is read instead, as in a broker.

    Raises
    ------
    StoreError
        One of the two is damaged, and the other does not hold epochs either.
    """
    damaged: StoreError | None = None
    for path in (store / EPOCH_FILE, store / _BACKUP):
        try:
            entries = _entries(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            advice = "restore it from a copy, or remove it: the replica then takes the whole log of its master"
            damaged = damaged or StoreError(f"{path} holds no epochs ({error})", advice=advice, file=path)
            continue
        if entries:
            return ended(entries)
    if damaged is not None:
        raise damaged
    return []


def _entries(text: str) -> list[Epoch]:
    size, crc, *lines = text.splitlines()
    found = [Epoch(int(entry[1]), int(entry[2])) for line in lines if (entry := _ENTRY.fullmatch(line))]
    if len(found) != int(size):
        raise ValueError(f"{size} entries expected, {len(found)} found")
    now = zlib.crc32("".join(f"{line}\n" for line in lines).encode()) & 0x7FFFFFFF
    if int(crc) not in (0, now):
        raise ValueError(f"checksum {crc} expected, {now} found")
    return found


def ended(epochs: Sequence[Epoch], log_end: int | None = None) -> list[Epoch]:
    """The epochs with their ends: each ends where the next begins, and the last at `log_end` unless it begins later.

    Source: ``EpochFileCache#initEntries``, ``#setLastEpochEntryEndOffset``.
    """
    found = [replace(each, end=after.start) for each, after in zip(epochs, epochs[1:], strict=False)]
    last = list(epochs[-1:])
    if log_end is not None and last and last[0].start <= log_end:
        last = [replace(last[0], end=log_end)]
    return found + last


def consistent_point(here: Sequence[Epoch], there: Sequence[Epoch]) -> tuple[Epoch, int] | None:
    """The last epoch that both have with the same start, and the offset up to which their logs should be equal.

    Both are `ended` at their logs' ends. None if they have no epoch in common: the master then refuses the replica.
    Source: ``EpochFileCache#findConsistentPoint``.
    """
    others = {each.epoch: each for each in there}
    for epoch in reversed(here):
        other = others.get(epoch.epoch)
        if other is not None and other.start == epoch.start:
            return epoch, min(epoch.end, other.end)
    return None
