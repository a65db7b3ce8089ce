"""Records whose numbers the kernels leave to the reference decoder, in a rebuild's task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.logs import end_of, load_log
from support.outputs import config_of, messages_of
from support.rebuild_runner import rebuild
from support.record_writer import Message, write_log
from support.sink_runner import SMALL, dispatch_store, no_fsync
from support.store_compare import differing_bytes

from reput.sinks.dispatch import piece as range_entries
from reput.sinks.dispatch import piece_kernels
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.files.scratch import read_arrays
from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.storage import table_storage
from reput.source.errors import CorruptRecordError
from reput.source.log.range_reader import DecodeOptions, RangeCut
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.effects import range_task
from reput.streaming.effects.range_task import RangeTask

# Java's Integer.parseInt takes any digits.
ODD_NUMBERS = ["\N{FULLWIDTH DIGIT TWO}", "+\N{ARABIC-INDIC DIGIT THREE}", "1\N{DEVANAGARI DIGIT ZERO}"]
DELAYED = Message("SCHEDULE_TOPIC_XXXX", 2, properties={"DELAY": "3", "KEYS": "a b", "TAGS": "T"})


@pytest.fixture(autouse=True)
def fast_disk() -> Iterator[None]:
    with no_fsync():
        yield


def config_for(store: Path) -> PipelineConfig:
    return config_of(store, SMALL, "rebuildMaxBytesPerPartition=700", "rebuildMaxBytesPerWave=5000")


def odd_messages(rng: Random, count: int) -> list[Message]:
    """Messages a third of which have an odd number in a property that must be one."""
    found = []
    for message in messages_of(rng, count):
        odd = dict(DELAYED.properties, DELAY=rng.choice(ODD_NUMBERS))
        inner = {"INNER_NUM": rng.choice(ODD_NUMBERS), "INNER_BASE": "1"}
        found.append(rng.choice([message, replace(DELAYED, properties=odd), replace(message, properties=inner)]))
    return found


def test_odd_numbers_and_little_room_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference decoder judges them one by one; the arrays grow from nothing under them."""
    stops = []
    add_records = piece_kernels.add_records

    def counted(*arguments: object) -> tuple[int, int]:
        row, cause = add_records(*arguments)
        stops.append(cause)
        return row, cause

    monkeypatch.setattr(piece_kernels, "add_records", counted)
    for name in ("_ENTRIES", "_KEYS", "_QUEUES", "_TOPIC_BYTES"):
        monkeypatch.setattr(range_entries, name, 1)
    write_log(tmp_path / "store" / "commitlog", odd_messages(Random(4), 200), 4000)
    config = config_for(tmp_path / "store")
    dispatch_store(config, tmp_path / "tail")
    assert rebuild(config, tmp_path / "out").messages == 200
    assert differing_bytes(tmp_path / "tail", tmp_path / "out") == {}
    assert stops.count(piece_kernels.ODD_NUMBER) > 50
    assert stops.count(piece_kernels.NO_ROOM) > 50


def test_records_that_are_decoded_for_the_table_make_the_same_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their properties and tags codes are taken as they were found; windows of a few records, arrays that grow."""
    for name in ("_ENTRIES", "_KEYS", "_QUEUES", "_TOPIC_BYTES"):
        monkeypatch.setattr(range_entries, name, 1)
    monkeypatch.setattr(range_task, "TABLE_WINDOW_BYTES", 2000)
    queue, records = load_log(tmp_path / "commitlog", odd_messages(Random(8), 300), 1 << 20)
    cut = RangeCut(queue.files[0], 0, end_of(records), end_of(records), is_start_proven=True, is_end_proven=True)
    writer = TableFileWriter(table_storage(tmp_path), "broker-a", 0, DecodeOptions())
    results = [
        RangeTask(DecodeOptions(), LogicNeeds(index_tags=True), scratch=tmp_path, file_writer=file_writer)(cut)
        for file_writer in (None, writer)
    ]
    plain, with_table = ({**result.pieces[0]} for result in results)
    assert [row["messages"] for row in results[1].table_files] == [300]
    arrays, same = (read_arrays(piece.pop("arrays")) for piece in (plain, with_table))
    assert plain == with_table
    assert {name: values.tolist() for name, values in arrays.items()} == {
        name: values.tolist() for name, values in same.items()
    }


@pytest.mark.parametrize("delay", ["x", "-", "2147483648"])
def test_a_number_that_is_none_stops_it_where_tail_stops(tmp_path: Path, delay: str) -> None:
    """The record's place, and the cause."""
    bad = replace(DELAYED, properties={"DELAY": delay})
    records = write_log(tmp_path / "store" / "commitlog", [DELAYED, DELAYED, bad, DELAYED], 4000)
    config = config_for(tmp_path / "store")
    with pytest.raises(CorruptRecordError, match=f"no good record at offset {records[2].physical_offset} ") as ours:
        rebuild(config, tmp_path / "out")
    with pytest.raises(CorruptRecordError) as of_tail:
        dispatch_store(config, tmp_path / "tail")
    assert str(ours.value) == str(of_tail.value)
    for error in (ours.value, of_tail.value):
        assert error.physical_offset == records[2].physical_offset
        assert Path(str(error.file)).parent == tmp_path / "store" / "commitlog"
        assert str(error.advice).startswith("set onDamage=quarantine to leave out")
