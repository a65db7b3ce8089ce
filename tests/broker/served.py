"""Ask a real message store for messages of queues and of keys, and compare the answers with its log."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from broker.log_contents import LogContents
from broker.recovery import Happened, start_stores
from broker.release import Release

Served = list[list[int]]
KEYS_ASKED = 60
HOUR_MS = 3_600_000
WITHIN_S = 60


@dataclass
class Plan:
    """The questions to a store, and the answers by its log."""

    lines: list[str]
    answers: Served

    @classmethod
    def of(cls, home: Path, conf: Mapping[str, str]) -> Plan:
        contents = LogContents.load(home / "store", conf)
        plan = cls([], [])
        for (topic, queue_id), units in sorted(contents.units.items()):
            plan.lines.append(f"queue\t{topic}\t{queue_id}\n")
            plan.answers.append([units[offset][0] for offset in sorted(units)])
        keys: dict[tuple[str, str], list[int]] = {}
        for record in contents.records:
            for key in {*record.keys, *([record.uniq_key] if record.uniq_key else [])}:
                keys.setdefault((record.topic, key), []).append(record.offset)
        times = [record.store_timestamp for record in contents.records]
        # More messages than a store returns for a key would leave out some.
        few = sorted(key for key, offsets in keys.items() if len(offsets) < 20 and key[1].isascii())
        for topic, key in random.Random(1).sample(few, min(KEYS_ASKED, len(few))):
            plan.lines.append(f"key\t{topic}\t{key}\t{min(times) - HOUR_MS}\t{max(times) + HOUR_MS}\n")
            plan.answers.append(keys[topic, key])
        return plan


def broker_conf(home: Path) -> Mapping[str, str]:
    """The store's broker.conf, which says from now on that queues are in RocksDB alone."""
    path = home / "broker.conf"
    wanted = {"storeType": "defaultRocksDB", "rocksdbCQDoubleWriteEnable": "false", "commitLogRecoverMaxNum": "100000"}
    conf = {**javaproperties.loads(path.read_text()), **wanted}
    path.write_text("".join(f"{name}={value}\n" for name, value in conf.items()))
    return conf


def plan_of(home: Path) -> Plan:
    """The plan of what to ask a store; without an index it has no keys."""
    plan = Plan.of(home, broker_conf(home))
    if (home / "store" / "index").exists():
        return plan
    kept = [number for number, line in enumerate(plan.lines) if line.startswith("queue")]
    return Plan([plan.lines[number] for number in kept], [plan.answers[number] for number in kept])


def start(release: Release, homes: Mapping[str, Path], plans: Mapping[str, Plan], work: Path) -> dict[str, Happened]:
    stores = [(home / "store", javaproperties.loads((home / "broker.conf").read_text())) for home in homes.values()]
    asked = ["".join(plans[name].lines) for name in homes]
    return dict(zip(homes, start_stores(release, stores, work, plans=asked, start_ms=20_000), strict=True))


def served_all(happened: Happened, plan: Plan) -> list[str]:
    """The questions whose answers are not those that the log gives."""
    assert happened.facts["started"], happened.facts["error"]
    answers = zip(plan.lines, plan.answers, happened.facts["served"], strict=True)
    return [f"{line.strip()!r}: {len(is_)} of {len(due)}" for line, due, is_ in answers if due != is_]


def wait_for(what: str, is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
