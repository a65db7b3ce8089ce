"""`reput verify` of a log that lacks something: it counts entries that lead there, and those that a replay moved."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support.outputs import SEGMENT_BYTES, SETTINGS, Output, config_of, overwrite
from support.sink_runner import SinkRun, no_fsync, record_bounds
from support.verified import ENTRIES_AT, found_in, notes_of, verify

from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.formats.index_file import ENTRY as INDEX_ENTRY
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_reader import QueueReader
from reput.streaming.verify.store_verification import StoreSection

COUNT = 120


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Output:
    """A store of more than eight segments, whose queues and index have all of it."""
    with no_fsync():
        return Output.make(tmp_path_factory.mktemp("whole"), Random(11), COUNT)


@pytest.fixture
def output(whole: Output, tmp_path: Path) -> Output:
    """A copy of it."""
    shutil.copytree(whole.root, tmp_path / "root")
    return replace(whole, root=tmp_path / "root")


def lose(output: Output, *segments: int) -> list[tuple[int, int]]:
    """Remove segments; returns what the log lacks."""
    for segment in segments:
        (output.log / f"{segment * SEGMENT_BYTES:020d}").unlink()
    return [(segment * SEGMENT_BYTES, (segment + 1) * SEGMENT_BYTES) for segment in segments]


def check(output: Output, *more: str) -> list[StoreSection]:
    return verify(config_of(output.store, SETTINGS, *more or ("failOnDataLoss=false",)), output.out)


def all_units(output: Output) -> dict[Path, np.ndarray]:
    return {
        path: np.frombuffer(path.read_bytes(), ENTRY).copy()
        for path in sorted((output.out / "consumequeue").rglob("0*"))
        if path.is_file()
    }


def leading_to(output: Output, missing: list[tuple[int, int]]) -> tuple[int, int]:
    """How many entries, and how many keys, lead to a stretch that is missing."""
    entries = np.concatenate([units[units["msg_size"] > 0] for units in all_units(output).values()])
    entries = entries[entries["msg_size"] < 2**31 - 1]
    keys = [
        np.frombuffer(path.read_bytes()[ENTRIES_AT + INDEX_ENTRY.itemsize :], INDEX_ENTRY)
        for path in (output.out / "index").iterdir()
    ]
    counts = [
        sum(int(np.count_nonzero((at >= begin) & (at < end))) for begin, end in missing)
        for at in (entries["physical_offset"], np.concatenate(keys)["physical_offset"])
    ]
    return counts[0], counts[1]


@pytest.mark.parametrize("segments", [(1,), (3,), (2, 3), (1, 5), (4, 6)])
def test_whole_queues_over_a_hole(segments: tuple[int, ...], output: Output) -> None:
    """Each entry that leads into a hole is counted once; everything else is compared, and nothing differs."""
    missing = lose(output, *segments)
    sections = check(output)
    assert found_in(sections) == {}
    entries, keys = leading_to(output, missing)
    assert entries
    assert keys
    notes = notes_of(sections)
    assert (notes["entries_not_judged"], notes["keys_not_judged"]) == (entries, keys)
    assert notes["bytes_missing"] == sum(end - begin for begin, end in missing)
    assert "entries_moved" not in notes
    assert len(sections[0].findings.remarks) == len(segments) - (segments == (2, 3))
    begin = missing[0][0]
    assert f"the log lacks [{begin}, " in sections[0].findings.remarks[0]


@pytest.mark.parametrize("field", ["physical_offset", "msg_size", "tags_code"])
@pytest.mark.parametrize("where", ["before", "after"])
def test_an_entry_beside_a_hole(where: str, field: str, output: Output) -> None:
    """A wrong entry on either side is a difference, as it is without a hole; it does not hide others."""
    (begin, end), *_ = lose(output, 3)
    for path, units in all_units(output).items():
        is_wanted = units["physical_offset"] < begin if where == "before" else units["physical_offset"] >= end
        rows = np.flatnonzero(is_wanted & (units["msg_size"] > 0) & (units["msg_size"] < 2**31 - 1))
        if 0 < len(rows) < len(units):
            units[field][rows[-1 if where == "before" else 0]] += 1
            path.write_bytes(units.tobytes())
            break
    assert found_in(check(output)) == {"entry_changed": 1}


def test_entries_into_a_hole_out_of_order(output: Output) -> None:
    """Two entries into a hole in the wrong order are not entries of any log."""
    (begin, end), *_ = lose(output, 3)
    for path, units in all_units(output).items():
        rows = np.flatnonzero((units["physical_offset"] >= begin) & (units["physical_offset"] < end))
        if len(rows) > 1:
            units[rows[:2]] = units[rows[1::-1]]
            path.write_bytes(units.tobytes())
            break
    assert found_in(check(output))


def test_a_key_beside_a_hole(output: Output) -> None:
    _, end = lose(output, 3)[0]
    for path in sorted((output.out / "index").iterdir()):
        keys = np.frombuffer(path.read_bytes()[ENTRIES_AT:], INDEX_ENTRY)
        rows = np.flatnonzero(keys["physical_offset"] >= end)
        if len(rows) and rows[0] > 1:
            overwrite(path, ENTRIES_AT + int(rows[0]) * INDEX_ENTRY.itemsize + 7, b"\x77")
            break
    found = found_in(check(output))
    assert found.pop("index_slot", 0) + found.pop("index_chain", 0) <= 2
    assert set(found) <= {"index_entry", "foreign_key", "key_missing"}
    assert sum(found.values()) <= 2


def test_entries_that_a_replay_has_moved(output: Output) -> None:
    """They are right, since a broker's replay of this log makes the same; the report counts them, with the first."""
    (begin, end), *_ = lose(output, 3)
    shutil.rmtree(output.out)
    allowed = record_bounds(output.records)
    with SinkRun(output.out, output.settings) as run:
        run.write(output.batches()(0, begin))
        for sink in run.sinks:
            sink.pass_over(end)
        run.write(output.batches()(end, allowed[-1]))
    sections = check(output)
    assert found_in(sections) == {}
    moved = 0
    for (topic, queue_id), queue_offsets in by_queue(output, begin, end).items():
        reader = QueueReader(output.out, KIND, SETTINGS.mapped_file_size_consume_queue, topic.encode(), queue_id)
        for place, (physical_offset, queue_offset) in enumerate(queue_offsets):
            assert reader.read(place, 1)["physical_offset"][0] == physical_offset
            moved += place < queue_offset
    assert moved
    assert notes_of(sections)["entries_moved"] == moved
    assert "entries_not_judged" not in notes_of(sections)
    (remark,) = sections[1].findings.remarks
    assert remark.startswith(f"{moved} entries are before the queue offset of the message, in ")
    firsts = [
        f"{topic}-{queue_id}, entry {place}: the message at {physical_offset} has queue offset {queue_offset}"
        for (topic, queue_id), queue_offsets in by_queue(output, begin, end).items()
        for place, (physical_offset, queue_offset) in list(enumerate(queue_offsets))
        if place < queue_offset
    ]
    assert remark.split("the first: ")[1] in firsts


def by_queue(output: Output, begin: int, end: int) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """The physical offset and the queue offset of each queue's records outside `[begin, end)`, in log order."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for record in output.records:
        message = record.message
        if message.is_queued and not begin <= record.physical_offset < end:
            assert message.queue_offset is not None
            rows = found.setdefault((message.topic, message.queue_id), [])
            rows.append((record.physical_offset, message.queue_offset))
    return found


def test_damage_that_is_passed_over(output: Output) -> None:
    """A record that is damaged leaves its entry and its keys without a judge, and no other."""
    record = next(
        record
        for record in output.records[40:]
        if record.message.is_queued and b"KEYS\x01k" in record.message.properties_bytes
    )
    path = output.log / f"{record.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    overwrite(path, record.physical_offset % SEGMENT_BYTES + 4, b"\xff")
    sections = check(output, "onDamage=quarantine")
    assert found_in(sections) == {}
    missing = [(record.physical_offset, record.physical_offset + 1)]
    notes = notes_of(sections)
    assert (notes["entries_not_judged"], notes["keys_not_judged"]) == leading_to(output, missing)
    (remark,) = sections[0].findings.remarks
    assert "damage is passed over" in remark
