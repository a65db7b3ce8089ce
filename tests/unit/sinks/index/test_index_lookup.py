"""Offsets by key from index files: the broker's rules, and files that contradict themselves."""

from __future__ import annotations

import errno
import os
import random
import struct
from pathlib import Path

import pytest
from support.logs import put_bytes
from support.model import Settings, index_file_contents, index_keys, java_hash
from support.record_writer import Message, encode

from reput.sinks.index.index_reader import IndexLookup, index_key_hash
from reput.source.errors import SinkError, TransientError

LONG_MAX = 2**63 - 1
SLOTS, ENTRIES = 5, 4
ENTRIES_AT = 40 + 4 * SLOTS

# Three puts, T#a@100, T#b@200, T#a@300, and a fourth, T#a@400, in a second file, by the classes of 4.9.3.
GOLDEN = (
    bytes.fromhex("000000E8D4A51000 000000E8D4A51BB8 0000000000000064 000000000000012C 00000002 00000004")
    + struct.pack(">5i", 0, 3, 2, 0, 0)
    + bytes(20)
    + bytes.fromhex("00013FF2 0000000000000064 00000000 00000000")
    + bytes.fromhex("00013FF3 00000000000000C8 00000001 00000000")
    + bytes.fromhex("00013FF2 000000000000012C 00000003 00000001")
)
SECOND = (
    struct.pack(">qqqqii", 1_000_000_008_000, 1_000_000_008_000, 400, 400, 1, 2)
    + struct.pack(">5i", 0, 1, 0, 0, 0)
    + bytes(20)
    + struct.pack(">iqii", 0x13FF2, 400, 5, 0)
).ljust(len(GOLDEN), b"\0")


def write_index(root: Path, *files: bytes) -> None:
    """Index files, oldest first."""
    (root / "index").mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(files):
        path_of(root, number).write_bytes(content)


def path_of(root: Path, number: int = 0) -> Path:
    return root / "index" / f"{20231114221320000 + number:017d}"


def lookup(root: Path) -> IndexLookup:
    return IndexLookup(root, SLOTS, ENTRIES)


def offsets(root: Path, key: str = "a", begin: int = 0, end: int = LONG_MAX, max_num: int = 64) -> list[int]:
    return lookup(root).query_offset("T", key, max_num, begin, end).phy_offsets


def test_the_reference_vectors(tmp_path: Path) -> None:
    """Newest file first, newest entry first; another key's entry in the same file is not one's own."""
    write_index(tmp_path, GOLDEN)
    assert offsets(tmp_path) == [300, 100]
    assert offsets(tmp_path, "b") == [200]
    assert offsets(tmp_path, "c") == []
    write_index(tmp_path, GOLDEN, SECOND)
    assert offsets(tmp_path) == [400, 300, 100]
    assert [offsets(tmp_path, max_num=count) for count in (1, 2, 3)] == [[400], [400, 300], [400, 300, 100]]


@pytest.mark.parametrize(
    ("begin", "end", "wanted"),
    [
        (1_000_000_008_000, 1_000_000_008_000, []),  # the first entry of a later file counts from the file before
        (1_000_000_008_000, 1_000_000_013_000, [400]),
        (1_000_000_000_000, 1_000_000_000_000, [100]),
        (1_000_000_000_001, 1_000_000_003_000, [300]),
        (0, 1_000_000_002_999, [100]),
        (0, 999_999_999_999, []),
        (1_000_000_013_001, LONG_MAX, []),
    ],
)
def test_times(begin: int, end: int, wanted: list[int], tmp_path: Path) -> None:
    """Both ends are inclusive, and compared with an entry's whole seconds."""
    write_index(tmp_path, GOLDEN, SECOND)
    assert offsets(tmp_path, begin=begin, end=end) == wanted


def test_key_hash() -> None:
    """Never negative: the absolute value, and 0 for the one integer that has none."""
    assert index_key_hash("polygenelubricants") == 0
    assert java_hash("polygenelubricants") == -(2**31)
    assert index_key_hash("T#a") == 0x13FF2
    for text in ("TopicA#wZwaha7", "主题#😀", "x" * 999):
        assert index_key_hash(text) == (abs(java_hash(text)) if java_hash(text) != -(2**31) else 0)


@pytest.mark.parametrize("seed", range(20))
def test_any_index_equals_a_scan_of_its_entries(seed: int, tmp_path: Path) -> None:
    """Chains give what a look at every entry gives, for any key, limit and times."""
    rng = random.Random(seed)
    settings = Settings(max_hash_slot_num=rng.choice([1, 3, 50]), max_index_num=rng.choice([2, 7, 40]))
    keys = [f"k{number}" for number in range(rng.choice([2, 30]))]
    at, time, records = 0, 1_700_000_000_000, []
    for _ in range(100):
        time += rng.choice([0, 1, 700, 5000])
        chosen = rng.choices(keys, k=rng.randint(0, 3))
        message = Message(topic=rng.choice("TU"), properties={"KEYS": " ".join(chosen)}, store_timestamp=time)
        records.append((at, message, len(encode(message, at))))
        at += records[-1][2]
    files = index_file_contents(records, settings)
    write_index(tmp_path, *files)
    index = IndexLookup(tmp_path, settings.max_hash_slot_num, settings.max_index_num)
    found = 0
    for _ in range(60):
        topic, key = rng.choice("TU"), rng.choice(keys)
        begin, end = (
            rng.choice([0, time - rng.randint(0, 200_000)]),
            rng.choice([LONG_MAX, time - rng.randint(0, 99_999)]),
        )
        limit = rng.choice([1, 3, 10_000])
        result = index.query_offset(topic, key, limit, begin, end)
        assert result.damages == []
        assert result.phy_offsets == scan(files, settings, f"{topic}#{key}", limit, begin, end)
        found += len(result.phy_offsets)
    assert found > 20
    everything = index.query_offset("T", keys[0], 10**6, 0, LONG_MAX).phy_offsets
    wanted = [at for at, message, _ in records for key in index_keys(message) if key == f"T#{keys[0]}"]
    assert everything[::-1] == wanted


def scan(files: list[bytes], settings: Settings, key: str, limit: int, begin: int, end: int) -> list[int]:
    """The entries of the key's slot in every file that the broker would open, newest first, until one is too old."""
    found, slots = [], settings.max_hash_slot_num
    key_hash = abs(java_hash(key))
    for content in reversed(files):
        first, last, _, _, _, count = struct.unpack_from(">qqqqii", content)
        if (begin < first and end > last) or first <= begin <= last or first <= end <= last:
            for number in range(count - 1, 0, -1):
                entry_hash, offset, diff, _ = struct.unpack_from(">iqii", content, 40 + 4 * slots + 20 * number)
                if entry_hash == key_hash and begin <= first + 1000 * diff <= end:
                    found.append(offset)
                if entry_hash % slots == key_hash % slots and first + 1000 * diff < begin:
                    break
        if first < begin:
            break
    return found[:limit]


def damages(root: Path, key: str = "a") -> tuple[list[int], str]:
    result = lookup(root).query_offset("T", key, 64, 0, LONG_MAX)
    (damage,) = result.damages
    assert str(path_of(root)) in damage
    return result.phy_offsets, damage


@pytest.mark.parametrize("link", [2, 3])
def test_a_loop_ends(link: int, tmp_path: Path) -> None:
    """A chain that runs in a circle is left where it turns: entry 1 links forward again."""
    write_index(tmp_path, GOLDEN)
    put_bytes(path_of(tmp_path), ENTRIES_AT + 20 + 16, struct.pack(">i", link))
    found, damage = damages(tmp_path)
    assert found == [300, 100]
    assert f"entry 1 links to entry {link}, which is not an older one" in damage


def test_an_entry_that_links_to_itself_ends_the_chain(tmp_path: Path) -> None:
    """A crash between slot and header makes one; like the broker, reput does not take it for damage."""
    write_index(tmp_path, GOLDEN)
    put_bytes(path_of(tmp_path), ENTRIES_AT + 60 + 16, struct.pack(">i", 3))
    result = lookup(tmp_path).query_offset("T", "a", 64, 0, LONG_MAX)
    assert (result.phy_offsets, result.damages) == ([300], [])


@pytest.mark.parametrize("link", [-1, -(2**31), 5, 2**31 - 1])
def test_a_link_to_no_entry(link: int, tmp_path: Path) -> None:
    """Entries that were found before it stay."""
    write_index(tmp_path, GOLDEN)
    put_bytes(path_of(tmp_path), ENTRIES_AT + 60 + 16, struct.pack(">i", link))
    found, damage = damages(tmp_path)
    assert found == [300]
    assert f"entry 3 links to entry {link}" in damage


@pytest.mark.parametrize("slot", [-1, 5, 2**31 - 1, -(2**31)])
def test_a_slot_that_points_to_no_entry(slot: int, tmp_path: Path) -> None:
    """Told for the key that the slot is of, and for no other."""
    write_index(tmp_path, GOLDEN)
    put_bytes(path_of(tmp_path), 40 + 4, struct.pack(">i", slot))
    assert offsets(tmp_path, "b") == [200]
    found, damage = damages(tmp_path)
    assert found == []
    assert f"slot 1 points to entry {slot} of 4" in damage


def test_a_slot_that_points_behind_a_full_file(tmp_path: Path) -> None:
    """Entry maxIndexNum would lie behind the file's end; the broker's test lets the number pass."""
    write_index(tmp_path, GOLDEN)
    put_bytes(path_of(tmp_path), 40 + 4, struct.pack(">i", ENTRIES))
    assert offsets(tmp_path) == []


def test_a_header_that_counts_too_much(tmp_path: Path) -> None:
    """The file is passed over, an older one still answers."""
    write_index(tmp_path, GOLDEN, SECOND)
    put_bytes(path_of(tmp_path, 1), 36, struct.pack(">i", 5))
    result = lookup(tmp_path).query_offset("T", "a", 64, 0, LONG_MAX)
    assert result.phy_offsets == [300, 100]
    assert result.damages == [
        f"{path_of(tmp_path, 1)}: the header counts to 5 where maxIndexNum is 4; the file is passed over"
    ]


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1])
def test_a_file_without_keys(count: int, tmp_path: Path) -> None:
    """A new file's count is 0 or 1 on disk, and a negative one reads as 1."""
    write_index(tmp_path, GOLDEN, bytes(36) + struct.pack(">i", count) + bytes(len(GOLDEN) - 40))
    result = lookup(tmp_path).query_offset("T", "a", 64, 0, LONG_MAX)
    assert (result.phy_offsets, result.damages) == ([300, 100], [])


def test_a_negative_time_difference_ends_the_chain(tmp_path: Path) -> None:
    """As on the broker; no broker writes one."""
    write_index(tmp_path, GOLDEN)
    put_bytes(path_of(tmp_path), ENTRIES_AT + 20 + 12, struct.pack(">i", -1))
    found, damage = damages(tmp_path)
    assert found == [300]
    assert "entry 1 has the time difference -1" in damage


def test_sizes_that_do_not_fit_the_file(tmp_path: Path) -> None:
    """Both sizes and the settings are named: they are not in the file, which would be misread."""
    write_index(tmp_path, GOLDEN)
    message = rf"{path_of(tmp_path)} has 140 bytes where maxHashSlotNum=6 and maxIndexNum=4 make 144; .*--broker-conf"
    with pytest.raises(SinkError, match=message):
        IndexLookup(tmp_path, 6, 4).query_offset("T", "a", 64, 0, LONG_MAX)


def test_hostile_bytes_end_in_an_answer(tmp_path: Path) -> None:
    """Random files of the right size: no traceback and no endless loop, whatever bytes they have."""
    rng = random.Random(5)
    for _ in range(300):
        numbers = [rng.choice([0, 1, 2, 3, 4, 5, -1, 2**31 - 1, rng.getrandbits(31)]) for _ in range(len(GOLDEN) // 4)]
        content = bytearray(struct.pack(f">{len(numbers)}i", *numbers))
        content[36:40] = struct.pack(">i", rng.choice([2, 3, 4]))
        for number in range(1, ENTRIES):
            struct.pack_into(">i", content, ENTRIES_AT + 20 * number, 0x13FF2)
        write_index(tmp_path, bytes(content))
        assert len(offsets(tmp_path)) < ENTRIES


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    """A broker skips names that are not numbers."""
    write_index(tmp_path, GOLDEN)
    (tmp_path / "index" / "20231114221320000.bak").write_bytes(b"x")
    assert offsets(tmp_path) == [300, 100]


def test_no_index(tmp_path: Path) -> None:
    """The directory is named, and how to get one."""
    with pytest.raises(SinkError, match=rf"no index at {tmp_path}/index; .*--output.*reput tail"):
        offsets(tmp_path)


def test_an_index_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is named; its disk may answer again."""
    write_index(tmp_path, GOLDEN)

    def broken(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(TransientError, match=f"cannot read {path_of(tmp_path)}: Input/output error"):
        offsets(tmp_path)


def test_a_directory_in_a_files_place_is_left_alone(tmp_path: Path) -> None:
    """No broker makes one, and it holds no key."""
    path_of(tmp_path).mkdir(parents=True)
    assert offsets(tmp_path) == []
