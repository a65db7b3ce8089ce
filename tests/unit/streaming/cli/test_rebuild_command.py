"""`reput rebuild` as a user runs it on one machine: without Java, also with a table; killed, and continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import deltalake
import pytest
from conftest import BrokerStore
from support.command_line import run_reput
from support.rebuild_runner import LocalTasks
from support.store_compare import differing_bytes

from reput.streaming.tasks import task_session

GetStore = Callable[[str], BrokerStore]
# No Java is found, wherever it is looked for.
NO_JAVA = {**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}


def command_for(store: BrokerStore, output: Path) -> list[str]:
    command = [sys.executable, "-m", "reput.streaming.cli.main", "rebuild", "--store", str(store.root), "--json"]
    command += ["--broker-conf", str(store.broker_conf), "--output", str(output), "--master", "local[2]"]
    return [*command, "-o", "rebuildMaxBytesPerWave=100k", "-o", "rebuildMaxBytesPerPartition=60k"]


@pytest.mark.parametrize("whom", [pytest.param("all", marks=pytest.mark.slow), "parent"])
def test_killed_and_gone_on(broker_store: GetStore, tmp_path: Path, whom: str) -> None:
    """Kill -9 after a wave: the same command continues after that wave, and ends with the broker's bytes."""
    store, out = broker_store("v4-plain"), tmp_path / "out"
    command = command_for(store, out)
    progress = out / "reput" / "rebuild" / "reput" / "progress"
    records = [progress / "consumequeue.json", progress / "index.json"]  # the two are written side by side
    process = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, env=NO_JAVA
    )
    try:
        deadline = time.monotonic() + 240
        while not all(record.exists() and json.loads(record.read_text())["end_offset"] for record in records):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        if whom == "all":
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
    assert {path.name for path in out.iterdir()} == {"lock", "reput"}
    done = subprocess.run(
        [*command, "-o", "sparkDriverMemory=1g"], capture_output=True, text=True, timeout=400, check=False, env=NO_JAVA
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout)["resumed_at"] > 0
    assert differing_bytes(store.root, out) == {}


def test_ctrl_c_ends_all_processes_quietly(broker_store: GetStore, tmp_path: Path) -> None:
    """As a terminal sends it, to the whole group: no traceback of the forks, nothing put in place."""
    store, out = broker_store("v4-plain"), tmp_path / "out"
    process = subprocess.Popen(
        command_for(store, out),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=NO_JAVA,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert "rebuild: " in first
    assert process.returncode != 0
    assert "ForkProcess" not in said
    assert "process.py" not in said
    assert {path.name for path in out.iterdir()} == {"lock", "reput"}


@pytest.mark.parametrize(("option", "processes"), [((), []), (("-o", "rebuildMaxBytesPerPartition=60k"), [2])])
def test_a_small_log_needs_no_further_process(
    option: tuple[str, ...],
    processes: list[int],
    broker_store: GetStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One task reads as much: the command does it itself, whatever the number of cores."""
    made: list[int] = []
    monkeypatch.setattr(task_session, "ProcessTasks", lambda count: (made.append(count), nullcontext(LocalTasks()))[1])
    store, out = broker_store("v4-plain"), tmp_path / "out"
    words = ["rebuild", "--store", str(store.root), "--broker-conf", str(store.broker_conf), "--master", "local[2]"]
    run_reput([*words, "--output", str(out), *option])
    assert made == processes
    assert differing_bytes(store.root, out) == {}


def test_a_table_is_kept_without_java(broker_store: GetStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made, tidied, cut and made again: no command of a table on a local disk starts a JVM."""
    store, out, table = broker_store("v4-plain"), tmp_path / "out", tmp_path / "table"
    made = [*command_for(store, out), "--table", str(table), "-o", "tableMaxBytesPerPartition=800k"]
    done = subprocess.run(made, capture_output=True, text=True, timeout=240, check=False, env=NO_JAVA)
    assert done.returncode == 0, done.stderr[-2000:]
    assert differing_bytes(store.root, out) == {}
    rows = json.loads(done.stdout)["messages"]
    assert len(deltalake.DeltaTable(str(table)).to_pyarrow_table()) == rows > 1000
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    told = {}
    for words in (
        ["optimize"],
        ["forget", "--topic", "TopicA", "--yes"],
        ["expire", "-o", "tableRetention=TopicB=1d"],
        ["vacuum"],
        ["describe"],
    ):
        result = run_reput(["table", *words, "--table", str(table), "--json"])
        told[words[0]] = json.loads(result.stdout)
    assert told["optimize"]["merges"] == 1
    assert 0 < told["describe"]["rows"] < rows
    again = [*made, "--only", "table", "--restore-forgotten"]
    done = subprocess.run(again, capture_output=True, text=True, timeout=240, check=False, env=NO_JAVA)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(deltalake.DeltaTable(str(table)).to_pyarrow_table()) == rows
