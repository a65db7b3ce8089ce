"""The entries and keys, read together, that a sink that is ahead still takes; and entries that few stores need."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.outputs import disordered
from support.record_writer import Message, write_log
from support.sink_runner import LogBatches, record_bounds
from unit.sinks.dispatch.test_multi_dispatch import random_messages
from unit.sinks.queue.test_batch_consume_queue import inner_batches

from reput.sinks.dispatch.entries import QueueEntries, run_of
from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.filter.consumer_filter import ConsumerFilters, FilterData
from reput.sinks.filter.sql92 import compile_expression

SOME_TAGS = compile_expression("TAGS IN ('t3', 't10', 't30')", contains=False)
FILTERS = ConsumerFilters({"A": (FilterData("group", SOME_TAGS, (1, 5)),)}, 16)
ALL = LogicNeeds(
    index_tags=True,
    multi_dispatch=MultiDispatch(enable_lmq=True),
    ext=True,
    filters=FILTERS,
    batch_topics=frozenset({b"B"}),
)


def rows_of(queue: QueueEntries) -> list[tuple[Any, ...]]:
    """Each entry: its record's place, its bytes, its queue offset, its ext unit."""
    offsets = queue.entries[:, :8].copy().view(">i8")[:, 0].tolist()
    units: list[Any] = [None] * len(offsets)
    if queue.ext is not None:
        times, is_put = queue.ext.store_timestamps.tolist(), queue.ext.is_put.tolist()
        units = list(zip(times, queue.ext.bit_maps, is_put, strict=True))
    entries = map(bytes, queue.entries)
    return list(zip(offsets, entries, queue.queue_offsets.tolist(), units, strict=True))


def contents(entries: PieceEntries) -> tuple[Any, ...]:
    """Both kinds of queues by name, with their rows, and the keys, as plain values."""
    plain, batches = (
        {(queue.topic, queue.queue_id): rows_of(queue) for queue in queues}
        for queues in (entries.all_queues(), entries.batch_queues())
    )
    keys = entries.keys()
    rows = list(zip(keys.offsets.tolist(), keys.hashes.tolist(), keys.timestamps.tolist(), strict=True))
    return plain, batches, rows


def mixed(seed: int) -> list[Message]:
    """Messages that go to further queues, inner batches, and messages of no order."""
    rng = Random(seed)
    messages = [*random_messages(seed), *inner_batches(10), *disordered(rng, 20)]
    rng.shuffle(messages)
    return messages


@pytest.mark.parametrize("needs", [LogicNeeds(), ALL], ids=["plain", "all"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_behind_an_offset(seed: int, needs: LogicNeeds, tmp_path: Path) -> None:
    """The entries and keys of the records from there on; also where whole queues have none left."""
    records = write_log(tmp_path, disordered(Random(seed), 60) if needs.is_plain else mixed(seed))
    allowed = record_bounds(records)
    entries = LogBatches(tmp_path, needs=needs)(0, allowed[-1]).entries
    plain, batches, keys = contents(entries)
    assert needs.is_plain or (batches and any(unit and unit[1] for rows in plain.values() for *_, unit in rows))
    for offset in [0, *Random(seed).sample(allowed, 12), allowed[-1]]:
        left = entries.after(offset)
        later = [
            {name: kept for name, rows in queues.items() if (kept := [row for row in rows if row[0] >= offset])}
            for queues in (plain, batches)
        ]
        assert contents(left) == (*later, [key for key in keys if key[0] >= offset])
        assert left.key_count == sum(len(part.hashes) for part in left.keys_by_piece())
        queues = list(left.all_queues())
        assert left.counts.tolist() == [len(queue.entries) for queue in queues]
        assert left.first_queue_offsets.tolist() == [queue.queue_offsets[0] for queue in queues]
        assert list(left.runs()) == [run_of(queue.entries, queue.queue_offsets) for queue in queues]


@pytest.mark.parametrize("seed", range(5))
def test_entries_that_no_queue_takes(seed: int, tmp_path: Path) -> None:
    """Up to a number of entries from an offset on are removed, all of batch queues; the others and every key stay."""
    rng = Random(seed)
    records = write_log(tmp_path, mixed(seed))
    entries = LogBatches(tmp_path, needs=ALL)(0, record_bounds(records)[-1]).entries
    plain, batches, keys = contents(entries)
    offset = records[rng.randrange(30)].physical_offset
    counts = {name: rng.randrange(5) for name in rng.sample(sorted(plain), 3)}
    refused = rng.sample(sorted(batches), 1)
    expected = {}
    for name, rows in plain.items():
        later = [row for row in rows if row[0] >= offset]
        expected[name] = [row for row in rows if row[0] < offset] + later[counts.get(name, 0) :]
    assert contents(entries.without(counts, offset, refused)) == (
        {name: rows for name, rows in expected.items() if rows},
        {name: rows for name, rows in batches.items() if name not in refused},
        keys,
    )


@pytest.mark.parametrize("seed", range(5))
def test_pieces_and_windows_of_any_size(seed: int, tmp_path: Path) -> None:
    """Entries made beside the compiled pass are the same from one window and piece, and from many."""
    records = write_log(tmp_path, mixed(seed), 1 << 20)
    end = record_bounds(records)[-1]
    at_once = contents(LogBatches(tmp_path, 1 << 20, 1 << 20, ALL)(0, end).entries)
    assert at_once == contents(LogBatches(tmp_path, 1 << 20, 300, ALL)(0, end).entries)
    assert at_once == contents(LogBatches(tmp_path, 700, 300, ALL)(0, end).entries)


def test_units_of_the_ext_entries(tmp_path: Path) -> None:
    """Each own entry has its record's store time and bitmap, None without a filter for the topic; others get none."""
    records = write_log(tmp_path, random_messages(3), 1 << 20)
    needs = LogicNeeds(ext=True, filters=FILTERS, multi_dispatch=MultiDispatch(enable_lmq=True))
    queues, _, _ = contents(LogBatches(tmp_path, needs=needs)(0, record_bounds(records)[-1]).entries)
    by_offset = {record.physical_offset: record.message for record in records}
    own = 0
    for (topic, queue_id), rows in queues.items():
        seen = set()
        for physical_offset, _, _, (time, bit_map, is_put) in rows:
            message = by_offset[physical_offset]
            is_own = (topic.decode(), queue_id) == (message.topic, message.queue_id) and physical_offset not in seen
            seen.add(physical_offset)
            own += is_own
            assert (time, is_put) == (message.store_timestamp, is_own)
            assert bit_map == (FILTERS.bit_map(message.topic, dict(message.properties)) if is_own else None)
    assert own == sum(record.message.is_queued for record in records)
