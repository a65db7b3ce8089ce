"""`reput verify` on small stores: each planted fault is found and named, sound stores are sound, nothing is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from conftest import BrokerStore
from support.outputs import SETTINGS, Output, config_of, messages_of, overwrite, unit
from support.record_writer import Message, write_log
from support.sink_runner import dispatch_store, no_fsync
from support.verified import ENTRIES_AT, NOTES, STORES, found_in, index_of, notes_of, queue_of, state_of, told, verify

from reput.sinks.findings import FIRST_MAX
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.formats.index_file import ENTRY as INDEX_ENTRY
from reput.sinks.formats.index_file import HEADER_SIZE, IndexHeader, chain_entries
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.streaming.config.pipeline import load_config
from reput.streaming.verify.store_verification import StoreSection


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Output:
    """A store with queues of several files, and a full index file; tests must not change it."""
    with no_fsync():
        return Output.make(tmp_path_factory.mktemp("sound"), Random(7), 80)


@pytest.fixture
def output(sound: Output, tmp_path: Path) -> Output:
    """A copy of it, to be spoilt."""
    shutil.copytree(sound.root / "out", tmp_path / "out")
    return replace(sound, root=tmp_path)


def check(output: Output, sound: Output) -> list[StoreSection]:
    """Verify a copy against the log that it was made from."""
    return verify(config_of(sound.store), output.out)


# --- sound stores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORES)
def test_real_brokers_stores_are_sound(name: str, broker_store: Callable[[str], BrokerStore]) -> None:
    """Every record has its entry and its keys, and the notes are those that are known."""
    store = broker_store(name)
    config = load_config(store.root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0"])
    sections = verify(config, store.root)
    assert told(sections) == []
    assert found_in(sections) == {}
    assert notes_of(sections) == NOTES.get(name, {})
    assert sections[0].compared["messages"] == store.facts["totalMessages"]
    assert sections[1].compared["entries"] >= sum(len(v) for v in store.facts.get("queues", {}).values())


def test_without_its_conf_the_sizes_are_told(broker_store: Callable[[str], BrokerStore]) -> None:
    """Settings are in no file: the wrong ones are found by the files' sizes."""
    store = broker_store("golden-a")
    sections = verify(load_config(store.root, overrides=["tailGuardMs=0"]), store.root)
    assert found_in(sections)["file_size"] == 5


def test_reputs_own_output_is_sound(sound: Output) -> None:
    sections = verify(config_of(sound.store), sound.out)
    assert (found_in(sections), notes_of(sections)) == ({}, {})
    assert sections[0].compared == {"messages": 80}
    assert sections[2].compared["files"] > 2


def test_an_output_that_is_behind(tmp_path: Path) -> None:
    """Records that the sinks' progress does not claim are not missing."""
    with no_fsync():
        behind = Output.make(tmp_path, Random(3), 60, done=0.6)
    sections = verify(behind.config, behind.out)
    assert found_in(sections) == {}
    assert notes_of(sections).keys() == {"not_dispatched_yet"}


@pytest.mark.parametrize("seed", range(12))
def test_records_out_of_order(seed: int, tmp_path: Path) -> None:
    """Gaps, repeats and restarts of queue offsets: placed by the broker's rules, which is not a difference."""
    rng = Random(seed)
    messages = [
        replace(message, queue_offset=rng.choice([None, None, None, 0, 1, rng.randrange(30)]))
        for message in messages_of(rng, 60)
    ]
    store = tmp_path / "store"
    write_log(store / "commitlog", messages, 2000)
    with no_fsync():
        dispatch_store(config_of(store), tmp_path / "out")
    sections = verify(config_of(store), tmp_path / "out")
    assert told(sections) == []
    assert notes_of(sections)["queues_walked"] > 0


# --- planted faults ----------------------------------------------------------------------------------------


FIELDS = {"physical_offset": (0, 8), "msg_size": (8, 4), "tags_code": (12, 8)}
WORDS = {"physical_offset": "physical offset", "msg_size": "size", "tags_code": "tags code"}


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_byte_of_an_entry(field: str, which: str, output: Output, sound: Output) -> None:
    queue = queue_of(output)
    number = {"first": 0, "middle": len(queue.entries) // 2, "last": len(queue.entries) - 1}[which]
    path, at = queue.file(number)
    begin, size = FIELDS[field]
    overwrite(path, at + begin + size - 1, bytes([path.read_bytes()[at + begin + size - 1] ^ 1]))
    sections = check(output, sound)
    assert found_in(sections) == {"entry_changed": 1}
    (difference,) = told(sections)
    assert difference.file == str(path.relative_to(output.out))
    assert (difference.byte_offset, difference.queue_offset) == (at, number)
    assert difference.physical_offset == queue.entries["physical_offset"][number]
    value = int(queue.entries[field][number])
    assert f"{WORDS[field]} {value} expected, {value ^ 1} found" in difference.text


def test_a_missing_entry(output: Output, sound: Output) -> None:
    queue = queue_of(output)
    path, at = queue.file(4)
    overwrite(path, at, bytes(20))
    sections = check(output, sound)
    assert found_in(sections) == {"entry_missing": 1}
    assert told(sections)[0].queue_offset == 4
    assert told(sections)[0].physical_offset == queue.entries["physical_offset"][4]


def test_a_hole(output: Output, sound: Output) -> None:
    """An entry is missing, and the later ones have moved up."""
    queue = queue_of(output)
    moved = np.concatenate([queue.entries[:3], queue.entries[4:], np.zeros(1, ENTRY)]).astype(ENTRY)
    for number, entry in enumerate(moved):
        path, at = queue.file(number)
        overwrite(path, at, entry.tobytes())
    found = found_in(check(output, sound))
    assert found == {"entry_changed": len(queue.entries) - 4, "entry_missing": 1}


def test_an_entry_without_a_record(output: Output, sound: Output) -> None:
    queue = queue_of(output)
    path, at = queue.file(len(queue.entries))
    content = path.read_bytes() if path.exists() else bytes(100)
    path.write_bytes(content[:at] + queue.entries[3].tobytes() + content[at + 20 :])
    sections = check(output, sound)
    assert found_in(sections) == {"entry_without_record": 1}
    assert told(sections)[0].queue_offset == len(queue.entries)


def test_two_entries_swapped(output: Output, sound: Output) -> None:
    queue = queue_of(output)
    for number, other in ((1, 2), (2, 1)):
        path, at = queue.file(number)
        overwrite(path, at, queue.entries[other].tobytes())
    sections = check(output, sound)
    assert found_in(sections) == {"entry_changed": 2}
    first, second = told(sections)
    assert "the entry of queue offset 2" in first.text
    assert "the entry of queue offset 1" in second.text


def test_a_missing_queue_file(output: Output, sound: Output) -> None:
    path, _ = queue_of(output).file(5)
    path.unlink()
    sections = check(output, sound)
    assert found_in(sections) == {"entry_missing": 5, "file_missing": 1}
    assert told(sections)[-1].file == str(path.relative_to(output.out))


def test_a_missing_queue(output: Output, sound: Output) -> None:
    queue = queue_of(output)
    shutil.rmtree(queue.directory)
    found = found_in(check(output, sound))
    assert found == {"entry_missing": len(queue.entries), "file_missing": -(-len(queue.entries) // 5)}


def test_a_queue_of_nothing(output: Output, sound: Output) -> None:
    directory = output.out / "consumequeue" / "Bogus" / "7"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes((unit(0, 200) * 3).ljust(100, b"\0"))
    assert found_in(check(output, sound)) == {"entry_without_record": 3}


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000000007"])
def test_a_stray_file(name: str, output: Output, sound: Output) -> None:
    """The broker refuses to load a queue with such a file."""
    (queue_of(output).directory / name).write_bytes(b"x")
    assert found_in(check(output, sound)).keys() <= {"stray_file", "file_name", "bytes_behind_the_end", "file_missing"}
    assert found_in(check(output, sound)).keys() & {"stray_file", "file_name"}


@pytest.mark.parametrize("size", [0, 50, 99, 120])
def test_a_file_of_another_size(size: int, output: Output, sound: Output) -> None:
    path, _ = queue_of(output).file(5)
    path.write_bytes(path.read_bytes().ljust(200, b"\0")[:size])
    sections = check(output, sound)
    assert found_in(sections)["file_size"] == 1
    assert f"{size} bytes where mappedFileSizeConsumeQueue is 100" in told(sections)[-1].text


@pytest.mark.parametrize("at", [0, 11, 19, 25])
def test_a_wrong_pre_blank(at: int, tmp_path: Path) -> None:
    """A queue that begins in the middle of its first file."""
    store = tmp_path / "store"
    write_log(store / "commitlog", (Message(queue_offset=3 + number) for number in range(4)), 2000)
    with no_fsync():
        dispatch_store(config_of(store), tmp_path / "out")
    assert found_in(verify(config_of(store), tmp_path / "out")) == {}
    path = min((tmp_path / "out" / "consumequeue" / "TopicTest" / "0").iterdir())
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 4]))
    sections = verify(config_of(store), tmp_path / "out")
    assert found_in(sections) == {"pre_blank": 1}
    assert told(sections)[0].queue_offset == at // 20


def test_a_pre_blank_in_the_middle(output: Output, sound: Output) -> None:
    path, at = queue_of(output).file(3)
    overwrite(path, at, unit(0, 0x7FFFFFFF))
    sections = check(output, sound)
    assert found_in(sections) == {"entry_missing": 1}
    assert "its place is filled" in told(sections)[0].text


def test_stale_units_behind_the_end(output: Output, sound: Output) -> None:
    """Of records that were cut off the log: a note. Of a place inside the log: a broker would take it for an entry."""
    queue = queue_of(output)
    number = len(queue.entries)
    path, at = queue.file(number)
    content = path.read_bytes() if path.exists() else bytes(100)
    path.write_bytes(content[:at] + unit(10_000_000) + content[at + 20 :])
    sections = check(output, sound)
    assert found_in(sections) == {}
    assert notes_of(sections) == {"entries_behind_the_end": 1}
    overwrite(path, at, unit(700))
    assert found_in(check(output, sound)) == {"entry_without_record": 1}
    overwrite(path, at, bytes(15) + b"\x01" + bytes(4))
    assert found_in(check(output, sound)) == {"bytes_behind_the_end": 1}


def test_many_differences_are_counted_and_few_are_told(output: Output, sound: Output) -> None:
    for path in (output.out / "consumequeue").rglob("?" * 20):
        path.write_bytes(bytes(100))
    sections = check(output, sound)
    assert found_in(sections) == {"entry_missing": sections[1].compared["entries"]}
    assert len(sections[1].findings.first) == FIRST_MAX


# --- the index ---------------------------------------------------------------------------------------------


def index_entry(path: Path, number: int) -> np.ndarray:
    return np.frombuffer(path.read_bytes(), INDEX_ENTRY, 1, ENTRIES_AT + 20 * number).copy()


@pytest.mark.parametrize("number", [1, 5, 9])
@pytest.mark.parametrize(("at", "kind"), [(3, "index_entry"), (11, "index_entry"), (15, "index_time"), (19, "chain")])
def test_a_byte_of_an_index_entry(at: int, kind: str, number: int, output: Output, sound: Output) -> None:
    path = index_of(output, 1)
    byte = ENTRIES_AT + 20 * number + at
    overwrite(path, byte, bytes([path.read_bytes()[byte] ^ 64]))
    sections = check(output, sound)
    assert kind in found_in(sections)
    assert any(d.kind == kind and d.queue_offset == number and d.file == f"index/{path.name}" for d in told(sections))


@pytest.mark.parametrize(
    ("at", "name"),
    [(7, "beginTimestamp"), (15, "endTimestamp"), (23, "beginPhyOffset"), (31, "endPhyOffset"), (35, "hashSlotCount")],
)
@pytest.mark.parametrize("file", [0, 1])
def test_an_index_header(at: int, name: str, file: int, output: Output, sound: Output) -> None:
    path = index_of(output, file)
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 64]))
    sections = check(output, sound)
    assert found_in(sections) == {"index_header": 1}
    assert name in told(sections)[0].text


@pytest.mark.parametrize("count", [-1, 0, 5, 11])
def test_an_index_header_that_counts_wrong(count: int, output: Output, sound: Output) -> None:
    path = index_of(output, 1)
    overwrite(path, 36, count.to_bytes(4, "big", signed=True))
    assert "index_header" in found_in(check(output, sound))


def test_a_slot_beyond_the_count(output: Output, sound: Output) -> None:
    path = index_of(output, 1)
    overwrite(path, 40 + 4 * 2, (77).to_bytes(4, "big"))
    sections = check(output, sound)
    assert found_in(sections) == {"slot": 1}
    assert "slot 2 points to entry 77, beyond the 9 entries counted" in told(sections)[0].text


def test_a_put_that_was_not_finished(output: Output, sound: Output) -> None:
    """An entry and its slot, but not the header's count: a broker that died, or works on."""
    path = index_of(output, -1)
    data = path.read_bytes()
    count = int.from_bytes(data[36:40], "big")
    assert 1 < count < 10
    hash_, slot = 3 + 7 * 5, 3
    newest = int.from_bytes(data[40 + 4 * slot : 44 + 4 * slot], "big")
    put = np.array([(hash_, 10**6, 1, newest)], INDEX_ENTRY)
    overwrite(path, ENTRIES_AT + 20 * count, put.tobytes())
    overwrite(path, 40 + 4 * slot, count.to_bytes(4, "big"))
    sections = check(output, sound)
    assert (found_in(sections), notes_of(sections)) == ({}, {"entries_not_counted_yet": 1})
    overwrite(path, ENTRIES_AT + 20 * count + 3, b"\x01")
    assert found_in(check(output, sound)) == {"slot": 1, "bytes_behind_the_end": 1}


def test_a_missing_key(output: Output, sound: Output) -> None:
    """The keys after it have moved up, as if it had never been put."""
    path = index_of(output, 0)
    taken = index_entry(path, 3)
    rewrite_index(output, lambda entries: np.delete(entries, 2))
    sections = check(output, sound)
    missing = [d for d in told(sections) if d.kind == "key_missing"]
    assert missing[0].physical_offset == taken["physical_offset"][0]
    assert str(taken["key_hash"][0]) in missing[0].text


def test_a_foreign_key(output: Output, sound: Output) -> None:
    def put(entries: np.ndarray) -> np.ndarray:
        foreign = entries[4:5].copy()
        foreign["key_hash"] += 1
        return np.concatenate([entries[:5], foreign, entries[5:]])

    rewrite_index(output, put)
    sections = check(output, sound)
    assert any(d.kind == "foreign_key" and d.queue_offset == 6 for d in told(sections))


def test_a_record_indexed_twice_is_a_note(output: Output, sound: Output) -> None:
    """As a broker leaves it that began its recovery at a record which the index had."""

    def put(entries: np.ndarray) -> np.ndarray:
        same = entries["physical_offset"] == entries["physical_offset"][4]
        return np.concatenate([entries[: 5 + same[5:].sum()], entries[same], entries[5 + same[5:].sum() :]])

    rewrite_index(output, put)
    sections = check(output, sound)
    assert found_in(sections).keys() <= {"index_header"}  # times of the rewritten headers are not a broker's
    assert notes_of(sections)["key_indexed_twice"] >= 1


def rewrite_index(output: Output, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Put all keys again, changed, with sound chains and counts."""
    paths = sorted((output.out / "index").iterdir())
    rows, times = [], []
    for path in paths:
        header = IndexHeader.decode(path.read_bytes())
        entries = np.frombuffer(path.read_bytes(), INDEX_ENTRY, header.next_entry - 1, ENTRIES_AT + 20)
        rows.append(entries)
        times.append(header)
    by_offset = {record.physical_offset: record.message.store_timestamp for record in output.records}
    entries = change(np.concatenate(rows)).astype(INDEX_ENTRY)  # numpy puts them into the machine's byte order
    for path in paths:
        path.unlink()
    inherited = (0, 0)
    for file in range(-(-len(entries) // 9)):
        own = entries[9 * file : 9 * file + 9].copy()
        slots, previous = np.zeros(SETTINGS.max_hash_slot_num, np.int32), np.empty(len(own), np.int32)
        used = chain_entries(slots, own["key_hash"].astype(np.int32), 1, previous)
        stamps = [by_offset[int(offset)] for offset in own["physical_offset"]]
        own["previous"] = previous
        own["time_diff"] = [max(0, stamp - stamps[0]) // 1000 for stamp in stamps]
        own["time_diff"][0] = max(0, stamps[0] - inherited[0]) // 1000 if inherited[0] else 0
        inherited = (stamps[-1], int(own["physical_offset"][-1]))
        header = IndexHeader(stamps[0], stamps[-1], int(own["physical_offset"][0]), inherited[1], used, len(own) + 1)
        content = header.encode() + slots.astype(">i4").tobytes() + bytes(20) + own.tobytes()
        assert len(header.encode()) == HEADER_SIZE
        path = output.out / "index" / f"{int(paths[0].name) + file:017d}"
        path.write_bytes(content.ljust(ENTRIES_AT + 20 * SETTINGS.max_index_num, b"\0"))


def test_a_missing_index_file(output: Output, sound: Output) -> None:
    index_of(output, 1).unlink()
    assert found_in(check(output, sound))["key_missing"] == 9


def test_an_index_file_of_another_size(output: Output, sound: Output) -> None:
    path = index_of(output, 0)
    path.write_bytes(path.read_bytes()[:-1])
    sections = check(output, sound)
    assert any(d.kind == "file_size" and "maxHashSlotNum=7" in d.text for d in told(sections))


@pytest.mark.parametrize("at", [ENTRIES_AT + 3, ENTRIES_AT + 20 * 10 - 1])
def test_bytes_where_no_index_entry_is(at: int, output: Output, sound: Output) -> None:
    path = index_of(output, -1)
    overwrite(path, at, b"\x01")
    assert found_in(check(output, sound)) == {"bytes_behind_the_end": 1}


# --- the checkpoint ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "name"),
    [(0, "physicMsg"), (8, "logicsMsg"), (16, "indexMsg"), (32, "confirmPhyOffset"), (40, "logicsPhysicalOffset")],
)
def test_a_checkpoint_that_is_ahead(at: int, name: str, output: Output, sound: Output) -> None:
    overwrite(output.out / "checkpoint", at, (2 * 10**12).to_bytes(8, "big"))
    sections = check(output, sound)
    assert found_in(sections) == {"checkpoint_ahead": 1}
    assert name in told(sections)[0].text


def test_a_checkpoint_ahead_of_the_queues_alone(output: Output, sound: Output) -> None:
    """``logicsPhysicalOffset`` is where the last record with an entry begins, and no byte more."""
    path = output.out / "checkpoint"
    known = StoreCheckpoint.decode(path.read_bytes())
    path.write_bytes(known.with_logics_physical_offset(known.logics_physical_offset + 1).encode())
    sections = check(output, sound)
    assert found_in(sections) == {"checkpoint_ahead": 1}
    assert "the last record with a queue entry" in told(sections)[0].text


def test_the_last_full_index_file_may_have_expired(output: Output, sound: Output) -> None:
    """The checkpoint says when it ended, which is before the one that is left begins: no later may it be."""
    *full, last = sorted((output.out / "index").iterdir())
    begin = IndexHeader.decode(last.read_bytes()[:HEADER_SIZE]).begin_timestamp
    known = (output.out / "checkpoint").read_bytes()
    assert 0 < int.from_bytes(known[16:24], "big") <= begin
    for path in full:
        path.unlink()
    assert "checkpoint_ahead" not in found_in(check(output, sound))
    overwrite(output.out / "checkpoint", 16, (begin + 1).to_bytes(8, "big"))
    assert found_in(check(output, sound))["checkpoint_ahead"] == 1


# --- any byte ----------------------------------------------------------------------------------------------


def without_meaning(path: Path, at: int, before: bytes, after: bytes) -> bool:
    """Bytes that may be another: the count of an index file without keys is 0 or 1 (``IndexHeader#load``)."""
    if path.parent.name != "index" or not 36 <= at < 40:
        return False
    return {int.from_bytes(data[36:40], "big") for data in (before, after)} == {0, 1}


def flip(sound: Output, output: Output, path: Path, at: int, mask: int) -> None:
    """Change a byte of a copy, check that verify reports it, and change it back."""
    before = path.read_bytes()
    overwrite(path, at, bytes([before[at] ^ mask]))
    after = path.read_bytes()
    sections = check(output, sound)
    path.write_bytes(before)
    place = f"{path.relative_to(output.out)} byte {at} ^ {mask}"
    if without_meaning(path, at, before, after):
        assert found_in(sections) == {}, place
        return
    notes = notes_of(sections)
    # A recovery leaves units after the end that point beyond the log's end.
    assert found_in(sections) or notes.get("entries_behind_the_end"), f"{place}: {notes}"


def flips(output: Output) -> list[tuple[Path, int]]:
    files = [path for top in ("consumequeue", "index") for path in sorted((output.out / top).rglob("*"))]
    return [(path, at) for path in files if path.is_file() for at in range(path.stat().st_size)]


def test_some_bytes_flipped(output: Output, sound: Output) -> None:
    rng = Random(11)
    for path, at in rng.sample(flips(output), 100):
        flip(sound, output, path, at, rng.randrange(1, 256))


@pytest.mark.slow
def test_every_byte_flipped(output: Output, sound: Output) -> None:
    rng = Random(12)
    for path, at in flips(output):
        flip(sound, output, path, at, 1 << rng.randrange(8))


# --- nothing is written ------------------------------------------------------------------------------------


def test_nothing_is_written(output: Output, sound: Output) -> None:
    """Neither to the log nor to a sound output, nor to one with differences."""
    for spoilt in (False, True):
        if spoilt:
            overwrite(index_of(output), 50, b"\x55")
            overwrite(queue_of(output).file(2)[0], 3, b"\x55")
        before = state_of(output.out), state_of(sound.store)
        check(output, sound)
        assert (state_of(output.out), state_of(sound.store)) == before
