"""A plan of `reput ask` on a real broker: `mqadmin` consumes its ranges, the example client sends them again."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import BrokerStore
from support.broker_table import make_table, messages_of
from support.command_line import run_reput
from support.paths import ROOT

from broker.rocketmq import RocketMQ
from broker.server import NameServer
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config
from reput.streaming.query.store_lookup import plain_body

pytestmark = [pytest.mark.broker, pytest.mark.slow]

MESSAGES, GROUP, TIMEOUT_S = 8, "replay-group", 120
DLQ = f"%DLQ%{GROUP}"


def sent_again(rocketmq: RocketMQ, home: Path, *words: str) -> str:
    """Return the output of the example client, without RocketMQ's own lines, run from its source as the page says."""
    home.mkdir(exist_ok=True)
    client = str(ROOT / "conf" / "examples" / "Resend.java")
    command = ["java", "-cp", rocketmq.class_path, f"-Duser.home={home}", client, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=home)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(root: Path, broker_conf: Path) -> BrokerStore:
    """The store as it is now."""
    config = load_config(root, broker_conf=broker_conf, overrides=["tailGuardMs=0"], only_reads=True)
    log = LogReader(SourceOptions.parse(config.source_options()))
    return BrokerStore(root, broker_conf, {"minOffset": 0, "maxOffset": log.end(0)})


def dead_letters(store: BrokerStore, work: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The plan for them, and the lines of the file."""
    make_table(store, work / "table")
    words = ["--table", work / "table", "--store", store.root, "--broker-conf", store.broker_conf, "--format", "json"]
    words += ["--group", GROUP, "--plan", "--bodies", work / "dead.jsonl"]
    result = run_reput(["ask", "dead-letters", *map(str, words)])
    lines = (work / "dead.jsonl").read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, result.stdout.splitlines())), list(map(json.loads, lines))


def consumed(rocketmq: RocketMQ, name_server: NameServer, home: Path, part: dict[str, Any]) -> str:
    """Return the output of `mqadmin consumeMessage` about a range."""
    process = rocketmq.launch(
        home,
        (),
        *("org.apache.rocketmq.tools.command.MQAdminStartup", "consumeMessage", "-n", str(name_server)),
        *("-t", part["topic"], "-b", part["broker"], "-i", str(part["queue_id"])),
        *("-o", str(part["first_offset"]), "-c", str(part["messages"])),
    )
    code = process.wait(TIMEOUT_S)
    process.end()
    assert code == 0, process.stderr.read_text()
    return process.stdout.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
def test_dead_letters_are_sent_again(version: str, release: Callable[[str], RocketMQ], tmp_path: Path) -> None:
    """Each once, to the topic it was sent to, with its body, tags, keys and the producer's properties."""
    rocketmq = release(version)
    with (
        rocketmq.name_server(tmp_path / "namesrv") as name_server,
        rocketmq.broker(
            tmp_path / "broker", name_server, {"messageDelayLevel": "1s 1s 1s 1s", "mappedFileSizeCommitLog": 1 << 20}
        ) as broker,
    ):
        shape = {"keysMax": 2, "propertiesMax": 3, "compressOver": 200, "bodyMax": 1000, "nonAscii": 0.5}
        report = rocketmq.workload("retry", name_server, topics="Again:2", group=GROUP, count=MESSAGES, seed=5, **shape)
        assert report["dead"] == MESSAGES
        broker.stop()
        conf = broker.home / "server.conf"
        before = stored(broker.store, conf)
        plan, lines = dead_letters(before, tmp_path)
        count = len(lines)  # a consumer that stops gives some up twice
        assert [(part["topic"], part["first_offset"], part["last_offset"]) for part in plan] == [(DLQ, 0, count - 1)]
        sent = [message for message in messages_of(before) if message.topic == "Again"]
        originals = {message.uniq_key: message for message in sent}
        assert {line["uniq_key"] for line in lines} == originals.keys()
        assert len(originals) == MESSAGES
        broker.start()
        told = consumed(rocketmq, name_server, tmp_path / "mqadmin", plan[0])
        assert [line["uniq_key"] for line in lines if line["uniq_key"] not in told] == [], told
        file = str(tmp_path / "dead.jsonl")
        told = sent_again(rocketmq, tmp_path / "client", file, str(name_server))
        assert f"{count} messages were sent" in told.splitlines()
        told = sent_again(rocketmq, tmp_path / "client", file, str(name_server), str(count - 1))
        assert "1 messages were sent" in told.splitlines()
        broker.stop()
        after = [message for message in messages_of(stored(broker.store, conf)) if message.topic == "Again"]
        again = after[len(sent) :]
        assert [message.properties["RESENT_FROM"] for message in again] == [
            *(line["msg_id"] for line in lines),
            lines[-1]["msg_id"],
        ]
        for message, line in zip(again, lines, strict=False):
            original = originals[line["uniq_key"]]
            assert plain_body(message) == plain_body(original) == base64.b64decode(line["body_base64"])
            assert (message.tags, message.keys, message.flag) == (original.tags, original.keys, original.flag)
            own = {name: text for name, text in original.properties.items() if name.startswith("property")}
            assert own.items() <= message.properties.items()
            assert message.uniq_key not in originals
