"""Damage costs one record: every bit flipped, forged records, random damage, wherever batches and ranges are cut."""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.damage_model import Part, Segment
from support.decoders import batch_decoder, reference_decoder
from support.logs import SHAPES, WITH_PROPERTY_CRC, end_of, load_log, put_bytes
from support.proof_counts import Proof
from support.record_writer import CommitLogWriter, Message, StoredRecord, encode
from support.sink_runner import MEMORY

from reput.source.errors import OptionError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.log.reput_end_offset import begins_with_record
from reput.source.log.segment_scan import Window
from reput.source.options import SourceOptions
from reput.source.record.message_decoder import Verdict

CHECKED = DecodeOptions(check_crc=True, on_damage="quarantine")
UNCHECKED = DecodeOptions(on_damage="quarantine")
BROKER = DecodeOptions(on_damage="broker")


def read(file: MappedFile, start: int, end: int, options: DecodeOptions = CHECKED, window: int = 1 << 21) -> list[Part]:
    """Return the records of a range, after checking that its windows tile it."""
    found, offset = [], start
    for part in read_windows(file, start, end, options, window):
        assert part.start == offset
        offset = part.end
        found += parts_of(part, file.frame)
    assert offset == end
    return found


def parts_of(window: Window, frame: int) -> list[Part]:
    columns = window.columns
    if window.damaged is not None:
        assert len(columns) == 0
        assert (window.damaged.start, window.damaged.end) == (window.start, window.end)
        return [Part(window.start, window.end, window.damaged.cause)]
    placed = zip(columns.physical_offset.tolist(), columns.msg_size.tolist(), strict=True)
    return [Part(at - frame, at + size, None) for at, size in placed]


# --- every bit -------------------------------------------------------------------------------------------

#: Fields of a record with IPv4 hosts, where they begin.
FIELDS = {
    "total size": 0,
    "magic code": 4,
    "body CRC": 8,
    "queue id": 12,
    "flag": 16,
    "queue offset": 20,
    "physical offset": 28,
    "sys flag": 36,
    "born time": 40,
    "born host": 48,
    "store time": 56,
    "store host": 64,
    "reconsume times": 72,
    "prepared offset": 76,
    "body length": 84,
    "body": 88,
}


def field_of(record: StoredRecord, at: int, frame: int) -> str:
    """The name of the field that byte `at` of the entry belongs to."""
    if at < frame:
        return "entry: " + next(name for name, end in ENTRY_FIELDS.items() if at < end)
    message, at = record.message, at - frame
    for begin, host in ((48, message.born_host), (64, message.store_host)):
        if ":" in host[0] and at >= begin + 8:
            at = max(begin + 7, at - 12)
    topic_at = 88 + len(message.body)
    width = 2 if message.magic & 0xF == 0xB else 1
    properties_at = topic_at + width + len(message.topic.encode())
    if at >= properties_at:
        return "properties length" if at < properties_at + 2 else "properties"
    if at >= topic_at:
        return "topic length" if at < topic_at + width else "topic"
    return next(name for name, begin in reversed(FIELDS.items()) if at >= begin)


ENTRY_FIELDS = {"magic": 4, "size": 8, "index and term": 24, "offset": 32, "channel and checksums": 44, "body size": 48}

#: Bits of these are found always, whatever the record.
STRUCTURE = {"total size", "magic code", "physical offset", "topic length"}


@dataclass(frozen=True)
class Flips:
    """How many bits of each field were flipped, and how many of these were found."""

    flipped: Counter[str]
    found: Counter[str]

    def share(self, field: str) -> float:
        return self.found[field] / self.flipped[field]


def flip_every_bit(
    directory: Path, messages: Sequence[Message], which: Sequence[int], *, dledger: bool = False
) -> Flips:
    """Flip each bit of the records `which` of a log and check that this one alone is missing, or none."""
    queue, records = load_log(directory, messages, 1 << 15, dledger=dledger)
    file, frame = queue.files[0], queue.files[0].frame
    log = Path(file.path).read_bytes()
    whole = np.frombuffer(log, np.uint8)
    expected = [Part(at - frame, at + size, None) for at, _, size in records]
    assert read(file, 0, expected[-1].end) == expected
    flipped, found = Counter[str](), Counter[str]()
    descriptor = os.open(file.path, os.O_WRONLY)
    try:
        for number in which:
            begin, end = expected[number].start, expected[number].end
            for bit in range(8 * (end - begin)):
                at = begin + bit // 8
                field = field_of(records[number], at - begin, frame)
                byte = bytes([log[at] ^ 1 << bit % 8])
                os.pwrite(descriptor, byte, at)
                parts = []
                for window in read_windows(file, 0, expected[-1].end, CHECKED):
                    parts += parts_of(window, frame)
                    if window.damaged is None:
                        changed = np.flatnonzero(
                            window.columns.data[: window.end - window.start] != whole[window.start : window.end]
                        )
                        assert set(changed + window.start) <= {at}
                flipped[field] += 1
                verdict = verdict_of_both(log[begin:at] + byte + log[at + 1 : end], begin, file.end, dledger=dledger)
                if parts != expected:
                    found[field] += 1
                    lost = Part(begin, end, verdict.name)
                    assert parts == [*expected[:number], lost, *expected[number + 1 :]], (number, field, bit)
                else:
                    assert verdict is Verdict.MESSAGE
                os.pwrite(descriptor, log[at : at + 1], at)
    finally:
        os.close(descriptor)
    return Flips(flipped, found)


def verdict_of_both(record: bytes, offset: int, file_end: int, *, dledger: bool) -> Verdict:
    """Return both decoders' verdict on the record; one that is longer than the given bytes counts as a wrong size."""
    outcomes = [decode(record, offset, file_end, dledger=dledger) for decode in (reference_decoder, batch_decoder)]
    assert outcomes[0] == outcomes[1]
    if outcomes[0].messages:
        return Verdict.MESSAGE
    if outcomes[0].verdict is not Verdict.UNDERFLOW:
        return outcomes[0].verdict
    # With the whole segment at hand it is judged by its bytes.
    padded = record.ljust(min(file_end - offset, 1 << 15), b"\0")
    outcomes = [decode(padded, offset, file_end, dledger=dledger) for decode in (reference_decoder, batch_decoder)]
    assert outcomes[0].verdict is outcomes[1].verdict
    return outcomes[0].verdict


FLIPPED = [
    SHAPES["plain"],
    SHAPES["v6 both"],
    SHAPES["delayed"],
    SHAPES["nothing but a topic"],
    SHAPES["non-ASCII"],
    replace(SHAPES["V2"], body=bytes(range(40))),
]


FLIPS = "G5 single bits flipped"


def test_every_bit_of_six_shapes(tmp_path: Path, proof: Proof) -> None:
    """Fields that say where things are and the body are always found; topic, properties and times never are."""
    found = flip_every_bit(tmp_path, FLIPPED, range(6))
    proof(FLIPS, found.flipped.total())
    assert {field: found.share(field) for field in sorted(STRUCTURE | {"body"})} == dict.fromkeys(
        sorted(STRUCTURE | {"body"}), 1.0
    )
    assert {field for field, count in found.found.items() if not count} == set()
    missed = {field: found.flipped[field] - found.found[field] for field in found.flipped}
    # An empty body has no checksum, and its length may be negative; so may the length of no properties.
    assert (missed["body CRC"], missed["body length"], missed["properties length"]) == (32, 1, 1)
    # Two bits of 32 say how long the hosts are.
    assert missed["sys flag"] == 6 * 30
    never = {"queue id", "flag", "queue offset", "born time", "born host", "store time", "store host", "topic"}
    assert never | {"reconsume times", "prepared offset"} <= {field for field in missed if not found.found[field]}


def test_every_bit_of_a_record_with_a_property_checksum(tmp_path: Path, proof: Proof) -> None:
    """From 5.2.0 on a record may end in its own checksum: then every field is found, but for the checksum's name."""
    found = flip_every_bit(tmp_path, [SHAPES["plain"], WITH_PROPERTY_CRC, SHAPES["plain"]], [1])
    proof(FLIPS, found.flipped.total())
    missed = {field: found.flipped[field] - found.found[field] for field in found.flipped}
    assert {field: count for field, count in missed.items() if count} == {"properties": 8 * len(b"__CRC32#\x01")}


def test_every_bit_of_a_dledger_entry(tmp_path: Path, proof: Proof) -> None:
    """The entry's size, offset and body size are found; RocketMQ reads neither index nor term nor checksums."""
    found = flip_every_bit(tmp_path, [SHAPES["plain"], SHAPES["v6 both"], SHAPES["plain"]], [1], dledger=True)
    proof(FLIPS, found.flipped.total())
    shares = {field: found.share(field) for field in found.flipped if field.startswith("entry: ")}
    assert shares == {
        "entry: magic": 1.0,
        "entry: size": 1.0,
        "entry: offset": 1.0,
        "entry: body size": 1.0,
        "entry: index and term": 0.0,
        "entry: channel and checksums": 0.0,
    }


@pytest.mark.slow
def test_every_bit_of_a_log_of_100_records(tmp_path: Path, proof: Proof) -> None:
    """The detection matrix is printed."""
    shapes = list(SHAPES.values())
    messages = [replace(shapes[number % len(shapes)], body=bytes([number]) * (number % 70)) for number in range(100)]
    found = flip_every_bit(tmp_path, messages, range(100))
    for field, count in found.flipped.items():
        print(f"{field:20} {count:7} flipped, {found.share(field):7.2%} found")
    assert all(found.share(field) == 1.0 for field in STRUCTURE | {"body"})
    proof(FLIPS, found.flipped.total())


# --- what a body holds -----------------------------------------------------------------------------------

HEADER_DAMAGE = {
    "total size": (0, b"\x00\x00\x01\xff"),
    "total size and magic": (0, bytes(8)),
    "magic": (4, b"\x12\x34\x56\x78"),
    "offset": (28, b"\xff" * 8),
    "body length": (84, b"\x00\x00\x00\x07"),
    "negative total size": (0, b"\xff"),
}


def with_forged(directory: Path, *, at_right_offset: bool, more: bytes = b"") -> tuple[MappedFile, list[StoredRecord]]:
    """Three records, the second with a whole record in its body."""
    before, begin = encode(Message(), 0), 88
    inner_at = len(before) + begin + 10
    forged = encode(Message("Forged", body=b"x"), inner_at if at_right_offset else inner_at + 1)
    outer = Message(body=b"0123456789" + forged + more, properties={"TAGS": "T"})
    queue, records = load_log(directory, [Message(), outer, Message("After"), Message("AfterThat")])
    return queue.files[0], records


@pytest.mark.parametrize("damage", HEADER_DAMAGE)
@pytest.mark.parametrize("at_right_offset", [True, False])
@pytest.mark.parametrize("more", [b"", bytes(40), b"tail"])
def test_a_record_in_a_body_is_no_record_of_the_log(
    damage: str, at_right_offset: bool, more: bytes, tmp_path: Path
) -> None:
    """However the outer header is damaged, as long as one of its two sizes is whole."""
    file, records = with_forged(tmp_path, at_right_offset=at_right_offset, more=more)
    at, data = HEADER_DAMAGE[damage]
    bad = records[1].physical_offset
    put_bytes(file.path, bad + at, data)
    found = read(file, 0, end_of(records))
    expected = [Part(record.physical_offset, record.physical_offset + record.msg_size, None) for record in records]
    assert [part for part in found if part.cause is None] == [expected[0], *expected[2:]]
    assert (found[1].start, found[1].end) == (expected[1].start, expected[1].end)


def test_without_any_size_a_lone_record_in_a_body_is_passed_over(tmp_path: Path) -> None:
    """The whole header is gone: a record counts only if the log continues after it."""
    file, records = with_forged(tmp_path, at_right_offset=True, more=b"not the begin of a record, by any means")
    put_bytes(file.path, records[1].physical_offset, b"\x55" * 88)
    assert [part.start for part in read(file, 0, end_of(records)) if part.cause is None] == [
        record.physical_offset for record in (records[0], *records[2:])
    ]


def test_two_records_in_a_body_whose_header_is_gone_are_not_told_apart(tmp_path: Path) -> None:
    """A limit of the rule: a row of records made for exactly their offsets, after a header that is gone."""
    before = len(encode(Message(), 0))
    first_at = before + 88
    first = encode(Message("Forged"), first_at)
    second = encode(Message("Forged"), first_at + len(first))
    queue, records = load_log(tmp_path, [Message(), Message(body=first + second), Message("After"), Message()])
    file = queue.files[0]
    whole = [record.physical_offset for record in records]
    assert [part.start for part in read(file, 0, end_of(records))] == whole
    put_bytes(file.path, whole[1], b"\x55" * 88)
    found = read(file, 0, end_of(records))
    assert [part.start for part in found if part.cause is None] == [
        0, first_at, first_at + len(first), whole[2], whole[3],
    ]  # fmt: skip


def test_a_wrong_size_that_leads_to_a_later_record_loses_only_its_own(tmp_path: Path) -> None:
    """Records before the end that a size proves count, when they lead there without a gap."""
    queue, records = load_log(tmp_path, [Message()] * 6)
    file, size = queue.files[0], records[0].msg_size
    put_bytes(file.path, size, struct.pack(">i", 3 * size))
    put_bytes(file.path, size + 84, b"\x7f")  # the lengths lead nowhere
    found = read(file, 0, end_of(records))
    assert [(part.start, part.cause) for part in found] == [
        (number * size, "BAD_LENGTH" if number == 1 else None) for number in range(6)
    ]


def test_a_blank_in_the_middle_is_damage(tmp_path: Path) -> None:
    """A blank of another size than the rest of the file, before records; without records after it, it is a blank."""
    queue, records = load_log(tmp_path, [Message()] * 5)
    file, size = queue.files[0], records[0].msg_size
    blank_at = 5 * size
    put_bytes(file.path, blank_at, struct.pack(">iI", 77, 0xCBD43194))
    assert len(read(file, 0, file.end)) == 5
    put_bytes(file.path, 2 * size, struct.pack(">iI", file.size - blank_at, 0xCBD43194))
    found = read(file, 0, file.end)
    assert [part.cause for part in found] == [None, None, "BAD_BLANK", None, None]
    assert [part.cause for part in read(file, 0, file.end, BROKER)] == [None, None]


# --- as a broker -----------------------------------------------------------------------------------------


def resized(record: bytes, more: int) -> bytes:
    return struct.pack(">i", len(record) + more) + record[4:]


#: The third of six records, and which of them a 4.9.3 broker's replay dispatches of a complete segment; see
#: tests/test_anomalies_broker.py, where it does.
AS_A_BROKER = {
    "bad magic": (lambda record: record[:4] + b"\x12\x34\x56\x78" + record[8:], [0, 1]),
    "zeros": (lambda record: bytes(len(record)), [0, 1]),
    "negative size": (lambda record: b"\xff" * 4 + record[4:], [0, 1]),
    "size too large": (lambda record: resized(record, 10), [0, 1, 3, 4, 5]),
    "size too small": (lambda record: resized(record, -10), [0, 1, 3, 4, 5]),
    "size of a beginning": (lambda record: struct.pack(">i", 20) + record[4:], [0, 1, 3, 4, 5]),
    "size smaller than a host": (lambda record: struct.pack(">i", 7) + record[4:], [0, 1]),
    "size 0": (lambda record: bytes(4) + record[4:], [0, 1]),
    "body beyond the segment": (lambda record: record[:84] + b"\x7f" + record[85:], [0, 1]),
    "negative topic length": (lambda record: record[:98] + b"\xff" + record[99:], [0, 1]),
    "another offset": (lambda record: record[:28] + b"\xff" * 8 + record[36:], [0, 1, 3, 4, 5]),
    "body differs": (lambda record: record[:90] + b"?" + record[91:], [0, 1, 2, 3, 4, 5]),
}


@pytest.mark.parametrize("damage", AS_A_BROKER)
@pytest.mark.parametrize("dledger", [False, True])
def test_what_a_broker_leaves_out(damage: str, dledger: bool, tmp_path: Path) -> None:
    """In a complete segment, the same under DLedger, whose replay parses the same record behind the header."""
    queue, records = load_log(tmp_path, [Message(body=b"0123456789")] * 6, dledger=dledger)
    file = queue.files[0]
    make, kept = AS_A_BROKER[damage]
    bad = records[2].physical_offset
    put_bytes(file.path, bad, make(encode(records[2].message, bad)))
    found = [part.start for part in read(file, 0, file.end, BROKER) if part.cause is None]
    assert found == [records[number].physical_offset - file.frame for number in kept]


# --- random damage ---------------------------------------------------------------------------------------

SIZE = 1024


@dataclass(frozen=True)
class Damage:
    kind: str
    at: int
    size: int
    data: bytes
    source: int

    def apply(self, log: bytearray, written: int) -> None:
        at, source, size = self.at % written, self.source % written, self.size
        room = SIZE - at % SIZE
        size = min(size, room, SIZE - source % SIZE)
        if self.kind == "overwrite":
            data = self.data[:room]
            log[at : at + len(data)] = data
        elif self.kind == "zeros":
            log[at : at + size] = bytes(size)
        elif self.kind == "duplicate":
            log[at : at + size] = log[source : source + size]
        else:
            end = at - at % SIZE + SIZE
            log[at:end] = log[at + size : end] + bytes(size)


damages = st.lists(
    st.builds(
        Damage,
        st.sampled_from(["overwrite", "zeros", "duplicate", "cut out"]),
        st.integers(0, 10**6),
        st.integers(1, 300),
        st.binary(min_size=1, max_size=120),
        st.integers(0, 10**6),
    ),
    min_size=1,
    max_size=4,
)
logs = st.lists(
    st.builds(
        lambda shape, body: replace(shape, body=body),
        st.sampled_from([SHAPES["plain"], SHAPES["v6 both"], SHAPES["delayed"], WITH_PROPERTY_CRC, Message("T")]),
        st.binary(max_size=60),
    ),
    min_size=2,
    max_size=20,
)


def damaged_log(
    directory: Path, messages: Sequence[Message], harm: Sequence[Damage], *, dledger: bool
) -> tuple[list[Segment], list[StoredRecord], list[bool]]:
    """Write the log with its damage; gives the segments, the records, and which of these are as they were."""
    with CommitLogWriter(directory, SIZE, dledger=dledger) as writer:
        for number, message in enumerate(messages):
            writer.append(replace(message, store_timestamp=1000 + number))
        written = writer.max_offset
    paths = sorted(directory.iterdir())
    sound = b"".join(path.read_bytes() for path in paths)
    log = bytearray(sound)
    for one in harm:
        one.apply(log, written)
    for number, path in enumerate(paths):
        path.write_bytes(log[number * SIZE : (number + 1) * SIZE])
    frame = 48 if dledger else 0
    whole = [log[at - frame : at + size] == sound[at - frame : at + size] for at, _, size in writer.records]
    segments = [Segment(bytes(log[at : at + SIZE]), at, dledger) for at in range(0, len(log), SIZE)]
    return segments, writer.records, whole


def expected_parts(queue: MappedFileQueue, segments: Sequence[Segment], *, check_crc: bool) -> tuple[list[Part], int]:
    """The model's parts and where they end."""
    begun = max(number for number, file in enumerate(queue.files) if number == 0 or begins_with_record(file))
    last = segments[begun]
    end = last.live_end(last.begin, check_crc=True)
    if last.verdict(end, check_crc=True) is Verdict.BLANK and begun + 1 < len(segments):
        end = last.end
        after = segments[begun + 1]
        further = None if after.blank(end) else after.next_good(end)
        if further is not None:
            end = after.live_end(further, check_crc=True)
    parts = [part for segment in segments for part in segment.parts(segment.begin, check_crc=check_crc)]
    return [part for part in parts if part.end <= end], end


def read_log(log: LogReader, start: int, end: int, cuts: Iterator[int]) -> list[Part]:
    """The parts of `[start, end)`, in batches and ranges of sizes that `cuts` gives; checks that they tile it."""
    found: list[Part] = []
    while start < end:
        stop = log.limit(start, end, next(cuts), None)
        assert start < stop <= end
        offset = start
        for span in log.split(start, stop):
            assert span.start == offset
            found += read(span.file, span.start, span.end, log.decode_options, next(cuts))
            offset = span.end
        assert offset == stop
        start = stop
    return found


@given(logs, damages, st.booleans(), st.booleans(), st.lists(st.integers(1, 2500), min_size=1, max_size=6))
def test_random_damage(
    messages: list[Message], harm: list[Damage], dledger: bool, check_all: bool, sizes: list[int]
) -> None:
    """Dispatched and quarantined cover the log exactly, equal to the model's, for any batches, ranges and windows."""
    with TemporaryDirectory(dir=MEMORY) as directory:
        segments, records, whole = damaged_log(Path(directory), messages, harm, dledger=dledger)
        given_options = {
            "path": directory,
            "onDamage": "quarantine",
            "tailGuardMs": "0",
            "checkCrc": "all" if check_all else "tail",
            "enableDLegerCommitLog": str(dledger).lower(),
            "mappedFileSizeCommitLog": str(SIZE),
            "maxBytesPerPartition": str(max(sizes)),
        }
        log = LogReader(SourceOptions.parse(given_options))
        try:
            queue = log.queue()
        except OptionError:  # nothing tells any more that this is DLedger's
            assert dledger
            return
        end = log.settled_end(0)
        expected, expected_end = expected_parts(queue, segments, check_crc=check_all)
        assert end == expected_end
        assert read_log(log, 0, end, endless([10**9, 1 << 21])) == expected
        assert read_log(log, 0, end, endless(sizes)) == expected
    dispatched = {part.start for part in expected if part.cause is None}
    frame = 48 if dledger else 0
    for number, (at, _, size) in enumerate(records[:-1]):
        offset = at - frame
        after = records[number + 1].physical_offset - frame
        if whole[number] and whole[number + 1] and after == at + size and at + size <= end:
            assert offset in dispatched


def endless(values: Sequence[int]) -> Iterator[int]:
    while True:
        yield from values
