"""What ``sparkMaster`` means."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reput.source.errors import OptionError
from reput.streaming.master import check_paths_on, processes_of


@pytest.mark.parametrize(
    ("master", "processes"),
    [
        ("local", 1),
        ("local[1]", 1),
        ("local[3]", 3),
        ("local[2,4]", 2),
        ("local[*]", len(os.sched_getaffinity(0))),
        ("local[*, 3]", len(os.sched_getaffinity(0))),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
    ],
)
def test_what_a_master_means(master: str, processes: int | None) -> None:
    """Spark's names for this machine; all others are a cluster."""
    assert processes_of(master) == processes


def test_a_cluster_wants_absolute_paths() -> None:
    """Its tasks work in directories of their own; forks work where their parent does."""
    here, there = Path("out"), Path("/data/out")
    check_paths_on("local[2]", store=here, table=None)
    check_paths_on("spark://host:7077", store=there, table=None)
    with pytest.raises(OptionError, match=r"^--table out: the tasks of spark://host:7077 work in other directories"):
        check_paths_on("spark://host:7077", store=there, table=here)
