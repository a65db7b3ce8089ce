"""Kernels that work by words of eight bytes: every alignment, length and index of a byte, up to the array's end."""

from __future__ import annotations

import random
import string
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.logs import log_bytes
from support.record_writer import Message

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.piece import Piece, PieceEntries, QueueFilter
from reput.sinks.formats.index_file import ENTRY, SLOTS_A_PAGE, chain_entries, put_entries, time_diffs
from reput.source.arrays import Bytes
from reput.source.kernels import byte_kernels as bk
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import decode_records
from reput.source.kernels.byte_kernels import crc32
from reput.source.kernels.property_kernels import java_hash
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.segment_scan import Window
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_properties import decode_utf8, hash_code, parse_properties, split_keys

LENGTHS = range(41)
ALIGNMENTS = range(8)
#: The bytes of an array after those in question: none, less than a word, more.
BEHIND = [0, 3, 9]
RANDOM = random.Random(3)


def array_of(before: int, data: bytes, behind: int) -> Bytes:
    """`data` between bytes that would be found, and would change a hash, if they were read."""
    return np.frombuffer(b"\2" * before + data + b"\2" * behind, np.uint8)


@pytest.mark.parametrize("at", ALIGNMENTS)
def test_integers(at: int) -> None:
    """Loads and stores are big-endian; a word has its first byte lowest."""
    for data in (RANDOM.randbytes(8), bytes(8), b"\xff" * 8, b"\x80" + bytes(7)):
        padded = array_of(at, data, 0)
        assert int(bk.load_i16(padded, at)) == int.from_bytes(data[:2], "big", signed=True)
        assert int(bk.load_i32(padded, at)) == int.from_bytes(data[:4], "big", signed=True)
        assert int(bk.load_i64(padded, at)) == int.from_bytes(data, "big", signed=True)
        assert int(bk.load_word(padded, at)) == int.from_bytes(data, "little")
        out = np.zeros((3, 20), np.uint8)
        bk.store_i64(out, 1, at, int.from_bytes(data, "big", signed=True))
        bk.store_i32(out, 1, at + 8, int.from_bytes(data[:4], "big", signed=True))
        assert out.tobytes() == bytes(20 + at) + data + data[:4] + bytes(28 - at)


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("size", range(1, 9))
def test_load_bytes(size: int, behind: int) -> None:
    """As many bytes as are asked for, wherever the array ends."""
    data = RANDOM.randbytes(size)
    assert int(bk.load_bytes(array_of(5, data, behind), 5, size)) == int.from_bytes(data, "little")


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("at", ALIGNMENTS)
def test_find_byte(at: int, behind: int) -> None:
    """The byte is found at every index of every length, first of several, and never after the end."""
    for size in LENGTHS:
        none = bytes([1, 3, 0x82, 0, 0xFF] * 9)[:size]
        assert bk.find_byte(array_of(at, none, behind), at, at + size, 2) == at + size
        for index in range(size):
            data = bytearray(none)
            data[index] = 2
            data[min(index + 3, size - 1)] = 2
            assert bk.find_byte(array_of(at, bytes(data), behind), at, at + size, 2) == at + index
            assert bk.find_byte(array_of(at, bytes(data), behind), at + index, at + size, 2) == at + index


@pytest.mark.parametrize("at", ALIGNMENTS)
def test_spans_equal(at: int) -> None:
    """One byte that differs is seen at every index of every length; what is around does not matter."""
    for size in LENGTHS:
        data = RANDOM.randbytes(size)
        left, right = array_of(at, data, 0), np.frombuffer(b"\7" * 3 + data + b"\7", np.uint8)
        assert bk.spans_equal(left, at, right, 3, size)
        assert bk.spans_equal(right, 3, left, at, size)
        for index in range(size):
            other = right.copy()
            other[3 + index] ^= 0x80
            assert not bk.spans_equal(left, at, other, 3, size)


@pytest.mark.parametrize("at", ALIGNMENTS)
def test_crc32(at: int) -> None:
    """The checksum is zlib's for every length from none to several blocks, up to the array's last byte."""
    data = RANDOM.randbytes(300)
    padded = array_of(at, data, 0)
    for size in range(len(data) + 1):
        assert int(crc32(padded, at, size)) == zlib.crc32(data[:size])
        assert int(crc32(padded, at + 300 - size, size)) == zlib.crc32(data[300 - size :])


@pytest.mark.parametrize("at", ALIGNMENTS)
def test_java_hash_of_every_length(at: int) -> None:
    """ASCII is hashed by words, the rest of a text from its first word with another unit on, at every index."""
    for size in LENGTHS:
        text = "".join(RANDOM.choices(string.printable, k=size))
        for seed in (0, 1, -1, -(2**31), 2**31 - 1):
            continued = (seed * pow(31, size, 2**32) + hash_code(text) + 2**31) % 2**32 - 2**31
            assert int(java_hash(array_of(at, text.encode(), 0), at, size, seed)) == continued
        for index in range(size):
            for unit in (b"\x80", b"\xff", "ä".encode(), "😀".encode()):
                data = text.encode()[:index] + unit + text.encode()[index + 1 :]
                assert int(java_hash(array_of(at, data, 0), at, len(data), 0)) == hash_code(decode_utf8(data))


# --- properties ------------------------------------------------------------------------------------------

NAMES = st.sampled_from([name.encode() for name in pk.LOCATED])
ALMOST = st.sampled_from(
    [b"TAG", b"TAGSS", b"KEYX", b"UNIQ_KEX", b"UNIQ_KEY2", b"INNER_NUMB", b"REAL_TOPIK", b"I", b"W"]
)
ALMOST |= st.sampled_from([b"INNER_MULTI_QUEUE_OFFSES", b"INNER_MULTI_DISPATCI", b"\xff", b"", b"T" * 30])
VALUES = st.binary(max_size=20).map(lambda value: value.replace(b"\2", b"\3"))
ITEMS = st.tuples(NAMES | ALMOST, st.sampled_from([b"\1", b"\1", b"\1", b"", b"\1\1"]), VALUES).map(b"".join)


def located(properties: bytes, behind: int, at: int = 0) -> dict[str, bytes]:
    """Return the result of `locate_properties`, by name."""
    data = array_of(at, properties, behind)
    parts, spans = np.zeros((1, rk.PARTS), np.int64), np.full((1, len(pk.LOCATED), 2), 99, np.int32)
    parts[0, rk.PROPERTIES], parts[0, rk.PROPERTIES_SIZE] = at, len(properties)
    pk.locate_properties(data, parts, 0, spans)
    found = zip(pk.LOCATED, spans[0].tolist(), strict=True)
    return {name: data[start : start + size].tobytes() for name, (start, size) in found if size}


def check_located(properties: bytes, behind: int, at: int = 0) -> None:
    """Assert that all of LOCATED are found, and nothing else."""
    expected = parse_properties(properties.decode("latin-1"))
    wanted = {name: value.encode("latin-1") for name, value in expected.items() if name in pk.LOCATED}
    assert wanted == located(properties, behind, at)


@given(st.lists(ITEMS, max_size=6), st.booleans(), st.sampled_from(BEHIND), st.integers(0, 7))
def test_located_properties(items: list[bytes], is_ended: bool, behind: int, at: int) -> None:
    """Names that are known, almost known or empty, values with and without separators, with and without an end."""
    check_located(b"\2".join(items) + b"\2" * is_ended, behind, at)


@pytest.mark.parametrize("name", pk.LOCATED)
def test_one_property_of_every_size(name: str) -> None:
    """Each known name is found with values of every length, cut at every byte, and with any byte of it changed."""
    for size in LENGTHS:
        properties = f"A\1b\2{name}\1".encode() + b"v" * size
        check_located(properties, 0)
        check_located(properties + b"\2TAGS\1x", 0)
    for cut in range(len(properties)):
        check_located(properties[:cut], 0)
        for behind in BEHIND:
            changed = bytearray(properties)
            changed[cut] ^= 3
            check_located(bytes(changed), behind)


# --- entries ---------------------------------------------------------------------------------------------

TIMES = st.sampled_from([0, 1, -1, 999, 1000, 1_700_000_000_000, 2**62, -(2**63), 2**63 - 1]) | st.integers(0, 10**7)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 2047, 2048, 5000, 2**31 - 1]) | st.integers(0, 9999), TIMES), max_size=40
    ),
    st.integers(1, 3000),
    st.sampled_from([1, 2, 7, 128]),
    TIMES,
    TIMES,
    st.integers(1, 5),
)
def test_put_entries(
    keys: list[tuple[int, int]], slot_count: int, block: int, begin: int, first_begin: int, first: int
) -> None:
    """Entries, slots and counts are those of the single steps, in blocks of any size; slots may hold anything."""
    hashes = np.array([key for key, _ in keys], np.int32)
    times = np.array([time for _, time in keys], np.int64)
    offsets = np.arange(len(keys), dtype=np.int64) * (2**40 + 7)
    slots = np.arange(-3, slot_count - 3, dtype=np.int32)
    expected = np.empty(len(keys), ENTRY)
    expected_slots, previous = slots.copy(), np.empty(len(keys), np.int32)
    fresh = chain_entries(expected_slots, hashes, first, previous)
    diffs = time_diffs(times, begin)
    diffs[:1] = time_diffs(times[:1], first_begin)
    for name, values in (("key_hash", hashes), ("physical_offset", offsets), ("time_diff", diffs)):
        expected[name] = values
    expected["previous"] = previous
    entries, touched = np.empty((len(keys), ENTRY.itemsize), np.uint8), np.zeros(slot_count // SLOTS_A_PAGE + 1, bool)
    scratch = np.empty(block, np.int64)
    assert fresh == put_entries(slots, touched, scratch, first, begin, first_begin, hashes, offsets, times, entries)
    assert entries.tobytes() == expected.tobytes()
    assert (slots == expected_slots).all()
    assert np.flatnonzero(touched).tolist() == sorted({int(key) % slot_count // SLOTS_A_PAGE for key in hashes})


def effects_of(window: Window, needs: LogicNeeds) -> PieceEntries:
    piece = Piece(needs, (1000,), window.start)
    piece.add(window, MappedFile(window.start, window.end - window.start, ""))
    return PieceEntries([piece.arrays(QueueFilter())])


def window_of(messages: Sequence[Message]) -> Window:
    log, _ = log_bytes(messages, 1 << 33)
    data = np.frombuffer(log, np.uint8)
    end = (1 << 33) + len(log)
    decoded = decode_records(data, 0, len(data), 1 << 33, end, check_crc=True, delays_ms=np.array([1000], np.int64))
    assert len(decoded.columns) == len(messages)
    return Window(data, 1 << 33, decoded.columns.parts, end, Verdict.MESSAGE, 0, decoded.columns)


TOPICS = [f"{'t' * size}{number}" for size in (0, 3, 7, 8, 9, 40) for number in range(12)]


def test_records_are_grouped_by_topic_and_queue() -> None:
    """Topics that differ in one byte, short and long, and ids that do not fit a table: as a dictionary groups them."""
    rng = random.Random(8)
    queues = [(rng.choice(TOPICS), rng.choice([0, 1, -1, 2**31 - 1])) for _ in range(2000)]
    window = window_of([Message(topic, queue_id, body=b"") for topic, queue_id in queues])
    expected: dict[tuple[bytes, int], list[int]] = {}
    for (topic, queue_id), offset in zip(queues, window.columns.physical_offset.tolist(), strict=True):
        expected.setdefault((topic.encode(), queue_id), []).append(offset)
    found = {
        (queue.topic, queue.queue_id): queue.entries.view(">i8,>i4,>i8")["f0"][:, 0].tolist()
        for queue in effects_of(window, LogicNeeds()).all_queues()
    }
    assert list(found.items()) == list(expected.items())


@pytest.mark.parametrize("index_tags", [False, True])
def test_any_number_of_keys(index_tags: bool) -> None:
    """However many keys a message has, and wherever in the window: all of them, in order."""
    rng = random.Random(9)
    messages = []
    for count in [*range(30), 0, 900, 0, 1]:
        keys = "".join(f"{rng.choice(['k', 'ключ', ''])}{number}{' ' * rng.randrange(1, 3)}" for number in range(count))
        properties = {"KEYS": keys, "TAGS": rng.choice(["", "T", "тег"]), "UNIQ_KEY": rng.choice(["", "u" * count])}
        messages.append(Message("Тема", properties={name: value for name, value in properties.items() if value}))
    expected = []
    for message in messages:
        properties = dict(message.properties)
        texts = [properties[name] for name in ("UNIQ_KEY",) if name in properties]
        texts += split_keys(properties.get("KEYS", ""))
        texts += [f"T#{properties['TAGS']}" for name in ("TAGS",) if index_tags and name in properties]
        expected += [abs(hash_code(f"Тема#{text}")) for text in texts]
    keys = effects_of(window_of(messages), LogicNeeds(consume_queue=False, index_tags=index_tags)).keys()
    assert keys.hashes.tolist() == expected
    assert len(keys.offsets) == len(keys.timestamps) == len(expected)
