"""`reput query` on the store of a running broker gives what the broker gives its clients."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from broker.rocketmq import RocketMQ
from reput.streaming.config.pipeline import load_config
from reput.streaming.query.store_lookup import MAX_MSGS_NUM_BATCH, Answer, StoreLookup, plain_body

pytestmark = pytest.mark.broker

MESSAGES = 6000
# Several index files, with chains of many hashes.
CONF: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 10_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 2000,
}


@pytest.mark.slow
def test_a_running_brokers_answers(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """Keys, ASCII and not, once with times; unique keys; each message found again by its place in the queue."""
    acks_file = tmp_path / "acks"
    with (
        rocketmq.name_server(tmp_path / "namesrv") as name_server,
        rocketmq.broker(tmp_path / "broker", name_server, CONF) as broker,
    ):
        rocketmq.workload("send", name_server, topics="Orders:4", count=MESSAGES, acksFile=acks_file, seed=11)
        acks = [json.loads(line) for line in acks_file.read_text(encoding="utf-8").splitlines()]
        rng = random.Random(1)
        keys = sorted({key for ack in acks for key in (ack["keys"] or "").split(" ") if key})
        chosen = [*rng.sample(keys, 150), "no-such-key"]
        uniq_keys = [ack["uniq_key"] for ack in rng.sample(acks, 150)]

        def ask(name: str, words: list[str], **more: object) -> dict[str, list[dict[str, Any]]]:
            path = tmp_path / name
            path.write_text("\n".join(words), encoding="utf-8")
            results = rocketmq.workload("query", name_server, topic="Orders", keysFile=path, **more)["results"]
            assert isinstance(results, dict)
            return results

        all_times, unique = ask("keys", chosen), ask("uniq", uniq_keys, kind="uniq")
        times = sorted(message["store_time"] for messages in all_times.values() for message in messages)
        begin, end = times[len(times) // 4], times[len(times) * 3 // 4]
        timed = ask("timed", chosen, begin=begin, end=end)
        assert sum(map(len, timed.values())) > 50
        lookup = StoreLookup(load_config(broker.store, broker_conf=broker.home / "server.conf", only_reads=True))

        found = 0
        for key in chosen:
            answer = lookup.by_key("Orders", key)
            assert rows(answer) == all_times[key], key
            found += len(answer.found)
        assert found >= 150
        # The broker compares whole seconds, so it may leave out what is right, and take what is a second off.
        complete = [key for key in chosen if len(all_times[key]) < MAX_MSGS_NUM_BATCH]
        assert len(complete) > 100
        for key in complete:
            exact = [message for message in all_times[key] if begin <= message["store_time"] <= end]
            ours = rows(lookup.by_key("Orders", key, begin=begin, end=end))
            assert ours == exact
            assert all(message in ours for message in timed[key] if begin <= message["store_time"] <= end)
        for uniq_key in uniq_keys:
            answer = lookup.by_unique_key("Orders", uniq_key)
            answer.found = [one for one in answer.found if one.chosen]
            assert rows(answer) == unique[uniq_key]
            (message,) = unique[uniq_key]
            assert rows(lookup.by_queue_offset("Orders", message["queue_id"], message["queue_offset"])) == [message]


def rows(answer: Answer) -> list[dict[str, Any]]:
    """The messages as the Java client prints them, oldest first."""
    return sorted(
        (
            {
                "topic": message.topic,
                "queue_id": message.queue_id,
                "queue_offset": message.queue_offset,
                "physical_offset": message.physical_offset,
                "msg_size": message.msg_size,
                "tags": message.tags,
                "keys": message.keys,
                "uniq_key": message.uniq_key,
                "store_time": message.store_timestamp,
                "born_time": message.born_timestamp,
                "sys_flag": message.sys_flag,
                "reconsume_times": message.reconsume_times,
                "prepared_transaction_offset": message.prepared_transaction_offset,
                "body_size": len(plain_body(message) or b""),
            }
            for message in (found.message for found in answer.found)
        ),
        key=lambda row: row["physical_offset"],
    )
