"""Timer messages and half messages, as `reput doctor` sees them, of a real 5.5.0 broker's stores."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import rocksdict
from support.broker_stores import unpack
from support.command_line import invoke
from support.record_writer import Message, write_store

from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.releases import Version
from reput.streaming.config.pipeline import load_config
from reput.streaming.doctor.prediction import PredictedTimers, PredictedTransactions
from reput.streaming.doctor.start_settings import start_settings
from reput.streaming.doctor.waiting import WaitingMessages

# When the broker of v5-recalled-timer stopped, and when the message that waits is due.
STOPPED_MS, DUE_MS = 1_795_744_460_000, 1_795_744_495_000
ALL = {"rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"}


def waiting(
    home: Path, version: Version, changes: Mapping[str, str], now_ms: int, dispatches_from: int | None = 0
) -> tuple[PredictedTimers | None, PredictedTransactions | None]:
    """Return the predictions about timers and about transactions."""
    conf = home / "broker.conf"
    config = load_config(home / "store", broker_conf=conf, changes=changes, only_reads=True)
    settings = start_settings(config, conf, version)
    files = MappedFileQueue.load(config.commit_log).files
    found = WaitingMessages.of(files, files[-1].end, ALL)
    transactions = found.transactions(config.store, settings, dispatches_from)
    return found.predicted_timers(config.store, settings, 5, now_ms), transactions


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return unpack("v5-recalled-timer", tmp_path)


@pytest.mark.parametrize(
    ("lost", "changes", "now_ms", "told"),
    [
        ((), {}, STOPPED_MS, PredictedTimers(waiting=1, reads_from=5)),
        ((), {}, DUE_MS + 1, PredictedTimers(waiting=1, reads_from=5, due=1)),
        ((), {}, DUE_MS + 8 * 86_400_000, PredictedTimers(waiting=1, reads_from=5, lost=1)),
        ((), {"timerWheelEnable": "false"}, DUE_MS, PredictedTimers(waiting=1, are_sent=False)),
        (("timerwheel",), {}, DUE_MS + 1, PredictedTimers(waiting=1, reads_from=5, due=1)),
        (("timerlog",), {}, DUE_MS + 1, PredictedTimers(waiting=1, reads_from=5, lost=1)),
        (("config/timercheck",), {}, STOPPED_MS, PredictedTimers(waiting=1, reads_from=0, due=5, sent_again=5)),
        ((), {"timerRocksDBEnable": "true"}, STOPPED_MS, PredictedTimers(waiting=1, reads_from=5)),
    ],
)
def test_timers(lost: tuple[str, ...], changes: dict[str, str], now_ms: int, told: PredictedTimers, home: Path) -> None:
    """Two of four messages were delivered, one was recalled, and one waits."""
    for name in lost:
        path = home / "store" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert waiting(home, (5, 5, 0), changes, now_ms)[0] == told


@pytest.mark.parametrize(
    ("lost", "now_ms", "told"),
    [
        ((), STOPPED_MS, PredictedTimers(waiting=1, reads_from=5)),
        ((), DUE_MS + 1, PredictedTimers(waiting=1, reads_from=5, due=1)),
        (("timerwheel",), DUE_MS + 1, PredictedTimers(waiting=1, reads_from=5, due=1)),
        (("timerwheel", "timerlog"), DUE_MS + 1, PredictedTimers(waiting=1, reads_from=2, due=2, sent_again=1)),
        ((), DUE_MS + 8 * 86_400_000, PredictedTimers(waiting=1, reads_from=2, due=2, sent_again=1)),
    ],
)
def test_a_checkpoint_that_is_made_again(lost: tuple[str, ...], now_ms: int, told: PredictedTimers, home: Path) -> None:
    """The message that waits is sent. Of the others one is sent again, if the one that waits has to be read again."""
    path = home / "store" / "config" / "timercheck"
    size = path.stat().st_size
    for each in (home / "store" / name for name in ("config/timercheck", *lost)):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    config = load_config(home / "store", broker_conf=home / "broker.conf", only_reads=True)
    files = MappedFileQueue.load(config.commit_log).files
    settings = start_settings(config, home / "broker.conf", (5, 5, 0)).waiting
    made = WaitingMessages.of(files, files[-1].end, ALL).made_checkpoint(config.store, settings, now_ms)
    assert made is not None
    assert made.waiting == 1
    path.write_bytes(made.encode())
    assert path.stat().st_size == size
    assert waiting(home, (5, 5, 0), {}, now_ms)[0] == told


def test_no_timers_before_5_0_0(home: Path) -> None:
    assert waiting(home, (4, 9, 3), {}, DUE_MS)[0] == PredictedTimers(waiting=1, are_sent=False)


def test_what_the_report_says(home: Path) -> None:
    """Once the broker is down for a week, the wheel's slots are over, too; without a checkpoint, all is read again."""
    (home / "store" / "config" / "timercheck").unlink()
    words = ["doctor", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--release", "5.5.0"]
    lines = invoke(words).stdout.splitlines()
    assert "  timers    1 message waits" in lines
    assert any(line.endswith(" of them again: they were delivered or recalled") for line in lines)
    found = json.loads(invoke([*words, "--json"]).stdout)["releases"]["5.5.0"]["timers"]
    assert (found["waiting"], found["reads_from"], found["lost"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("version", "conf", "told"),
    [
        ((5, 5, 0), "", PredictedTransactions(open=3, unchecked=1)),
        ((5, 5, 0), "transRocksDBEnable=true", PredictedTransactions(open=3)),
        ((5, 1, 0), "transRocksDBEnable=true", PredictedTransactions(open=3, unchecked=1)),
        ((5, 0, 0), "", PredictedTransactions(open=3, unchecked=1, checked_again=2)),
    ],
)
def test_half_messages(version: Version, conf: str, told: PredictedTransactions, tmp_path: Path) -> None:
    """Of six half messages, one is before the place that is checked, one was ended alone and two together."""
    store = tmp_path / "store"
    half = [Message(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties={"UNIQ_KEY": f"h{number}"}) for number in range(6)]
    ops = [Message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", body=body) for body in (b"0,", b"1", b"2,3,")]
    in_rocksdb = [Message(topic="RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", properties={"UNIQ_KEY": f"r{n}"}) for n in range(2)]
    records = write_store(store, [*half, *ops, *in_rocksdb], 16384)
    ended = Message(
        topic="RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", properties={"TRANS_OFFSET": str(records[9].physical_offset)}
    )
    shutil.rmtree(store / "commitlog")
    write_store(store, [*half, *ops, *in_rocksdb, ended], 16384)
    (store / "broker.conf").unlink()
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:1}}}'
    )
    (tmp_path / "broker.conf").write_text(f"mappedFileSizeCommitLog=16384\n{conf}\n")
    assert waiting(tmp_path, version, {}, 0)[1] == told


@pytest.mark.parametrize(("dispatches", "unchecked"), [(False, 2), (True, 1)])
def test_half_messages_that_rocksdb_lacks(dispatches: bool, unchecked: int, tmp_path: Path) -> None:
    """Of three, RocksDB has the second one. A start that dispatches puts the third one there, and not the first one."""
    store = tmp_path / "store"
    halves = [Message(topic="RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", properties={"UNIQ_KEY": f"r{n}"}) for n in range(3)]
    last = write_store(store, halves, 16384)[1].physical_offset.to_bytes(8, "big")
    (store / "broker.conf").unlink()
    (tmp_path / "broker.conf").write_text("mappedFileSizeCommitLog=16384\ntransRocksDBEnable=true\n")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    database = rocksdict.Rdict(str(store / "rocksdbstore"), options)
    timers, kept = (database.create_column_family(name, options) for name in ("timer", "trans"))
    kept[b"lastOffsetPy"], kept[last + b"@T@r1"] = last, bytes(8)
    timers.close()
    kept.close()
    database.close()
    told = waiting(tmp_path, (5, 5, 0), {}, 0, 0 if dispatches else None)[1]
    assert told == PredictedTransactions(open=3, unchecked=unchecked)
