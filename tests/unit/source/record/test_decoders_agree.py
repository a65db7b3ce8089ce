"""The compiled decoder says what the reference decoder says, of sound and of damaged logs."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st
from support.decoders import Outcome, batch_decoder, reference_decoder
from support.logs import SHAPES, V6_BORN, V6_STORE, WITH_PROPERTY_CRC, entry_bytes, log_bytes
from support.record_writer import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Message, encode_entry

from reput.source.record.message_decoder import Verdict

INTS32 = st.integers(-(2**31), 2**31 - 1)
INTS64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**62) | st.integers(-(2**63), 2**62)
HOSTS = st.sampled_from([("10.1.2.3", 1234), ("255.255.255.255", -1), V6_BORN, V6_STORE, ("::ffff:1.2.3.4", 5)])
TOPICS = st.sampled_from(["SCHEDULE_TOPIC_XXXX", "TopicA", "主题", "%RETRY%g"]) | st.text(
    string.ascii_letters, min_size=1, max_size=127
)
DELAYS = st.sampled_from(["0", "1", "18", "99", "-1", "+3", "\uff13", "-\uff13", " 3", "x", "2147483648"])
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), max_size=12)
NUMBERS = st.sampled_from(["0", "1", "-1", "+7", "32767", "32768", "-32768", "-32769", "9223372036854775807"])
NUMBERS |= st.sampled_from(["9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9" * 20])
NUMBERS |= st.sampled_from(["\uff13", "+\uff13\uff13", "-\uff13x", "x", "1 ", "", "0" * 24 + "42", "-0"])
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "REAL_TOPIC", "REAL_QID", "TAG", "a"]) | TEXT
#: Pieces whose order a writer never makes: separators, known names, malformed UTF-8.
PIECES = [b"\x01", b"\x02", b"TAGS", b"DELAY", b"KEYS", b"3", b" ", b"v", b"\xed\xa0\x80", b"\xed\xa0", b"\xf0\x80"]
PIECES += [b"\xe4\xb8", b"\xff", "\U0001f600".encode(), b"\x00", b"\x02DELAY\x01", b"\x02TAGS\x01"]
OTHERS = st.dictionaries(NAMES, TEXT, max_size=3)
PROPERTIES = st.one_of(
    st.dictionaries(NAMES, TEXT, max_size=6),
    st.builds(lambda some, delay: {**some, "DELAY": delay}, OTHERS, DELAYS),
    st.builds(lambda some, num, base: {**some, "INNER_NUM": num, "INNER_BASE": base}, OTHERS, NUMBERS, NUMBERS),
    st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join),
)
MESSAGES = st.builds(
    Message,
    topic=TOPICS,
    queue_id=INTS32,
    queue_offset=INTS64,
    body=st.binary(max_size=40),
    properties=PROPERTIES,
    flag=INTS32,
    sys_flag=INTS32,
    born_timestamp=INTS64,
    born_host=HOSTS,
    store_timestamp=TIMES,
    store_host=HOSTS,
    reconsume_times=INTS32,
    prepared_transaction_offset=INTS64,
    body_crc=st.none() | st.none() | INTS32,
    magic=st.sampled_from([MAGIC_V1, MAGIC_V2]),
    append_property_crc=st.booleans(),
)
OFFSETS = st.sampled_from([0, 4096, 2**40, 2**62])
TAILS = st.sampled_from([b"", bytes(7), bytes(64), b"\0\0\0\x64" + MAGIC_BLANK.to_bytes(4, "big") + bytes(92)])
ENTRY_TAILS = st.sampled_from([b"", bytes(7), bytes(64), b"\xff\xff\xff\xff\0\0\0\x64" + bytes(92)])


def check_agree(log: bytes, offset: int, file_end: int, *, dledger: bool = False) -> Outcome:
    """Assert that both decoders give the same, with and without checksums; return what they give with them."""
    for check_crc in (False, True):
        expected = reference_decoder(log, offset, file_end, check_crc=check_crc, dledger=dledger)
        actual = batch_decoder(log, offset, file_end, check_crc=check_crc, dledger=dledger)
        assert expected == actual
    return expected


@given(st.lists(MESSAGES, max_size=6), OFFSETS, TAILS, st.integers(0, 5000))
def test_agree_on_sound_logs(messages: list[Message], offset: int, tail: bytes, room: int) -> None:
    """Records with any content in any order read the same from both decoders."""
    log, _ = log_bytes(messages, offset)
    check_agree(log + tail, offset, offset + len(log + tail) + room)


@given(st.lists(MESSAGES, max_size=6), OFFSETS, ENTRY_TAILS, st.integers(0, 5000))
def test_agree_on_sound_dledger_logs(messages: list[Message], offset: int, tail: bytes, room: int) -> None:
    """The same records in DLedger entries; and either kind of log read as the other."""
    log, plain = entry_bytes(messages, offset)[0], log_bytes(messages, offset)[0]
    end = offset + len(log + tail) + room
    framed = check_agree(log + tail, offset, end, dledger=True)
    assert len(framed.messages) == len(check_agree(plain, offset, end).messages)
    for other, dledger in ((log + tail, False), (plain + tail, True)):
        assert check_agree(other, offset, end, dledger=dledger).messages == []


EXTREMES = [0, 1, -1, 7, 8, 90, 91, 92, 127, 128, 255, 2**15 - 1, 2**15, 2**31 - 1, -(2**31), 2**31 - 92, 2**63 - 1]
EXTREMES += [MAGIC_V1, MAGIC_V2, MAGIC_BLANK, 48, 139, 140]


@st.composite
def damaged_logs(draw: st.DrawFn, *, dledger: bool = False) -> tuple[bytes, int]:
    """A log with bits flipped, integers overwritten, pieces cut out, moved or replaced; and its offset."""
    offset = draw(OFFSETS)
    shapes = st.sampled_from([*SHAPES.values(), WITH_PROPERTY_CRC])
    messages = draw(st.lists(MESSAGES | shapes, min_size=1, max_size=4))
    log = bytearray((entry_bytes if dledger else log_bytes)(messages, offset)[0])
    log += draw(ENTRY_TAILS if dledger else TAILS)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(log) - 1)))
        to = draw(st.integers(0, max(0, len(log) - 1)))
        kind = draw(st.sampled_from(["flip", "integer", "cut", "move", "random", "drop"]))
        if kind == "flip" and log:
            log[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "integer":
            width = draw(st.sampled_from([1, 2, 4, 8]))
            log[at : at + width] = (draw(st.sampled_from(EXTREMES)) % 256**width).to_bytes(width, "big")
        elif kind == "cut":
            del log[at:]
        elif kind == "move":
            log[to:to] = log[at : at + draw(st.integers(1, 200))]
        elif kind == "random":
            noise = draw(st.binary(min_size=1, max_size=24))
            log[at : at + len(noise)] = noise
        else:
            del log[at : at + draw(st.integers(1, 8))]
    return bytes(log), offset


@given(damaged_logs(), st.sampled_from([-8, -1, 0, 0, 1, 4096, 2**31]))
def test_agree_on_damaged_logs(damaged: tuple[bytes, int], room: int) -> None:
    """Whatever is in the bytes, both decoders stop at the same offset with the same verdict and do not fail."""
    log, offset = damaged
    check_agree(log, offset, offset + len(log) + room)


@given(damaged_logs(dledger=True), st.sampled_from([-8, -1, 0, 0, 1, 4096, 2**31]))
def test_agree_on_damaged_dledger_logs(damaged: tuple[bytes, int], room: int) -> None:
    """The same for entries."""
    log, offset = damaged
    check_agree(log, offset, offset + len(log) + room, dledger=True)


@given(st.binary(max_size=300), st.integers(-(2**31), 2**31 - 1), st.sampled_from([MAGIC_V1, MAGIC_V2]))
def test_agree_on_noise_behind_a_good_head(noise: bytes, sys_flag: int, magic: int) -> None:
    """A record whose size, magic and offset are right may hold anything, alone and in an entry."""
    for offset in (0, 48):
        head = (40 + len(noise)).to_bytes(4, "big") + magic.to_bytes(4, "big") + bytes(20)
        record = head + offset.to_bytes(8, "big") + (sys_flag % 2**32).to_bytes(4, "big") + noise
        check_agree(encode_entry(record, 0) if offset else record, 0, offset + len(record), dledger=bool(offset))


SMALL_LOG = ["nothing but a topic", "v6 both", "rollback", "delayed", "non-ASCII", "empty body", "V2", "inner batch"]


def sign_bits_of_empty_lengths(messages: list[Message], offsets: list[int], end: int) -> list[int]:
    """A length below 0 is read as 0, so that these bits alone change nothing; for records with IPv4 hosts."""
    bits = []
    for message, offset, after in zip(messages, offsets, [*offsets[1:], end], strict=True):
        if not message.body:
            bits.append(8 * (offset + 84) + 7)
        if not message.properties:
            bits.append(8 * (after - 2) + 7)
    return bits


def unread_bits(log: bytes, offsets: list[int], *, dledger: bool = False) -> list[int]:
    """Return the bits that change nothing when flipped; the decoders agree on each, and on the records before it."""
    sound = check_agree(log, 0, len(log), dledger=dledger)
    assert (sound.stop_at, sound.verdict) == (len(log), Verdict.UNDERFLOW)
    unread = []
    for bit in range(8 * len(log)):
        flipped = bytearray(log)
        flipped[bit // 8] ^= 1 << bit % 8
        found = check_agree(bytes(flipped), 0, len(log), dledger=dledger)
        before = sum(offset <= bit // 8 for offset in offsets) - 1
        assert found.messages[:before] == sound.messages[:before], bit
        if found == sound:
            unread.append(bit)
    return unread


def test_agree_on_every_flipped_bit() -> None:
    """Each bit of a small log flipped once: no bit is unread but those."""
    messages = [SHAPES[name] for name in SMALL_LOG]
    log, offsets = log_bytes(messages)
    assert sign_bits_of_empty_lengths(messages, offsets, len(log)) == unread_bits(log, offsets)


def test_agree_on_every_flipped_bit_of_a_record_with_its_own_checksum() -> None:
    """A flipped bit makes it a bad record, but one in the property's name: then there is no checksum."""
    log, offsets = log_bytes([WITH_PROPERTY_CRC])
    assert unread_bits(log, offsets) == []
    passed = []
    for bit in range(8 * len(log)):
        flipped = bytearray(log)
        flipped[bit // 8] ^= 1 << bit % 8
        if check_agree(bytes(flipped), 0, len(log)).messages:
            passed.append(bit)
    name_at = len(log) - 20
    assert passed == list(range(8 * name_at, 8 * (name_at + len(b"__CRC32#\x01"))))


def test_agree_on_every_flipped_bit_of_entries() -> None:
    """Of an entry's header its index, term, channel and checksums alone are DLedger's business."""
    log, offsets = entry_bytes([SHAPES["plain"], SHAPES["V2"]])
    fields = [range(offset + at, offset + end) for at, end in ((8, 24), (32, 44)) for offset in offsets]
    expected = sorted(8 * at + bit for field in fields for at in field for bit in range(8))
    assert expected == unread_bits(log, offsets, dledger=True)
