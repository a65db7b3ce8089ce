"""Which versions of a table's log may go, by their number and their age."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from reput.sinks.table.cleaning import READ_FOR_S, cleaning
from reput.sinks.table.storage import table_storage

#: A checkpoint at each tenth version.
CHECKPOINT_EVERY = 10


def table_with(root: Path, versions: int, seconds_apart: float) -> None:
    """Make a table's log of this many empty commits, the last of which was written just now."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    added = pa.array([{"path": None}], pa.struct([("path", pa.string())]))
    now = time.time()
    for version in range(versions + 1):
        (log / f"{version:020d}.json").write_text('{"commitInfo":{}}\n')
        if version % CHECKPOINT_EVERY == 0:
            parquet.write_table(pa.table({"add": added}), log / f"{version:020d}.checkpoint.parquet")
        written = now - (versions - version) * seconds_apart
        for path in log.glob(f"{version:020d}.*"):
            os.utime(path, (written, written))


@pytest.mark.parametrize(
    ("seconds_apart", "kept", "expected"),
    [
        pytest.param(10.0, 200, 200, id="by number"),
        pytest.param(4.0, 20, 400 - (READ_FOR_S // 40 + 1) * CHECKPOINT_EVERY, id="by age"),
        pytest.param(1.0, 20, 0, id="none is old"),
    ],
)
def test_the_log_goes_up_to_a_checkpoint_that_is_old_enough(
    seconds_apart: float, kept: int, expected: int, tmp_path: Path
) -> None:
    """A table that gets commits all the time has versions that went out of date just now, and its log stays short."""
    table_with(tmp_path, 400, seconds_apart)
    found = cleaning(table_storage(tmp_path), 400, kept)
    assert (found.commits, found.data_files, found.orphans) == (expected, (), ())
