"""reput on a real Spark standalone cluster, log and output on a shared directory: the broker's bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore
from pyarrow import parquet
from support.spark_cluster import SparkCluster
from support.store_compare import differing_bytes, store_files

# A master, two workers, two executors and a driver are five JVMs: more than half a minute.
pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIMEOUT_S = 600
MESSAGES = 23_969


# Twenty ranges: work for everybody.
TAIL = ("tail", "--available-now", "--option=maxBytesPerPartition=500k")
REBUILD = ("rebuild", "--option=rebuildMaxBytesPerPartition=500k", "--option=rebuildMaxBytesPerWave=4m")


@pytest.mark.parametrize("command", [TAIL, REBUILD], ids=["tail", "rebuild"])
def test_two_workers_make_the_brokers_bytes(
    command: tuple[str, ...], broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Queues and index equal the broker's, every message has its row, and both workers had tasks."""
    store = broker_store("v4-plain")
    output, table = tmp_path / "output", tmp_path / "messages"
    words = [
        str(Path(sys.executable).with_name("reput")),
        *(*command, "--store", str(store.root), "--broker-conf", str(store.broker_conf)),
        *("--output", str(output), "--table", str(table), "--option=tableMaxBytesPerPartition=500k"),
    ]
    with SparkCluster(tmp_path, workers=2) as cluster:
        done = subprocess.run(
            [*words, f"--option=sparkMaster={cluster.url}"],
            env={**os.environ, **cluster.environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(store_files(store.root)) > 50
    assert differing_bytes(store.root, output) == {}
    executors = [path for path in tmp_path.glob("worker-*/app-*/*/stderr") if "Running task" in path.read_text()]
    assert len(executors) == 2, executors
    rows = sum(parquet.read_metadata(path).num_rows for path in table.rglob("*.parquet"))
    assert rows == MESSAGES
