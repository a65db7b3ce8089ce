"""What a sink that is ahead still takes of entries and keys that were read together."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from sink_runner import LogBatches, as_read, places, write_log
from unit.outputs import disordered

from reput.sinks.dispatch.piece_entries import PieceEntries


def contents(entries: PieceEntries) -> tuple[Any, ...]:
    """Queues with their entries, offsets and run, and keys, as plain values."""
    queues = {
        name: (entries.queue_entries(number), run, int(first), int(count))
        for number, (name, run, first, count) in enumerate(
            zip(entries.queues, entries.runs(), entries.first_queue_offsets, entries.counts, strict=True)
        )
    }
    plain = {
        name: (queue.entries.tolist(), queue.queue_offsets.tolist(), run, first, count)
        for name, (queue, run, first, count) in queues.items()
    }
    parts = list(entries.keys())
    keys = [np.concatenate([getattr(part, name) for part in parts]).tolist() for name in vars(parts[0])]
    return plain, keys, entries.key_count


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_behind_an_offset(seed: int, tmp_path: Path) -> None:
    """The same as of a batch from which the records before were taken; also where whole queues have none left."""
    records = write_log(tmp_path, disordered(Random(seed), 60))
    allowed = places(records)
    batch = LogBatches(tmp_path)(0, allowed[-1])
    for offset in [0, *Random(seed).sample(allowed, 12), allowed[-1]]:
        assert contents(as_read(batch).after(offset)) == contents(as_read(batch.after(offset)))
