"""Random damage to logs, given to the compiled decoder between pages that may not be read; as a program, for ever.

By hand: ``python tests/faults/mutations.py 10000000`` with ``tests`` and the project on PYTHONPATH; every case has a
number that makes it again: ``python tests/faults/mutations.py 1 --first NUMBER``.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from typing import Any

import numpy as np
from support.decoders import reference_decoder
from support.logs import SHAPES, WITH_PROPERTY_CRC, entry_bytes, log_bytes
from support.record_writer import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from unit.source.kernels.test_decoders_stay_inside import PAGE, guarded_page

from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.dispatch.piece import Piece, QueueFilter
from reput.source.kernels.batch_decoder import RecordColumns, decode_records
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.segment_scan import Window
from reput.source.record.message_decoder import Verdict
from reput.source.rows.message_rows import message_batch

DELAYS = np.array([1000, 5000], np.int64)
NUMBERS = [0, 1, -1, 7, 8, 20, 48, 90, 91, 127, 128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**31 - 92]
NUMBERS += [2**63 - 1, -(2**63), 2**60, MAGIC_V1, MAGIC_V2, MAGIC_BLANK, PAGE, PAGE - 1]
NEEDS = LogicNeeds(
    index_tags=True,
    multi_dispatch=MultiDispatch(enable_lmq=True),
    ext=True,
    batch_topics=frozenset({b"B"}),
    arrivals=True,
)
#: One in this many is also decoded by the reference, and then becomes queues, index and table columns.
REFERENCE_EVERY = 500
EFFECTS_EVERY = 100
#: Of processor time, for a thousand cases: who uses more is ended by the system.
HANG_SECONDS = 10
LOGS = 64
CASES_PER_SEED = 1000


class Corpus:
    """Sound logs of a few records, plain and DLedger's, with the place of each record."""

    def __init__(self) -> None:
        rng = random.Random(0)
        shapes = [*SHAPES.values(), WITH_PROPERTY_CRC]
        self.logs: list[tuple[bytes, list[int], bool]] = []
        while len(self.logs) < LOGS:
            dledger = len(self.logs) % 8 == 7
            messages = rng.sample(shapes, rng.randint(1, 5))
            log, offsets = (entry_bytes if dledger else log_bytes)(messages)
            if len(log) + 64 <= PAGE:
                self.logs.append((log + bytes(rng.choice([0, 0, 7, 64])), offsets, dledger))


def damage(data: Any, rng: random.Random) -> int:
    """Change some bytes of `data` in place; the first that may be another."""
    first = len(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, kind = rng.randrange(len(data)), rng.random()
        if kind < 0.4:
            data[at] ^= 1 << rng.randrange(8)
        elif kind < 0.7:
            width = rng.choice((1, 2, 4, 8))
            number = (rng.choice(NUMBERS) % 256**width).to_bytes(width, "big")
            data[at : at + width] = np.frombuffer(number, np.uint8)[: len(data) - at]
        elif kind < 0.85:
            to, size = rng.randrange(len(data)), rng.randrange(1, 40)
            piece = data[to : to + size].copy()
            data[at : at + len(piece)] = piece[: len(data) - at]
        else:
            size = rng.randrange(1, 40)
            data[at : at + size] = rng.choice((0, 0, 255, 1, 2))
        first = min(first, at)
    return first


def effects(columns: RecordColumns, stop_at: int) -> None:
    """Make the effects of the columns on queues, index and table, as tasks do."""
    piece = Piece(NEEDS, tuple(DELAYS.tolist()), 0)
    window = Window(columns.data, 0, columns.parts, stop_at, Verdict.MESSAGE, 0, columns)
    piece.add(window, MappedFile(0, stop_at, ""))
    piece.finish(QueueFilter(), None)
    message_batch(columns)


def run(count: int, first_case: int = 0) -> int:
    """Decode `count` damaged logs; how many records were still found. An AssertionError names its case."""
    corpus, page = Corpus(), guarded_page()
    found, case, end = 0, first_case, first_case + count
    while case < end:
        rng = random.Random(case // CASES_PER_SEED)
        group_end = case - case % CASES_PER_SEED + CASES_PER_SEED
        signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        for number in range(case - case % CASES_PER_SEED, min(end, group_end)):
            log, offsets, dledger = corpus.logs[rng.randrange(LOGS)]
            data = page[PAGE - len(log) :] if rng.random() < 0.75 else page[: len(log)]
            data[:] = np.frombuffer(log, np.uint8)
            damaged_at = damage(data, rng)
            check_crc = rng.random() < 0.5
            if number >= case:
                found += decode_one(number, data, offsets, damaged_at, check_crc=check_crc, dledger=dledger)
        case = group_end
    signal.setitimer(signal.ITIMER_PROF, 0)
    return found


def decode_one(number: int, data: Any, offsets: list[int], damaged_at: int, *, check_crc: bool, dledger: bool) -> int:
    """Decode one damaged log and check what must hold of any; the number of records found."""
    found = decode_records(data, 0, len(data), 0, PAGE, check_crc=check_crc, delays_ms=DELAYS, frame=48 * dledger)
    count = len(found.columns)
    whole = sum(offset <= damaged_at for offset in offsets) - 1
    assert count >= whole, f"case {number}: {count} records where {whole} stand before the damage"
    assert 0 <= found.stop_at <= len(data), f"case {number}: stops at {found.stop_at} of {len(data)}"
    assert found.verdict is not Verdict.MESSAGE, f"case {number}: stops at a good record"
    if number % REFERENCE_EVERY == 0:
        expected = reference_decoder(
            bytes(data), 0, PAGE, check_crc=check_crc, delays_ms=tuple(DELAYS.tolist()), dledger=dledger
        )
        actual = list(found.columns.messages()), found.stop_at, found.verdict
        assert tuple(expected) == actual, f"case {number}: the reference says otherwise"
    if count and number % EFFECTS_EVERY == 0:
        effects(found.columns, found.stop_at)
    return count


def main() -> None:
    """Run this many cases and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    given = parser.parse_args()
    began = time.monotonic()
    found = run(given.count, given.first)
    seconds = time.monotonic() - began
    print(f"{given.count} mutations, {found} records found, {seconds:.0f} s", file=sys.stdout)


if __name__ == "__main__":
    main()
