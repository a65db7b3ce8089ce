"""Both decoders: a record that lacks some bytes is never a message that was not written."""

from __future__ import annotations

import re

import pytest
from support.decoders import Decoder, each_decoder, expected_message
from support.logs import SHAPES
from support.proof_counts import Proof
from support.record_writer import Message, encode

from reput.source.record.message_decoder import Verdict

CASES = "G3 torn records, each by one decoder"
OFFSET = 8192
FIRST = Message(properties={"TAGS": "first"})

pytestmark = [each_decoder, pytest.mark.parametrize("name", list(SHAPES))]


def first_and(name: str) -> tuple[bytes, bytes]:
    """Return a good record, and the one of a shape that follows it."""
    first = encode(FIRST, OFFSET)
    return first, encode(SHAPES[name], OFFSET + len(first))


def contents_at(message: Message, record: bytes) -> int:
    """Where the last text of a record begins: behind its last length, zeros pass for text."""
    properties = message.properties_bytes
    return len(record) - (len(properties) or 2 + len(message.topic.encode()))


@pytest.mark.parametrize("check_crc", [False, True])
def test_cut_at_every_byte(decode: Decoder, name: str, check_crc: bool, proof: Proof) -> None:
    """A record cut anywhere is UNDERFLOW, and BAD_SIZE where the segment ends with the cut."""
    first, record = first_and(name)
    expected = [expected_message(OFFSET, FIRST)]
    for cut in range(len(record)):
        log = first + record[:cut]
        found = decode(log, OFFSET, OFFSET + 4096, check_crc=check_crc)
        assert found == (expected, len(first), Verdict.UNDERFLOW), cut
        at_end = decode(log, OFFSET, check_crc=check_crc)
        assert at_end == (expected, len(first), Verdict.BAD_SIZE if cut >= 8 else Verdict.UNDERFLOW), cut
        proof(CASES)


@pytest.mark.parametrize("check_crc", [False, True])
def test_zeros_from_every_byte(decode: Decoder, name: str, check_crc: bool, proof: Proof) -> None:
    """With zeros from any byte on it is not a message, unless only the last text is zeros, which no length shows."""
    first, record = first_and(name)
    for cut in range(len(record)):
        torn = record[:cut] + bytes(len(record) - cut)
        messages, stop_at, verdict = decode(first + torn + bytes(300), OFFSET, OFFSET + 4096, check_crc=check_crc)
        # A DELAY that ends in zeros is not a number, nor is the second of an inner batch's two.
        number = re.search(b"(DELAY|INNER_BASE)\x01[^\x02]*$", record[:cut])
        passes = cut >= contents_at(SHAPES[name], record) and number is None
        assert len(messages) == 1 + passes, cut
        assert stop_at == len(first) + passes * len(record), cut
        if passes or cut <= 3:
            assert verdict is Verdict.EMPTY, cut
        else:
            assert verdict not in (Verdict.MESSAGE, Verdict.BLANK, Verdict.EMPTY, Verdict.UNDERFLOW), cut
        proof(CASES)


def test_zeros_before_every_byte(decode: Decoder, name: str, proof: Proof) -> None:
    """A record whose last bytes came first is not a message while one byte of its head is missing."""
    first, record = first_and(name)
    head = 36  # up to its own offset in the log, which is not 0 here
    for cut in range(next(at for at in range(head) if record[at]) + 1, head):
        messages, stop_at, _ = decode(first + bytes(cut) + record[cut:], OFFSET, OFFSET + 4096)
        assert (len(messages), stop_at) == (1, len(first)), cut
        proof(CASES)
