"""The compiled decoder reads no byte outside the buffer: numba checks no bounds, so the checks must be its own.

This file is also the program that the test runs: the buffer lies against pages that may not be read, and a read
outside it ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np

from reput.source.arrays import Bytes
from reput.source.kernels.batch_decoder import decode_records
from reput.source.rows.message_rows import message_batch

PAGE = mmap.PAGESIZE


def test_no_byte_outside_the_buffer_is_read() -> None:
    """Each cut and each flipped bit of a record of each shape, at the end and at the beginning of readable memory."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    decoded, records = map(int, done.stdout.split())
    assert decoded > 15_000
    assert records > 1_000


def guarded_page() -> Bytes:
    """One page that may be read and written between two that may not."""
    memory = mmap.mmap(-1, 3 * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (address, address + 2 * PAGE):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return np.frombuffer(memory, np.uint8)[PAGE : 2 * PAGE]


def damaged_records() -> Iterator[bytes]:
    """Each record cut at every byte and with every bit flipped."""
    from support.logs import SHAPES, WITH_PROPERTY_CRC, entry_bytes, log_bytes

    logs = [log_bytes([message])[0] for message in (*SHAPES.values(), WITH_PROPERTY_CRC)]
    logs += [entry_bytes([SHAPES[name]])[0] for name in ("plain", "v6 both")]
    for record in logs:
        yield record
        for cut in range(len(record)):
            yield record[:cut]
        for bit in range(8 * len(record)):
            flipped = bytearray(record)
            flipped[bit // 8] ^= 1 << bit % 8
            yield bytes(flipped)


def main() -> None:
    page = guarded_page()
    delays = np.array([1000], np.int64)
    decoded = records = 0
    for number, record in enumerate(damaged_records()):
        at_the_ends = page[PAGE - len(record) :], page[: len(record)]
        for data in at_the_ends[: 1 + (number % 4 == 0)]:
            data[:] = np.frombuffer(record, np.uint8)
            frame = 48 * (record[:4] == b"\0\0\0\1")
            found = decode_records(
                data, 0, len(data), 0, PAGE, check_crc=number % 2 == 0, delays_ms=delays, frame=frame
            )
            if number % 8 == 0 and len(found.columns):  # without a record nothing of the buffer is read
                records += message_batch(found.columns).num_rows
            decoded += 1
    print(decoded, records)


if __name__ == "__main__":
    main()
