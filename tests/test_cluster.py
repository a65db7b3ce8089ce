"""reput on a real Spark standalone cluster, log and output on a shared directory: the broker's bytes, whatever dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import pyspark
import pytest
from conftest import BrokerStore
from faults.tail_process import LogWriter, Oracle, TailProcess
from pyarrow import parquet
from support.spark_cluster import OWN_MOUNTS, SparkCluster
from support.store_compare import differing_bytes, store_files

from reput.streaming.cli import application
from reput.streaming.spark.class_archive import SparkClasses
from reput.streaming.spark.session import check_java

# A master, two workers, two executors and a driver are five JVMs: more than half a minute.
pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIMEOUT_S = 600
MESSAGES = 23_969
REPUT = (str(Path(sys.executable).with_name("reput")),)


# Twenty ranges: work for everybody.
TAIL = ("tail", "--available-now", "--option=maxBytesPerPartition=500k")
REBUILD = ("rebuild", "--option=rebuildMaxBytesPerPartition=500k", "--option=rebuildMaxBytesPerWave=4m")


def words_of(command: Sequence[str], store: BrokerStore, root: Path) -> list[str]:
    """A command that keeps the output and the table below `root`."""
    return [
        *(*command, "--store", str(store.root), "--broker-conf", str(store.broker_conf)),
        *("--output", str(root / "output"), "--table", str(root / "messages")),
        "--option=tableMaxBytesPerPartition=500k",
    ]


def run(cluster: SparkCluster, words: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        words,
        env={**os.environ, **cluster.environment, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def on_master(cluster: SparkCluster) -> str:
    return f"--option=sparkMaster={cluster.url}"


def check_all(store: BrokerStore, root: Path) -> None:
    """Queues and index equal the broker's, every message has its row, once."""
    assert len(store_files(store.root)) > 50
    assert differing_bytes(store.root, root / "output") == {}
    offsets: list[int] = []
    for path in live_files(root / "messages"):
        offsets += parquet.read_table(path, columns=["physical_offset"])["physical_offset"].to_pylist()
    assert len(offsets) == len(set(offsets)) == MESSAGES


def live_files(table: Path) -> set[Path]:
    """The files of the table's last version."""
    live: set[Path] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            live |= {table / action["add"]["path"]} if "add" in action else set()
            live -= {table / action["remove"]["path"]} if "remove" in action else set()
    return live


@pytest.mark.parametrize("command", [TAIL, REBUILD], ids=["tail", "rebuild"])
def test_two_workers_make_the_brokers_bytes(
    command: tuple[str, ...], broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """And both workers had tasks."""
    store = broker_store("v4-plain")
    with SparkCluster(tmp_path, workers=2) as cluster:
        done = run(cluster, [*REPUT, *words_of(command, store, tmp_path), on_master(cluster)])
    assert done.returncode == 0, done.stderr[-4000:]
    check_all(store, tmp_path)
    executors = [path for path in tmp_path.glob("worker-*/app-*/*/stderr") if "Running task" in path.read_text()]
    assert len(executors) == 2, executors


def submit(cluster: SparkCluster, *settings: str) -> list[str]:
    """The command ``spark-submit`` with reput's application, to which its words are added."""
    confs = [word for setting in settings for word in ("--conf", setting)]
    return [
        *(str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", cluster.url),
        *("--conf", f"spark.pyspark.python={sys.executable}", *confs, application.__file__),
    ]


def delta_jars() -> str:
    """The jars that ``--packages`` would get, without asking Ivy."""
    jars = SparkClasses.of(check_java()).jars()
    if jars is None:
        pytest.skip("reput prepare has not been run")
    return ",".join(map(str, jars))


def test_spark_submit_runs_the_application(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """In its own JVM, on its master, with its settings; what reads a table by Spark says if Delta is to be given."""
    store, events = broker_store("v4-plain"), tmp_path / "events"
    events.mkdir()
    with SparkCluster(tmp_path, workers=2) as cluster:
        refused = run(cluster, [*submit(cluster), *words_of(REBUILD, store, tmp_path / "refused")])
        assert refused.returncode == 1
        assert "give spark-submit --packages io.delta:delta-spark" in refused.stdout
        assert "Traceback" not in refused.stdout
        log_of_events = ("spark.eventLog.enabled=true", "spark.eventLog.compress=false", f"spark.eventLog.dir={events}")
        ours = ("spark.sql.session.timeZone=Asia/Tokyo", "spark.sql.streaming.pollingDelay=20ms")
        done = run(cluster, [*submit(cluster, *log_of_events, *ours), *words_of(TAIL, store, tmp_path)])
        assert done.returncode == 0, done.stdout[-4000:]
    check_all(store, tmp_path)
    (log,) = [path for path in events.rglob("*") if path.is_file() and path.read_bytes().startswith(b'{"Event"')]
    properties = next(
        found["Spark Properties"]
        for found in map(json.loads, log.read_text().splitlines())
        if found["Event"] == "SparkListenerEnvironmentUpdate"
    )
    wanted = {"spark.master": cluster.url, "spark.app.name": "reput tail", "spark.submit.deployMode": "client"}
    wanted |= {"spark.sql.streaming.pollingDelay": "20ms", "spark.sql.session.timeZone": "UTC"}
    assert {name: properties[name] for name in wanted} == wanted


def test_executors_and_a_worker_are_killed_in_a_micro_batch(
    broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Before its first wave, and between two: Spark gives their tasks to others, and nothing is written twice."""
    store = broker_store("v4-plain")
    log_end = sum(path.stat().st_size for path in (store.root / "commitlog").iterdir())
    words = [*REPUT, *words_of(TAIL, store, tmp_path), "--option=maxBytesPerPartition=100k"]
    words.remove("--option=maxBytesPerPartition=500k")
    scratch = tmp_path / "output" / "reput" / "scratch"
    with SparkCluster(tmp_path, workers=2) as cluster, (tmp_path / "said").open("wb") as said:
        tail = subprocess.Popen(
            [*words, on_master(cluster)], env={**os.environ, **cluster.environment}, stdout=said, stderr=said
        )

        def wait_for(what: Callable[[], object]) -> None:
            deadline = time.monotonic() + TIMEOUT_S
            while not what():
                assert tail.poll() is None, (tmp_path / "said").read_text()[-4000:]
                assert time.monotonic() < deadline
                time.sleep(0.002)

        try:
            wait_for(lambda: any(path.stat().st_size > 1000 for path in listed(scratch)))
            cluster.kill_executor(0)
            wait_for(lambda: end_offset(tmp_path) > 0)
            cluster.kill_executor(1)
            wait_for(lambda: cluster.executors(0) and cluster.executors(1))
            at = end_offset(tmp_path)
            wait_for(lambda: end_offset(tmp_path) > at)
            cluster.kill_worker(1)
            assert end_offset(tmp_path) < log_end  # it is one batch, and this is the middle of it
            assert tail.wait(TIMEOUT_S) == 0, (tmp_path / "said").read_text()[-4000:]
        finally:
            tail.kill()
            tail.wait()
    check_all(store, tmp_path)
    assert (tmp_path / "said").read_text().count("is opened again") == 0
    assert (tmp_path / "output" / "reput" / "spark.log").read_text().count("Lost executor") >= 3
    assert list(scratch.iterdir()) == []


def listed(directory: Path) -> list[Path]:
    return list(directory.glob("*.scratch")) if directory.exists() else []


def end_offset(root: Path) -> int:
    """How far the queues are, durably."""
    try:
        record = json.loads((root / "output" / "reput" / "progress" / "consumequeue.json").read_text())
    except FileNotFoundError:
        return 0
    return int(record["end_offset"])


def test_a_live_log_is_followed_beyond_a_lost_executor_and_a_lost_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Continuously; afterwards all is as a run without a fault leaves it."""
    writer = LogWriter(tmp_path / "store" / "commitlog", 150.0)
    (tmp_path / "cluster").mkdir()
    with SparkCluster(tmp_path / "cluster", workers=2) as cluster:
        for name, value in cluster.environment.items():
            monkeypatch.setenv(name, value)
        tail = TailProcess(tmp_path, on_master(cluster))
        try:
            tail.wait_beyond(0, TIMEOUT_S)
            cluster.kill_executor(0)
            tail.wait_beyond(tail.end_offset(), TIMEOUT_S)
            cluster.kill_worker(1)
            tail.wait_beyond(tail.end_offset(), TIMEOUT_S)
            messages = writer.end()
            tail.process.terminate()
            assert tail.process.wait(TIMEOUT_S) == 0, tail.last_words()
        finally:
            tail.end()
        last = TailProcess(tmp_path, on_master(cluster), "--available-now")
        try:
            assert last.process.wait(TIMEOUT_S) == 0, last.last_words()
        finally:
            last.end()
    Oracle(tmp_path).check_all(messages)


def test_what_is_not_shared_is_said_before_anything_is_read(
    broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """One line each: an output or a log that one worker has not, a Python without reput."""
    if subprocess.run([*OWN_MOUNTS, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount")
    store = broker_store("v4-plain")
    (tmp_path / "output").mkdir()
    (tmp_path / "messages").mkdir()
    for number, apart in enumerate([tmp_path / "output", tmp_path / "messages", store.root / "commitlog"]):
        work = tmp_path / str(number)
        work.mkdir()
        with SparkCluster(work, workers=2, apart=apart) as cluster:
            for command in (TAIL, REBUILD) if number == 0 else (TAIL,):
                words = [*REPUT, *words_of(command, store, tmp_path), on_master(cluster)]
                refused(run(cluster, words), str(apart))
            if number == 0:
                bare = tmp_path / "bare"
                venv.create(bare)
                said = refused(run(cluster, words, PYSPARK_PYTHON=str(bare / "bin" / "python")), "has no module")
                assert "install the same release of reput" in said
    assert not (tmp_path / "output" / "consumequeue").exists()


def refused(done: subprocess.CompletedProcess[str], words: str) -> str:
    """The one line with which a command ended; it has the words."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("reput: ")]
    assert done.returncode == 1, done.stderr[-4000:]
    assert len(lines) == 1, done.stderr[-4000:]
    assert words in lines[0], lines
    assert "Traceback" not in done.stderr
    return lines[0]


def test_the_application_in_a_drivers_pod(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """As Spark's entrypoint of a pod runs it, by the link of ``Containerfile.spark``; Spark stays in this JVM."""
    store, main = broker_store("v4-plain"), tmp_path / "main.py"
    main.symlink_to(application.__file__)
    jars = delta_jars().replace(",", os.pathsep)
    words = [
        *(str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--master", "k8s://https://127.0.0.1:1"),
        *("--deploy-mode", "client", "--conf", f"spark.driver.extraClassPath={jars}"),
        *("--conf", f"spark.pyspark.python={sys.executable}", str(main)),
        *(*words_of(TAIL, store, tmp_path), "--option=sparkMaster=local[2]"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    check_all(store, tmp_path)
