"""G3: the last record cut at every byte, three ways; the end that reput finds is the obvious one, never past it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.live_log import FIRST, GUARD_MS, SIZE, LiveLog
from support.logs import SHAPES
from support.proof_counts import Proof
from support.record_writer import encode

from reput.source.log.reput_end_offset import ReputEnd, ReputEndFinder
from reput.source.record.message_decoder import Verdict, decode_message

#: By name: the bytes in the place of `record` while only `cut` of them have come.
WAYS: dict[str, Callable[[bytes, int], bytes]] = {
    "zeros behind": lambda record, cut: record[:cut] + bytes(len(record) - cut),
    "zeros before": lambda record, cut: bytes(cut) + record[cut:],
    "an old record behind": lambda record, cut: record[:cut] + encode(FIRST, 7 * SIZE).ljust(SIZE, b"\xda")[cut:],
}


def reference_end(log: LiveLog) -> ReputEnd:
    """Walk from the first record to the end; the last record is held back, as at the first look at it.

    A record of whole lengths whose DELAY or INNER_BASE is not a number counts: a decoder will refuse it.
    """
    data = memoryview((log.directory / f"{0:020d}").read_bytes())
    at, last = 0, 0
    while True:
        verdict, _ = decode_message(data, at, at, SIZE, check_crc=True, delays_ms=(1000,))
        if verdict not in (Verdict.MESSAGE, Verdict.BAD_DELAY, Verdict.BAD_INNER_BATCH):
            return ReputEnd(last, verdict, at - last)
        at, last = at + int.from_bytes(data[at : at + 4], "big"), at


def cut_everywhere(log: LiveLog, name: str, way: str, proof: Proof) -> None:
    first = log.append()
    record = encode(SHAPES[name], first)
    for cut in range(len(record)):
        log.finder = ReputEndFinder(check_crc=True, tail_guard_ms=GUARD_MS, clock=log.clock)
        torn = WAYS[way](record, cut)[: SIZE - first].ljust(SIZE - first, b"\0")
        log.put(first, torn)
        assert [log.end(), log.end(GUARD_MS - 1)] == [reference_end(log)] * 2, cut
        assert reference_end(log).offset <= first, cut
        log.put(first, record.ljust(SIZE - first, b"\0"))
        if not torn.startswith(record):
            assert [log.end().offset, log.end(GUARD_MS - 1).offset] == [first, first], cut
        assert log.end(GUARD_MS).offset == first + len(record), cut
        proof("G3 torn last records")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SHAPES)
def test_a_torn_record_is_not_there(name: str, way: str, tmp_path: Path, proof: Proof) -> None:
    """Within the guard it does not count, whatever bytes take its place; complete, it does one guard later."""
    cut_everywhere(LiveLog(tmp_path), name, way, proof)
