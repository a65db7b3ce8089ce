"""A tail continues from Spark's checkpoint of an earlier release."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.earlier_outputs import COMMITS, unpack_earlier_outputs
from support.outputs import config_of
from support.rebuild_runner import rebuild
from support.store_compare import differing_bytes
from support.tail_runs import run_tail

pytestmark = pytest.mark.spark

SIZES = ("mappedFileSizeConsumeQueue=100", "maxHashSlotNum=7", "maxIndexNum=10")


@pytest.mark.parametrize("commit", COMMITS)
def test_it_goes_on(commit: str, spark: SparkSession, tmp_path: Path) -> None:
    """The next batch follows the last one of that release, to the bytes of a rebuild."""
    kept = unpack_earlier_outputs(tmp_path)
    run_tail(spark, kept / "log" / "whole", kept / commit, *SIZES)
    rebuild(config_of(kept / "log" / "whole"), kept / "fresh")
    assert differing_bytes(kept / "fresh", kept / commit) == {}
    commits = kept / commit / "reput" / "spark-checkpoint" / "logic" / "commits"
    assert {path.name for path in commits.iterdir() if path.name.isdecimal()} == {"0", "1"}
