"""G12: parts of an output that are old, new or missing, in any combination: healed to equal bytes, or refused."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from support.delta_rows import offsets
from support.proof_counts import Proof
from support.rebuild_runner import rebuild
from support.record_writer import CommitLogWriter, Message
from support.store_compare import differing_bytes
from support.tail_runs import run_tail

from reput.source.errors import ReputError
from reput.streaming.config.pipeline import load_config
from reput.streaming.tail import micro_batch

pytestmark = pytest.mark.spark

#: The parts of an output and its table that can be older, newer or missing.
PARTS = {
    "checkpoint": "out/reput/spark-checkpoint",
    "consumequeue": "out/consumequeue",
    "index": "out/index",
    "progress": "out/reput/progress",
    "table": "table",
}
STATES = ["old", "present", "new"]
MISSING = "missing"
MESSAGES = 60
OPTIONS = ("mappedFileSizeConsumeQueue=200", "maxHashSlotNum=7", "maxIndexNum=20", "maxBytesPerTrigger=2k")
Combination = tuple[str, ...]


def combinations() -> list[Combination]:
    """One part other than the rest, each way; and others at random."""
    alone = [
        tuple(state if part == odd else "present" for part in PARTS)
        for odd, state in itertools.product(PARTS, ["old", "new", MISSING])
    ]
    every = list(itertools.product([*STATES, MISSING], repeat=len(PARTS)))
    return alone + Random(12).sample([one for one in every if one not in alone], 15)


COMBINATIONS = combinations()
SHORT = COMBINATIONS[1], COMBINATIONS[20]


@dataclass(frozen=True)
class Snapshots:
    """Outputs of the same log at three of its ends; `store` is at a fourth, `fresh` an output of the whole of it."""

    root: Path
    store: Path
    fresh: Path

    def assemble(self, combination: Combination, root: Path) -> None:
        """The parts in these states, as one output."""
        for path, state in zip(PARTS.values(), combination, strict=True):
            if state != MISSING:
                shutil.copytree(self.root / state / path, root / path)


@pytest.fixture(scope="module")
def snapshots(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Snapshots:
    root = tmp_path_factory.mktemp("snapshots")
    store, live = root / "store", root / "live"
    with CommitLogWriter(store / "commitlog", 4096) as writer:
        for number in range(MESSAGES):
            writer.append(Message("ABC"[number % 3], number % 2, properties={"KEYS": f"k{number}", "TAGS": "t"}))
            if (number + 1) % 15 == 0 and number + 1 < MESSAGES:
                run_tail(spark, store, live / "out", *OPTIONS, table=live / "table")
                shutil.copytree(live, root / STATES[number // 15])
    rebuild(load_config(store, overrides=("tailGuardMs=20", *OPTIONS)), root / "fresh")
    return Snapshots(root, store, root / "fresh")


@pytest.mark.parametrize(
    "combination",
    [pytest.param(one, marks=[] if one in SHORT else pytest.mark.slow) for one in COMBINATIONS],
    ids="-".join,
)
def test_old_and_new_parts_together(
    spark: SparkSession, snapshots: Snapshots, combination: Combination, tmp_path: Path, proof: Proof
) -> None:
    """Never other bytes, never a row twice or none; what is refused says what to do."""
    snapshots.assemble(combination, tmp_path)
    try:
        run_tail(spark, snapshots.store, tmp_path / "out", *OPTIONS, table=tmp_path / "table")
    except ReputError as error:
        ways_out = ("remove ", "give an empty", "'reput recover'", "'reput rebuild --only table'")
        assert any(way in str(error) for way in ways_out), error  # noqa: PT017  refused is as good as healed
        proof("G12 outputs put together refused with a way out")
        return
    assert differing_bytes(snapshots.fresh, tmp_path / "out") == {}
    found = offsets(spark, tmp_path / "table")
    assert len(found) == len(set(found)) == MESSAGES
    proof("G12 outputs put together healed")


def test_a_batch_is_read_once(spark: SparkSession, snapshots: Snapshots, tmp_path: Path) -> None:
    """One read a micro-batch, for queues, index and table, by a job or by the driver: two would read the log twice."""
    read_here, here = micro_batch.read_here, []

    def reading_here(*given: Any) -> Any:
        if not jobs.call_count:  # a job reads the first
            return None
        if (found := read_here(*given)) is not None:
            here.append(found)
        return found

    reads = mock.patch.object(micro_batch, "read_here", reading_here)
    with reads, mock.patch.object(micro_batch, "read_ranges", wraps=micro_batch.read_ranges) as jobs:
        reporter = run_tail(spark, snapshots.store, tmp_path / "out", *OPTIONS, table=tmp_path / "table")
    batches = [int(line.split(" batches")[0].rsplit(" ", 1)[1]) for line in reporter.summary()]
    assert len(batches) == 2
    assert batches == [jobs.call_count + len(here)] * 2
    assert (jobs.call_count, len(here) > 0) == (1, True)
