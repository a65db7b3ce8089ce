"""Policies for bytes in the middle of the log that are not a good record, and the description of such a range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The run ends with CorruptRecordError.
STOP: Final = "stop"
#: The damaged range is left out and recorded; see ``segment_scan`` for where it ends.
QUARANTINE: Final = "quarantine"
#: The range that a broker's replay skips is left out and recorded; see ``broker_goes_on_at``.
BROKER: Final = "broker"

#: The number of bytes of a damaged range that are kept.
HEAD_BYTES: Final = 64


@dataclass(frozen=True)
class DamagedRange:
    """`[start, end)` of the log, inside one segment, without a good record.

    Attributes
    ----------
    cause
        The name of the ``Verdict`` on the bytes at `start`, or another cause of ``sinks/quarantine.py``.
    file, position
        The segment's path, and the position in it where the range begins.
    head
        The first bytes of the range, `HEAD_BYTES` at most.
    """

    start: int
    end: int
    cause: str
    file: str
    position: int
    head: bytes
