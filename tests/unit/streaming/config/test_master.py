"""The meaning of ``sparkMaster``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reput.source.errors import OptionError
from reput.streaming.config.run_options import check_paths_on, master_url, processes_of


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


@pytest.mark.parametrize(
    "master",
    [
        *("local", " local[1] ", "local[1024]", "local[*]", "local[2,4]", "local[* , 3]", "local-cluster[2, 1, 1024]"),
        *("spark://host:7077", "spark://a:1,b:2", "spark://[::1]:7077", "yarn", "k8s://https://host:443"),
    ],
)
def test_masters_that_spark_takes(master: str) -> None:
    """They are handed on without the blanks around them."""
    assert master_url(master) == master.strip()


@pytest.mark.parametrize(
    "master",
    [
        *(
            "",
            "local[0]",
            "local[-1]",
            "local[1025]",
            "local[99999]",
            "local[*",
            "local[]",
            "local[2,0]",
            "local[2,3,4]",
        ),
        *(
            "local[\u0662]",
            "LOCAL",
            "locale",
            "spark://",
            "spark://host",
            "spark://host:",
            "spark://host:port",
            "host:7077",
        ),
        *(
            "spark://u:p@host:7077",
            "spark://host:7077/x",
            "spark://host:7077,",
            "mesos://host:5050",
            "yarn-client",
            "k8s://",
        ),
        *("local-cluster[0,1,1024]", "sc://host:15002", "http://host"),
    ],
)
def test_masters_that_spark_does_not_take(master: str) -> None:
    """They are refused before Spark is started."""
    with pytest.raises(ValueError, match=r"^"):
        master_url(master)
