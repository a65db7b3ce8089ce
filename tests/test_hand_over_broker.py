"""A real broker starts on the files that reput left in a killed broker's store, and on those of a killed `reput tail`.

After `reput recover` or `reput rebuild` it starts as after a clean stop: it removes no index file, dispatches nothing
again, and serves every message and key. After a killed tail it recovers with care, and also ends right. The short form
starts 4.9.3 once; the rest are slow.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import javaproperties
import pytest
from broker.boot_check import boot_check, boot_conf
from broker.rocketmq import RocketMQ
from support.broker_stores import unpack
from support.rebuild_runner import rebuild
from support.tail_runs import tail_of

from reput.sinks.abort_file import LeftBy, abort_left_by, mark_abort
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.recover.recover import recover_output

pytestmark = pytest.mark.broker

GetRelease = Callable[[str], RocketMQ]
QUERIES_MAX = 300
TAIL_SECONDS = 240.0
# The contents of the file after a kill: 4.9.3 leaves nothing, 5.x its process id.
ABORT = {"4.9.3": b"", "5.5.0": b"4711"}
STORES = {"4.9.3": "v4-killed", "5.5.0": "v5-plain"}
OF_ROCKSDB = re.compile(r"the broker (?:made|changed|removed) consumequeue/[^/]+$")
slow = pytest.mark.slow


def killed_store(version: str, directory: Path) -> tuple[Path, PipelineConfig]:
    """The home of a broker whose store has `abort`, and the configuration that goes with it."""
    home = unpack(STORES[version], directory)
    (home / "store" / "abort").write_bytes(ABORT[version])
    return home, load_config(home / "store", broker_conf=home / "broker.conf", overrides=["tailGuardMs=20"])


def recover(config: PipelineConfig, store: Path) -> None:
    report = recover_output(config, store, store)
    assert report.abort is not None
    assert report.abort.is_cleared, report.abort.reason


def rebuild_all(config: PipelineConfig, store: Path) -> None:
    rebuild(config, store)


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("4.9.3", recover),
        pytest.param("5.5.0", rebuild_all, marks=slow),
        pytest.param("4.9.3", rebuild_all, marks=slow),
        pytest.param("5.5.0", recover, marks=slow),
    ],
)
def test_a_broker_goes_on_as_after_a_clean_stop(
    version: str, command: Callable[[PipelineConfig, Path], None], release: GetRelease, tmp_path: Path
) -> None:
    """No file is changed, made or removed, and dispatch begins where the queues end."""
    home, config = killed_store(version, tmp_path)
    command(config, home / "store")
    report = boot_check(release(version), home, home / "store", tmp_path / "boot", QUERIES_MAX)
    assert report.accepted, str(report)
    assert report.audit is not None
    assert 0 < report.audit.consumed.expected == report.audit.consumed.found
    assert 0 < report.audit.keys.expected == report.audit.keys.found


@slow
@pytest.mark.parametrize("version", STORES)
def test_with_abort_it_would_not(version: str, release: GetRelease, tmp_path: Path) -> None:
    """The same files with the file left there: the newest index file is removed."""
    home, config = killed_store(version, tmp_path)
    recover(config, home / "store")
    report = boot_check(release(version), home, home / "store", tmp_path / "boot", QUERIES_MAX, abort=ABORT[version])
    newest = max((home / "store" / "index").iterdir()).name
    assert f"the broker removed index/{newest}" in report.problems


def tail(home: Path, output: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).with_name("reput")), "tail", "--store", str(home / "store")]
    command += ["--broker-conf", str(home / "broker.conf"), "--output", str(output), *options]
    with (home / "stderr").open("wb") as stderr:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=stderr)


def kill_a_tail(home: Path, output: Path) -> None:
    """With kill -9, once it has written a part of the log."""
    process = tail(home, output, "-o", "maxBytesPerTrigger=200k")
    try:
        deadline = time.monotonic() + TAIL_SECONDS
        record = ProgressFile(DurableFiles(output), "index")
        while (known := record.load()) is None or known.end_offset == 0:
            assert process.poll() is None, (home / "stderr").read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()


def die_in_a_tail(home: Path, output: Path) -> None:
    """Half of the log is in the output, and a tail that took it up was not stopped cleanly; without Spark."""
    config = load_config(home / "store", broker_conf=home / "broker.conf", overrides=["tailGuardMs=20"])
    log = LogReader(SourceOptions.parse(config.source_options()))
    end = log.settled_end(0)
    rebuild(config, output, end=log.limit(0, end, end // 2, None))
    with (
        pytest.raises(KeyboardInterrupt),
        tail_of(config, output),
    ):
        raise KeyboardInterrupt


@slow
@pytest.mark.parametrize("version", STORES)
@pytest.mark.parametrize("half_a_tail", [die_in_a_tail, kill_a_tail])
def test_behind_a_killed_tail_it_is_careful(
    half_a_tail: Callable[[Path, Path], None], version: str, release: GetRelease, tmp_path: Path
) -> None:
    """Queues and index lack the end of the log; after the broker's start every message and key is served."""
    home, config = killed_store(version, tmp_path)
    (home / "store" / "abort").unlink()
    output = tmp_path / "output"
    half_a_tail(home, output)
    assert abort_left_by(output) is LeftBy.REPUT
    record = ProgressFile(DurableFiles(output), "consumequeue").load()
    assert record is not None
    assert 0 < record.end_offset
    boot = boot_check(
        release(version), home, output, tmp_path / "boot", QUERIES_MAX, abort=(output / "abort").read_bytes()
    )
    said = (tmp_path / "boot" / "broker" / "rocketmq.log").read_text(encoding="utf-8", errors="replace")
    assert "last shutdown abnormally" in said
    assert boot.audit is not None
    assert 0 < boot.audit.consumed.expected == boot.audit.consumed.found
    assert boot.audit.keys.expected == boot.audit.keys.found
    # And reput's own next start needs no operator.
    if half_a_tail is die_in_a_tail:
        return
    assert tail(home, output, "--available-now").wait(TAIL_SECONDS) == 0, (home / "stderr").read_text()[-4000:]
    assert abort_left_by(output) is LeftBy.NOBODY
    report = recover_output(config, home / "store", output)
    assert not report.is_changed


@slow
@pytest.mark.parametrize("version", STORES)
def test_a_killed_broker_owns_the_file_again(version: str, release: GetRelease, tmp_path: Path) -> None:
    """Started on reput's mark, and killed: 4.9.3 leaves the text as it was, and it is a broker's all the same."""
    home, config = killed_store(version, tmp_path)
    store = home / "store"
    recover(config, store)
    mark_abort(DurableFiles(store))
    assert abort_left_by(store) is LeftBy.REPUT
    mark = (store / "abort").read_bytes()
    rocketmq = release(version)
    conf = boot_conf(javaproperties.loads((home / "broker.conf").read_text(encoding="ascii")), store)
    with rocketmq.name_server(tmp_path / "namesrv") as name_server:
        broker = rocketmq.broker(tmp_path / "broker", name_server, conf)
        broker.start()
        broker.kill()
    assert ((store / "abort").read_bytes() == mark) == (version == "4.9.3")
    assert abort_left_by(store) is LeftBy.BROKER
    shutil.rmtree(tmp_path / "broker")


@slow  # `test_served_broker.py` shows it of each command; here the broker's log and files are looked at, too
def test_light_queues_that_are_in_rocksdb_alone(release: GetRelease, tmp_path: Path) -> None:
    """A rebuild in place of a 5.5.0 store that lost queue files: each message is served, the light queue's too."""
    home = unpack("v5-double-write-lite", tmp_path)
    store = home / "store"
    shutil.rmtree(store / "consumequeue" / "T" / "2")
    rebuild(load_config(store, broker_conf=home / "broker.conf"), store)
    (tmp_path / "boot").mkdir()
    report = boot_check(release("5.5.0"), home, store, tmp_path / "boot", 20)
    # RocksDB writes its own files again at each start.
    assert [problem for problem in report.problems if not OF_ROCKSDB.search(problem)] == [], str(report)
    assert report.warnings == []
    assert report.audit is not None
    assert report.audit.consumed.expected == report.audit.consumed.found == 600
    assert 0 < report.audit.keys.expected == report.audit.keys.found
