"""Timer and half messages: what `reput doctor` predicts of a start is what real message stores and brokers then do.

A log with timer messages gets its wheel from a real store. Copies of it lose parts of what a broker keeps of its timers
or are started with another setting, after some of the messages have become due.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from broker.recovery import start_stores
from broker.release import Release
from broker.rocketmq import RocketMQ
from support.command_line import run_reput
from support.proof_counts import Proof
from support.record_writer import Message, write_store
from support.sink_runner import dispatch_store
from support.store_kinds import copy

from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.releases import FIRST, version_of
from reput.streaming.config.pipeline import load_config
from reput.streaming.doctor.doctor import examine
from reput.streaming.doctor.prediction import PredictedTimers
from reput.streaming.doctor.start_settings import KNOWN_CHANGES

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TIMERS, SOON_S, START_MS = "rmq_sys_wheel_timer", 90, 60_000
SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeTimerLog": "1048576",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}
DELAYS = np.empty(0, np.int64)
RELEASES = ("5.0.0", "5.1.0", "5.1.1", "5.1.3", "5.2.0", "5.3.2", "5.4.0", "5.5.0", "5.5.1")


def timer(key: str, out_ms: int, **more: str) -> Message:
    properties = {"UNIQ_KEY": key, "TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "0", **more}
    return Message(topic=TIMERS, properties=properties, store_timestamp=int(time.time() * 1000))


def checkpoint(store: Path, **changes: int) -> None:
    """Change numbers of the timers' checkpoint."""
    path = store / "config" / "timercheck"
    data = bytearray(path.read_bytes())
    for name, value in changes.items():
        struct.pack_into(">q", data, 8 * ["read_ms", "flushed", "queue", "master"].index(name), value)
    path.write_bytes(data)


def remove(store: Path, *names: str) -> None:
    for name in names:
        path = store / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def torn(store: Path) -> None:
    """The last two units of the wheel's log are zeros."""
    (path,) = (store / "timerlog").iterdir()
    data = path.read_bytes()
    count = next(at for at in range(0, len(data), 52) if not any(data[at : at + 52]))
    with path.open("r+b") as file:
        file.seek(count - 104)
        file.write(bytes(104))


def resurrected(store: Path) -> None:
    """The checkpoint is gone, and what `reput resurrect` makes of the rest is in its place."""
    remove(store, "config/timercheck")
    made = store.parent / "made-again"
    words = ["--store", str(store), "--broker-conf", str(store.parent / "broker.conf"), "--result", str(made)]
    run_reput(["resurrect", *words])
    shutil.copyfile(made / "timercheck", store / "config" / "timercheck")


def now_ms() -> int:
    return int(time.time() * 1000)


#: Changes to a store whose wheel has messages that are due, and settings of its broker.
CHANGES: dict[str, tuple[Callable[[Path], object], Mapping[str, str]]] = {
    "nothing": (lambda store: None, {}),
    "an abort file": (lambda store: (store / "abort").touch(), {}),
    "no checkpoint": (lambda store: remove(store, "config/timercheck"), {}),
    "a checkpoint that is made again": (resurrected, {}),
    "a checkpoint that is made again without a wheel": (
        lambda store: (remove(store, "timerwheel", "timerlog"), resurrected(store)),
        {},
    ),
    "no wheel": (lambda store: remove(store, "timerwheel"), {}),
    "no log of the wheel": (lambda store: remove(store, "timerlog"), {}),
    "no wheel and no log of it": (lambda store: remove(store, "timerwheel", "timerlog"), {}),
    "nothing of timers": (lambda store: remove(store, "timerwheel", "timerlog", "config/timercheck"), {}),
    "a checkpoint of before": (lambda store: checkpoint(store, read_ms=now_ms() - 3_600_000), {}),
    "a checkpoint of now": (lambda store: checkpoint(store, read_ms=now_ms()), {}),
    "a checkpoint of before and no log": (
        lambda store: (remove(store, "timerlog"), checkpoint(store, queue=3, master=3)),
        {},
    ),
    "a place behind the queue's end": (
        lambda store: (remove(store, "timerlog"), checkpoint(store, queue=1000, master=1000)),
        {},
    ),
    "a torn log of the wheel": (torn, {}),
    "another precision": (lambda store: None, {"timerPrecisionMs": "500"}),
    "recalls by topic": (lambda store: None, {"appendTopicForTimerDeleteKey": "true"}),
    "no timers": (lambda store: None, {"timerWheelEnable": "false"}),
    "timers in RocksDB": (lambda store: None, {"timerRocksDBEnable": "true"}),
    "all of them in RocksDB": (
        lambda store: remove(store, "timerwheel", "timerlog", "config/timercheck"),
        {"timerRocksDBEnable": "true"},
    ),
}


def written(home: Path, due_ms: int) -> Path:
    """A store with timer messages: of the past, due at a time, in an hour, and recalled."""
    past = [timer(f"past{number}", now_ms() - 100_000 - number * 1000) for number in range(5)]
    soon = [timer(f"soon{number}", due_ms + number % 2 * 1000) for number in range(6)]
    recalled = [timer("recalled", due_ms), timer("mark", due_ms, TIMER_DEL_UNIQKEY="recalled")]
    home.mkdir(parents=True)
    write_store(home / "store", [*past, *soon, *recalled], int(SETTINGS["mappedFileSizeCommitLog"]))
    (home / "store" / "broker.conf").unlink()
    (home / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    dispatch_store(load_config(home / "store", broker_conf=home / "broker.conf"), home / "made")
    for name in ("consumequeue", "index", "checkpoint"):
        (home / "made" / name).rename(home / "store" / name)
    return home


def predicted(home: Path, version: str, changes: Mapping[str, str]) -> PredictedTimers:
    """Return doctor's prediction for a user who tries the settings."""
    tried = {name: value for name, value in changes.items() if name in KNOWN_CHANGES}
    with (home / "broker.conf").open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in changes.items() if name not in tried)
    config = load_config(home / "store", broker_conf=home / "broker.conf", changes=tried, only_reads=True)
    (diagnosis,) = examine(config, home / "broker.conf", [version_of(version) or FIRST]).diagnoses
    assert diagnosis.prediction.timers is not None
    return diagnosis.prediction.timers


def delivered(home: Path) -> Counter[str]:
    """How often the log has each timer message outside its own topic, by unique key."""
    found: Counter[str] = Counter()
    for file in MappedFileQueue.load((home / "store" / "commitlog",)).files:
        for window in scan_windows(file, file.file_from_offset, file.end, DecodeOptions()):
            for message in window.decode(DELAYS).columns.messages():
                if message.topic != TIMERS and message.uniq_key is not None:
                    found[message.uniq_key] += 1
    return found


def run(release: Release, homes: Mapping[str, Path], conf: Mapping[str, Mapping[str, str]], work: Path) -> list[str]:
    """Start the timers of each store; returns what came otherwise than predicted."""
    foretold = {name: predicted(home, release.version, conf[name]) for name, home in homes.items()}
    before = {name: delivered(home) for name, home in homes.items()}
    runs = {"timers": "yes"}
    stores = [
        (home / "store", {**SETTINGS, **conf[name], **(runs if foretold[name].are_sent else {})})
        for name, home in homes.items()
    ]
    wrong = []
    for (name, home), happened in zip(homes.items(), start_stores(release, stores, work, START_MS), strict=True):
        told, sent = foretold[name], delivered(home) - before[name]
        ended = {*before[name], "recalled"}
        facts = happened.facts["timers"] or {"caught_up": True, "reads_from": None}
        assert facts["caught_up"], (name, facts)
        again = sum(count for key, count in sent.items() if key in ended)
        waiting = {"past0", "past1", "past2", "past3", "past4", *(f"soon{number}" for number in range(6))} - ended
        pairs = {
            "waiting": (told.waiting, len(waiting)),
            "reads from": (told.reads_from, facts["reads_from"]),
            "sent": (told.due, sum(sent.values())),
            "sent again": (told.sent_again, again),
        }
        if "made again" in name:
            # The five of the past were sent with those of the first start.
            pairs |= {"waits and is lost": (0, len(waiting - set(sent)))}
            print(f"{release.version} {name}: {len(waiting)} waited, {again} sent again")
        if told.are_sent and not name.startswith("first"):
            pairs["lost"] = (told.lost, len(waiting - set(sent)))
        wrong += [
            f"{release.version} {name}: {what}: {one}, {other}" for what, (one, other) in pairs.items() if one != other
        ]
    return wrong


@pytest.mark.parametrize("version", RELEASES)
def test_timers(version: str, judge: Callable[[str], Release], proof: Proof, tmp_path: Path) -> None:
    release, due_ms = judge(version), (now_ms() // 1000 + SOON_S) * 1000
    first = written(tmp_path / "first", due_ms)
    wrong = run(release, {"first": first}, {"first": {}}, tmp_path / "java")
    assert now_ms() < due_ms, "the machine is too slow for this test: raise SOON_S"
    changes = dict(CHANGES)
    if (version_of(version) or FIRST) < (5, 4, 0):
        changes = {name: change for name, change in CHANGES.items() if "timerRocksDBEnable" not in change[1]}
    rocksdb = copy(first, tmp_path / "in RocksDB before")
    in_rocksdb = {}
    if len(changes) == len(CHANGES):
        remove(rocksdb / "store", "timerwheel", "timerlog", "config/timercheck")
        in_rocksdb = {"first in RocksDB": {"timerRocksDBEnable": "true"}}
        wrong += run(release, {"first in RocksDB": rocksdb}, in_rocksdb, tmp_path / "rocksdb")
        assert now_ms() < due_ms
    # A broker without a checkpoint sends from RocksDB what was due in the last ten seconds: all starts are later.
    time.sleep(max(0.0, due_ms / 1000 + 15 - time.time()))
    homes, conf = {}, {}
    for name, (harm, settings) in changes.items():
        homes[name], conf[name] = copy(first, tmp_path / name.replace(" ", "-")), settings
        harm(homes[name] / "store")
    if in_rocksdb:
        for name, settings in {"in RocksDB": {"timerRocksDBEnable": "true"}, "in RocksDB no more": {}}.items():
            homes[name], conf[name] = copy(rocksdb, tmp_path / name.replace(" ", "-")), settings
    wrong += run(release, homes, conf, tmp_path / "java-again")
    proof("G13 starts with timers foretold", len(homes) + 1 + len(in_rocksdb))
    print(f"{version}: {len(homes) + 1} starts, wrong {len(wrong)}", *wrong, sep="\n    ")
    assert wrong == []


def halves(home: Path) -> Counter[str]:
    """How many half messages the log has of each transaction, by unique key."""
    found: Counter[str] = Counter()
    for file in MappedFileQueue.load((home / "store" / "commitlog",)).files:
        for window in scan_windows(file, file.file_from_offset, file.end, DecodeOptions()):
            for message in window.decode(DELAYS).columns.messages():
                if message.topic == "RMQ_SYS_TRANS_HALF_TOPIC" and message.uniq_key is not None:
                    found[message.uniq_key] += 1
    return found


def test_half_messages(release: Callable[[str], RocketMQ], proof: Proof, tmp_path: Path) -> None:
    """Real brokers check what doctor says: 5.5.0 the open transactions, 4.9.3 also those that 5.5.0 has ended.

    A broker writes a half message again before it asks its producer.
    """
    small = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000}
    first, checks = release("5.5.0"), {"transactionCheckInterval": 1000, "transactionTimeOut": 1000}
    with first.name_server(tmp_path / "namesrv") as name_server:
        with first.broker(tmp_path / "first", name_server, {**small, "transactionCheckInterval": 600_000}) as broker:
            counts = {"commit": 5, "rollback": 3, "unknown": 2}
            first.workload("transactions", name_server, topics="Tx:2", **counts)
            time.sleep(5)  # what ends transactions is written every three seconds
            broker.kill()  # a stop would check them once more
        for version, checked in {"5.5.0": 2, "4.9.3": 10}.items():
            home = copy(tmp_path / "first", tmp_path / version)
            conf = home / "tried.conf"
            conf.write_text("".join(f"{name}={value}\n" for name, value in small.items()))
            config = load_config(home / "store", broker_conf=conf, only_reads=True)
            (diagnosis,) = examine(config, conf, [version_of(version) or FIRST]).diagnoses
            told = diagnosis.prediction.transactions
            assert told is not None
            assert (told.open, told.open + told.checked_again) == (2, checked)
            before = halves(home)
            with release(version).broker(home, name_server, {**small, **checks}) as broker:
                for _ in range(60):
                    time.sleep(1)
                    if len(halves(home) - before) >= checked:
                        break
                time.sleep(3)
                broker.stop()
            assert len(halves(home) - before) == checked
    proof("G13 starts with half messages foretold", 2)


ROCKSDB = {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}
KEPT: dict[str, Mapping[str, str]] = {"files": {}, "RocksDB": ROCKSDB}
#: With what it is started again, and what of the store is lost before.
TRIED: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "files": ({}, ()),
    "RocksDB": (ROCKSDB, ()),
    "RocksDB without its database": (ROCKSDB, ("rocksdbstore",)),
}


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_half_messages_in_rocksdb(end: str, release: Callable[[str], RocketMQ], proof: Proof, tmp_path: Path) -> None:
    """5.5.0 asks the producer of each open transaction where doctor says so, wherever they were kept before.

    Transactions in RocksDB are not asked about by a broker without ``transRocksDBEnable``, nor after a clean stop by
    one that has lost its database: its recovery dispatches nothing again.
    """
    rocketmq, workload = release("5.5.0"), {"topics": "Tx:2", "rollback": 0, "unknown": 0}
    small = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000}
    # The one message that makes the producer known is no longer open when its time is over.
    often = {"transactionCheckInterval": 1000, "transactionTimeOut": 10_000}
    wrong = []
    with rocketmq.name_server(tmp_path / "namesrv") as name_server:
        for kept, kept_by in KEPT.items():
            first = tmp_path / kept
            seldom = {**small, **kept_by, "transactionCheckInterval": 600_000}
            with rocketmq.broker(first, name_server, seldom) as broker:
                rocketmq.workload("transactions", name_server, topics="Tx:2", commit=5, rollback=3, unknown=2)
                time.sleep(5)  # what ends transactions is written every three seconds
                broker.kill() if end == "kill" else broker.stop()
            for tried, (settings, lost) in TRIED.items():
                home = copy(first, tmp_path / f"{kept}-{tried.replace(' ', '-')}")
                remove(home / "store", *(name for name in lost if (home / "store" / name).exists()))
                conf = home / "tried.conf"
                conf.write_text("".join(f"{name}={value}\n" for name, value in {**small, **settings}.items()))
                config = load_config(home / "store", broker_conf=conf, only_reads=True)
                (diagnosis,) = examine(config, conf, [version_of("5.5.0") or FIRST]).diagnoses
                told = diagnosis.prediction.transactions
                assert told is not None
                with rocketmq.broker(home, name_server, {**small, **settings, **often}) as broker:
                    ran = rocketmq.workload("transactions", name_server, commit=1, waitSeconds=25, **workload)
                    broker.kill()
                print(f"{kept}, {end}, then {tried}: {told}, asked about {ran['checked']}")
                if (told.open, told.checked_again, told.open - told.unchecked) != (2, 0, ran["checked"]):
                    wrong.append((kept, tried, told, ran["checked"]))
    assert wrong == []
    proof("G13 starts with half messages foretold", len(KEPT) * len(TRIED))
