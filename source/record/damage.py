"""What is done where no good record stands in the middle of the log, and how such a range is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The run ends with CorruptRecordError.
STOP: Final = "stop"
#: The damaged range is left out and recorded; see ``segment_scan`` for where it ends.
QUARANTINE: Final = "quarantine"
#: The range that a broker's replay leaves out is left out and recorded; see ``broker_goes_on_at``.
BROKER: Final = "broker"

#: How many bytes of a damaged range are kept.
HEAD_BYTES: Final = 64


@dataclass(frozen=True)
class DamagedRange:
    """`[start, end)` of the log that holds no good record, inside one segment.

    Attributes
    ----------
    cause
        The name of the ``Verdict`` on the bytes at `start`, or another cause of ``sinks/quarantine.py``.
    file, position
        The segment's path, and the byte of it where the range begins.
    head
        The first bytes of the range, `HEAD_BYTES` at most.
    """

    start: int
    end: int
    cause: str
    file: str
    position: int
    head: bytes
