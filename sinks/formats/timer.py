"""The files in which a broker of 5.x keeps its timers: the wheel, its log and its checkpoint.

``TimerWheel``, ``TimerLog`` and ``TimerCheckpoint``, which are the same from 5.0.0 to 5.5.1.
"""

from __future__ import annotations

import struct

import numpy as np

from reput.source.arrays import Bools

#: The files' names below the store.
TIMER_WHEEL, TIMER_LOG, TIMER_CHECKPOINT = "timerwheel", "timerlog", "timercheck"

#: A unit of the log (``TimerLog#append``); other units end a file. `written` and `delayed` are milliseconds: when the
#: wheel took the message, and how long after that it is due. `previous` is the previous unit of the same slot, or -1.
TIMER_UNIT = np.dtype(
    [
        *(("size", ">i4"), ("previous", ">i8"), ("magic", ">i4"), ("written", ">i8"), ("delayed", ">i4")),
        *(("physical_offset", ">i8"), ("msg_size", ">i4"), ("topic_hash", ">i4"), ("reserved", ">i8")),
    ]
)
#: A slot of the wheel (``Slot``): its time in units of ``timerPrecisionMs``, its first and last unit in the log.
TIMER_SLOT = np.dtype([("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("num", ">i4"), ("magic", ">i4")])
#: The checkpoint's numbers: the time up to which the wheel was read (ms), how far the log is on disk, the queue offset
#: up to which timer messages were put into the wheel, and the same of the master.
TIMER_CHECKPOINT_FORMAT = struct.Struct(">4q")
#: The size of the file, which is one page (``MappedFile.OS_PAGE_SIZE``).
TIMER_CHECKPOINT_BYTES = 4096

MAGIC_MAX = 0xF
#: ``TimerLog#BLANK_MAGIC_CODE``: the rest of a file has no unit.
BLANK_MAGIC = (0xBBCCDDEE ^ (1880681586 + 8)) - 2**32
#: How far before a unit's end its physical offset and size are (``TimerMessageStore#reviseQueueOffset``).
PLACE_BEFORE_END = 24
PLACE = struct.Struct(">qi")
#: The number of a wheel's slots; half of them are in use at a time (``TIMER_WHEEL_TTL_DAY``).
SLOTS = 2 * 7 * 24 * 3600
#: The number of past slots that are never read (``TIMER_BLANK_SLOTS``).
BLANK_SLOTS = 60

assert TIMER_UNIT.itemsize == 52
assert TIMER_SLOT.itemsize == 32


def is_unit(units: np.ndarray[tuple[int], np.dtype[np.void]]) -> Bools:
    """Which units are a message's (``TimerMessageStore#isMagicOK``), bool[n]."""
    found: Bools = (units["size"] == TIMER_UNIT.itemsize) & (units["magic"] >= 0) & (units["magic"] <= MAGIC_MAX)
    return found
