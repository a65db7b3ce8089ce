"""Queues in RocksDB give the same answers as the files that `reput queues` makes of them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.broker_stores import unpack
from support.command_line import invoke
from support.sink_runner import no_fsync

from reput.sinks.files.config_manager import open_rocksdb
from reput.sinks.queue import rocksdb_queue
from reput.sinks.queue.lookup import ConsumeQueueLookup, RocksDBQueueLookup
from reput.sinks.queue.rocksdb_queue import RocksDBQueues
from reput.streaming.ask.store_relations import consume_queues, half_ops
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.query.store_lookup import messages_of


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A broker's store with queues in RocksDB, and the same with files."""
    directory = tmp_path_factory.mktemp("rocksdb")
    home = unpack("v5-rocksdb", directory)
    files = shutil.copytree(home, directory / "files")
    conf = files / "broker.conf"
    conf.write_text(re.sub("storeType=.*", "storeType=default", conf.read_text()))
    with no_fsync():
        done = invoke(["queues", "--store", str(files / "store"), "--broker-conf", str(conf), "--to", "files"])
    assert done.exit_code == 0, done.output
    yield home, files
    shutil.rmtree(directory)


def config_of(home: Path) -> PipelineConfig:
    return load_config(home / "store", broker_conf=home / "broker.conf", only_reads=True, knows_rocksdb=True)


def query(home: Path, *words: str) -> tuple[int, str]:
    done = invoke(["query", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), *words])
    return done.exit_code, done.output


@pytest.mark.parametrize("topic", ["PlainKp", "%LMQ%Kl-0", "SCHEDULE_TOPIC_XXXX", "TxKt"])
def test_messages_by_queue_offset(topic: str, homes: tuple[Path, Path]) -> None:
    for queue_id in (0, 1, 2):
        words = ("--topic", topic, "--queue-id", str(queue_id), "--queue-offset", "0", "--limit", "100", "--json")
        (code, found), expected = (query(home, *words) for home in homes)
        if "no queue" in found:
            assert "no queue" in expected[1]
        else:
            assert (code, found) == expected


def test_offsets_by_time(homes: tuple[Path, Path]) -> None:
    """Every millisecond around each message's store time gives the same entry."""
    home, files = homes
    messages, asked = messages_of(config_of(home)), 0
    for topic, queue_id in (("PlainKp", 0), ("%LMQ%Kl-0", 0), ("MultiKl", 0)):
        here = ConsumeQueueLookup.open(files / "store", topic, queue_id, 0)
        with RocksDBQueueLookup.open(home / "store" / "consumequeue", topic, queue_id, 0) as there:
            assert (there.min_offset, there.max_offset) == (here.min_offset, here.max_offset)
            times = [
                messages.find(here.entry(number).physical_offset).store_timestamp for number in (0, here.max_offset - 1)
            ]
            for time in (0, times[0] - 1, *times, sum(times) // 2, times[1] + 1):
                expected = here.offset_in_queue_by_time(
                    time, lambda entry: messages.find(entry.physical_offset).store_timestamp
                )
                assert there.offset_in_queue_by_time(time, lambda _: 0) == expected
                asked += 1
    assert asked == 18


@pytest.mark.parametrize("begin", [0, 5000, 100_000, 10**9])
def test_entries_of_expired_records_are_passed_over(begin: int, homes: tuple[Path, Path]) -> None:
    home, files = homes
    database = home / "store" / "consumequeue"
    with RocksDBQueues.open(database) as queues:
        names = sorted(queues.last)
    for topic, queue_id in names:
        here = ConsumeQueueLookup.open(files / "store", topic.decode(), queue_id, begin)
        with RocksDBQueueLookup.open(database, topic.decode(), queue_id, begin) as there:
            assert (there.min_offset, there.max_offset) == (here.min_offset, here.max_offset)


def test_a_query_opens_the_database_once(homes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = homes
    opened = []

    def counted(directory: Path, *families: str) -> Any:
        opened.append(directory)
        return open_rocksdb(directory, *families)

    monkeypatch.setattr(rocksdb_queue, "open_rocksdb", counted)
    code, found = query(home, "--topic", "MultiKl", "--queue-id", "0", "--time", "0", "--limit", "100", "--json")
    assert code == 0
    assert found.count('"queue_offset"') > 10
    assert len(opened) == 1


def test_what_ask_reads(homes: tuple[Path, Path]) -> None:
    """The queues, and which half messages were ended."""
    (ops, names), expected = (
        (list(half_ops(config_of(home))), [row[:2] for row in consume_queues(home / "store")]) for home in homes
    )
    assert len(ops) > 30
    assert (sorted(ops), sorted(names)) == (sorted(expected[0]), sorted(expected[1]))


def test_dump(homes: tuple[Path, Path]) -> None:
    home, _ = homes
    words = ["dump", "--file", str(home / "store" / "consumequeue"), "--json", "--topic", "PlainKp", "--queue-id", "0"]
    header, *rows, totals = map(json.loads, invoke(words).stdout.splitlines())
    assert header["header"]["last_queue_offsets"] == {"PlainKp-0": 2}
    assert header["header"]["dispatched_to"] == 145_758
    assert [row["queue_offset"] for row in rows] == [0, 1, 2]
    assert [row["physical_offset"] for row in rows] == [2013, 2601, 10_226]
    assert totals["totals"]["verdicts"]["ENTRY"]["count"] == 3
    done = invoke([*words, "--key", "k"])
    assert (done.exit_code, "a file of kind rocksdb has no records" in done.output) == (2, True)
    later = invoke([*words, "--from", "2601", "--to", "10226"]).stdout.splitlines()
    assert [json.loads(row)["queue_offset"] for row in later[1:-1]] == [1]
