"""Queues in RocksDB that `reput rebuild` and `reput queues` make, beside those of a real 5.5.0 message store.

The store replays a log into RocksDB; what reput makes of the same log has the same keys and values. A real store then
starts on what reput made: it dispatches nothing, and serves each message of each queue.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from broker.boot_check import boot_check
from broker.release import Release
from broker.rocketmq import RocketMQ
from broker.served import Plan, broker_conf, plan_of, served_all, start
from rocksdict import AccessType, Options, Rdict
from support.broker_stores import unpack
from support.command_line import invoke
from support.proof_counts import Proof

pytestmark = pytest.mark.broker

FEW = ["v5-rocksdb", "v4-lmq", "v4-expired"]
MANY = [
    *("v5-plain", "v4-plain", "v4-killed", "v4-tx-delay-retry", "v5-longtopic", "v5-propcrc", "v5-batchcq"),
    *("v5-rocksdb-transactions", "v4-sql92", "v5-pop-grpc", "v4-light-queue-blank", "v5-double-write-lite"),
]
# RocksDB writes its own files again at each start; messages that were due are delivered, and get keys.
EXPECTED = re.compile(r"the broker (?:made|changed|removed) (?:consumequeue/[^/]+|index/[0-9]+)$")
# A broker does this only when a client asks for a queue's first entry.
MIN = b"\1min\1"


def lose_queues(home: Path) -> None:
    """Remove all queues, and have the next start read the whole log."""
    for folder in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        shutil.rmtree(home / "store" / folder, ignore_errors=True)
    (home / "store" / "abort").touch()


def contents(directory: Path) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The keys and values of both column families; of the table of offsets without the first entries."""
    options, copied = Options(raw_mode=True), directory.parent / "copied"
    shutil.copytree(directory, copied)
    database = Rdict(str(copied), options, {"default": options, "offset": options}, AccessType.read_only())
    offsets = dict(database.get_column_family("offset").items())
    found = dict(database.items()), {key: value for key, value in offsets.items() if MIN not in key}
    database.close()
    shutil.rmtree(copied)
    return found


def reput(home: Path, *words: str, version: str = "5.5.0") -> str:
    of_store = ["--store", str(home / "store"), "--broker-conf", str(home / "broker.conf")]
    done = invoke([*words, *of_store, "-o", f"brokerVersion={version}", "-o", "messageIndexEnable=false"])
    assert done.exit_code == 0, done.output
    return done.output


def conversions(
    homes: Mapping[str, Path], plans: Mapping[str, Plan], release: RocketMQ, work: Path
) -> dict[str, list[str]]:
    """Move all queues into files and back into RocksDB, and start a store on each; returns what was served wrongly."""
    wrong: dict[str, list[str]] = {}
    for to, store_type in (("files", "default"), ("rocksdb", "defaultRocksDB")):
        for home in homes.values():
            reput(home, "queues", "--to", to)
            path = home / "broker.conf"
            path.write_text(re.sub("storeType=.*", f"storeType={store_type}", path.read_text()))
            reput(home, "verify")
        for name, happened in start(release, homes, plans, work / f"to {to}").items():
            wrong[f"{name} {to}"] = served_all(happened, plans[name])
            assert happened.facts["dispatched"] == 0, name
    return wrong


@pytest.mark.parametrize("names", [FEW, pytest.param([*FEW, *MANY], marks=pytest.mark.slow)])
def test_a_rebuild_makes_what_a_broker_makes(
    names: list[str], release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof
) -> None:
    made = {name: unpack(name, tmp_path / "made") for name in names}
    real = {name: unpack(name, tmp_path / "real") for name in names}
    plans = {name: plan_of(home) for name, home in made.items()}
    for home in real.values():
        broker_conf(home)
        lose_queues(home)
    for home in made.values():
        for folder in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
            shutil.rmtree(home / "store" / folder, ignore_errors=True)
    start(release("5.5.0"), real, plans, tmp_path / "replay")
    entries = 0
    for name, home in made.items():
        reput(home, "rebuild", "--only", "consumequeue", "--output", str(home / "store"))
        (home / "store" / "abort").unlink(missing_ok=True)
        ours, theirs = (contents(each / "store" / "consumequeue") for each in (home, real[name]))
        assert ours == theirs, name
        entries += len(ours[0])
        reput(home, "verify")
    happened = start(release("5.5.0"), made, plans, tmp_path / "start")
    wrong = {name: served_all(happened[name], plans[name]) for name in names}
    assert {name: lines for name, lines in wrong.items() if lines} == {}
    assert {name: happened[name].facts["dispatched"] for name in names} == dict.fromkeys(names, 0)
    made.pop("v5-batchcq", None)  # no files can be made of what RocksDB has of a BatchConsumeQueue
    served = conversions(made, plans, release("5.5.0"), tmp_path)
    assert {name: lines for name, lines in served.items() if lines} == {}
    proof("G13 stores whose queues in RocksDB are those of a broker's replay", len(names))
    proof("G13 entries in RocksDB that are those of a broker's replay", entries)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.2.0", "5.3.2", "5.4.0", "5.5.1"])
def test_other_releases(version: str, judge: Callable[[str], Release], tmp_path: Path, proof: Proof) -> None:
    """The files that a store of each release makes agree with the log, a rebuild makes the same, and all is served."""
    names = ["v4-tx-delay-retry", "v5-plain", "v4-expired", "v4-lmq"]
    made, real = ({name: unpack(name, tmp_path / kind) for name in names} for kind in ("made", "real"))
    plans = {name: plan_of(home) for name, home in made.items()}
    for home in real.values():
        broker_conf(home)
        lose_queues(home)
    happened = start(judge(version), real, plans, tmp_path / "replay")
    for name, home in real.items():
        has_light_queues = name != "v4-lmq" or version != "5.2.0"
        assert not has_light_queues or served_all(happened[name], plans[name]) == []
        for folder in ("consumequeue", "consumequeue_ext"):
            shutil.rmtree(made[name] / "store" / folder, ignore_errors=True)
        reput(home, "verify", version=version)
        reput(made[name], "rebuild", "--only", "consumequeue", "--output", str(made[name] / "store"), version=version)
        ours, theirs = (contents(each / "store" / "consumequeue") for each in (made[name], home))
        assert ours == theirs, name
    proof("G13 stores whose queues in RocksDB are those of a broker's replay", len(names))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v5-rocksdb", "v5-plain"])
def test_a_whole_broker(name: str, release: Callable[[str], RocketMQ], tmp_path: Path, proof: Proof) -> None:
    """It starts on a rebuilt or a converted database; clients consume each message, by tags too, and find the keys."""
    home = unpack(name, tmp_path)
    if name == "v5-rocksdb":
        shutil.rmtree(home / "store" / "consumequeue")
        reput(home, "rebuild", "--only", "consumequeue", "--output", str(home / "store"))
    else:
        reput(home, "queues", "--to", "rocksdb")
        broker_conf(home)
    (home / "store" / "abort").unlink(missing_ok=True)
    report = boot_check(release("5.5.0"), home, home / "store", tmp_path / "work", queries_max=50)
    assert [problem for problem in report.problems if not EXPECTED.search(problem)] == [], str(report)
    assert report.warnings == []
    assert report.audit is not None
    assert report.audit.consumed.found == report.audit.consumed.expected > 400
    proof("G13 whole brokers on queues in RocksDB that reput made", 1)
