"""The ledger of consumption beside a real broker: intervals hold the moments, and its offsets start a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command_line import invoke
from support.proof_counts import Proof

from broker import consumption_run, remoting
from broker.rocketmq import RocketMQ
from broker.server import Broker
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.consumption import ConsumptionTable
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.tail.consumption import ConsumptionWatch

pytestmark = pytest.mark.broker

TOPIC, GROUP = "orders", "billing"
MESSAGES = 10
SEEN_WITHIN_S = 30


class Watched:
    """A broker, and the ledger of its groups; `moments` are when the broker got each offset, in milliseconds."""

    def __init__(self, broker: Broker, root: Path) -> None:
        self.broker, self.table = broker, root / "messages"
        config = load_config(broker.store, overrides=["broker=broker-a", "tableTriggerMs=0"])
        self._watch = ConsumptionWatch(config, OutputPaths(root / "output", self.table), DurableFiles(root / "output"))
        self.ledger = ConsumptionTable(self.table, "broker-a", 1000)
        self.moments: list[tuple[int, int, int]] = []

    def rows(self) -> list[dict[str, Any]]:
        """The ledger's rows, in the order of their times."""
        statement = (
            "SELECT offset_after, move, unix_millis(seen_before) AS since, unix_millis(seen_after) AS until "
            "FROM messages ORDER BY seen_after"
        )
        result = invoke(["sql", "--table", f"{self.table}-consumption", "--format", "json", statement])
        return [json.loads(line) for line in result.stdout.splitlines()]

    def consume_to(self, offset: int, way: Callable[[int, str, str, int, int], None]) -> None:
        """Move the group, and wait until the ledger has seen it."""
        began = time.time_ns() // 1_000_000
        way(self.broker.port, GROUP, TOPIC, 0, offset)
        self.moments.append((offset, began, -(-time.time_ns() // 1_000_000)))
        until = time.monotonic() + SEEN_WITHIN_S
        while self.ledger.state()[0].get((GROUP, TOPIC)) != {0: offset}:
            assert time.monotonic() < until, f"the offset {offset} was not seen"
            self._watch.look()
            time.sleep(0.1)


@pytest.mark.parametrize("version", [pytest.param("4.9.3", marks=pytest.mark.slow), "5.5.0"])
def test_each_interval_holds_the_moment_and_the_offsets_start_a_broker(
    version: str, release: Callable[[str], RocketMQ], tmp_path: Path
) -> None:
    rocketmq = release(version)
    (tmp_path / "output").mkdir()
    with rocketmq.name_server(tmp_path / "names") as names:
        conf = {"flushConsumerOffsetInterval": 1000}
        with rocketmq.broker(tmp_path / "home", names, conf) as broker:
            for _ in range(MESSAGES):
                remoting.send_message(broker.port, TOPIC, 0, b"body")
            remoting.make_group(broker.port, GROUP)
            watched = Watched(broker, tmp_path)
            for offset in (2, 7, 4, 5):
                watched.consume_to(offset, remoting.update_consumer_offset)
            if version == "5.5.0":  # a reset ahead by the broker itself leaves no trace but its offset
                watched.consume_to(9, remoting.reset_consumer_offset)
            rows = watched.rows()
            assert [(row["offset_after"], row["move"]) for row in rows] == [
                *((2, "first_seen"), (7, "progress"), (4, "reset_back"), (5, "progress")),
                *([(9, "progress")] if version == "5.5.0" else []),
            ]
            for row, (_, began, ended) in zip(rows, watched.moments, strict=True):
                # A group's first offset came at any time before it.
                assert row["since"] is None or row["since"] <= ended
                assert began <= row["until"] <= ended + SEEN_WITHIN_S * 1000
        config = broker.store / "config"
        for name in ("consumerOffset.json", "consumerOffset.json.bak"):
            (config / name).unlink()
        written = tmp_path / "offsets.json"
        words = ["--at", str(time.time_ns() // 1_000_000), "--format", "consumerOffset.json", "--result", str(written)]
        assert invoke(["offsets", "--table", str(watched.table), *words]).exit_code == 0
        written.rename(config / "consumerOffset.json")
        with broker:
            assert remoting.consumer_offset(broker.port, GROUP, TOPIC, 0) == watched.moments[-1][0]
            broker.kill()  # a clean stop of 5.5.0 takes 13 seconds, and its store is looked at no more


@pytest.mark.slow
def test_each_answer_holds_the_moment_that_the_consumer_wrote_down(tmp_path: Path, proof: Proof) -> None:
    """The short form of `make consumption`: 20 groups of two brokers, which are killed, as is the tail."""
    counts = consumption_run.run(tmp_path, 120, 8)
    assert counts["wrong"] == 0, (tmp_path / "wrong.json").read_text()
    kinds = "passed", "reset back over it", "skipped by a reset", "waits", "offset removed"
    assert min(counts[kind] for kind in (*kinds, "consumed (trace)", "acknowledged (pop)")) > 0, counts
    proof("answers about live consumer groups", sum(counts[kind] for kind in kinds))
