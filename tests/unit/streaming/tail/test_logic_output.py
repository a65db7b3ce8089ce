"""Topics that get a BatchConsumeQueue while a tail runs: its records go where the broker's go, or the run ends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import BrokerStore
from support.sink_runner import no_fsync
from support.store_compare import differing_bytes

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.queue.queue_sink import QueueSink
from reput.source.errors import SinkError, StoreError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.effects.range_task import RangeEffects
from reput.streaming.effects.write_step import WriteStep
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.tail.logic_output import LogicOutput

GetStore = Callable[[str], BrokerStore]
KINDS = ("consumequeue", "batchconsumequeue")


class Running:
    """A tail's queues and index, which take the log step by step."""

    def __init__(self, config: PipelineConfig, out: Path) -> None:
        self.log = LogReader(SourceOptions.parse(config.source_options()))
        files = DurableFiles(out)
        self.output = LogicOutput(config, LogicSinks.open(config, files), files, self.log)
        self.output.check_taken_over()
        self.output.recover_sinks()
        self.step = WriteStep(self.output.logic, files, self.log.decode_options)

    def take(self, end: int) -> bool:
        """Take the log up to `end`; returns whether the sinks are others since."""
        followed = self.output.has_topics_to_follow() and self.output.follow_topics()
        if followed:
            self.step.follow(self.output.logic)
        task = replace(self.step.task, scratch=None)
        self.step.write(RangeEffects.join([task.read(span) for span in self.log.split(self.step.ends["logic"], end)]))
        return followed


@pytest.fixture
def store(broker_store: GetStore, tmp_path: Path) -> BrokerStore:
    found = broker_store("v5-batchcq")
    shutil.copytree(found.root, tmp_path / "store")
    return replace(found, root=tmp_path / "store")


def config_of(store: BrokerStore) -> PipelineConfig:
    return load_config(store.root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0"])


def first_of(log: LogReader, topic: str) -> int:
    """Where the first record of a topic begins."""
    (end,) = (log.settled_end(0),)
    at = 0
    while at < end:
        found = log.message_at(at, log.limit(at, end, 1, None) - at)
        if found is not None and found.topic == topic:
            return at
        at = log.limit(at, end, 1, None)
    raise AssertionError


def hide(store: BrokerStore) -> Callable[[], None]:
    """Take the batch topic out of the store, with its queues; returns what puts the topic back as a broker does."""
    path = store.root / "config" / "topics.json"
    text = path.read_text()
    topics = json.loads(text)
    del topics["topicConfigTable"]["BatchQ"]
    path.write_text(json.dumps(topics))
    path.with_name("topics.json.bak").unlink(missing_ok=True)
    shutil.move(store.root / "batchconsumequeue", store.root.with_name("broker"))

    def put_back() -> None:
        path.rename(path.with_name("topics.json.bak"))
        path.write_text(text)

    return put_back


@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_topic_that_is_made_meanwhile(restarts: bool, store: BrokerStore, tmp_path: Path) -> None:
    """A broker stores the topic before its first message: all bytes are the broker's, also after a restart."""
    put_back = hide(store)
    with no_fsync():
        running = Running(config_of(store), tmp_path / "out")
        at = first_of(running.log, "BatchQ")
        running.take(at)
        assert not running.output.has_topics_to_follow()
        put_back()
        end = running.log.settled_end(0)
        middle = running.log.align_down(0, (at + end) // 2)
        assert running.take(middle)
        queues = [sink for sink in running.output.logic.sinks if isinstance(sink, QueueSink)]
        assert [sink._keeps_later_life for sink in queues] == [True, True]
        if restarts:
            running = Running(config_of(store), tmp_path / "out")
        assert running.take(end) is False
    for kind in KINDS:
        shutil.rmtree(store.root / kind, ignore_errors=True)
        if (tmp_path / "out" / kind).exists():
            shutil.copytree(tmp_path / "out" / kind, store.root / kind)
    original = tmp_path / "original"
    shutil.copytree(store.root, original)
    shutil.rmtree(original / "batchconsumequeue")
    shutil.move(store.root.with_name("broker"), original / "batchconsumequeue")
    assert differing_bytes(store.root, original) == {}


def test_a_batch_topic_that_is_known_too_late(store: BrokerStore, tmp_path: Path) -> None:
    """As on a slave, whose topics come after the messages: the run ends, and no later one begins before a rebuild."""
    put_back = hide(store)
    with no_fsync():
        running = Running(config_of(store), tmp_path / "out")
        running.take(running.log.align_down(0, running.log.settled_end(0) // 2))
        put_back()
        with pytest.raises(SinkError, match="has messages of a topic whose queues belong into batchconsumequeue/"):
            running.take(running.log.settled_end(0))
        with pytest.raises(SinkError, match="'reput rebuild'"):
            Running(config_of(store), tmp_path / "out")


def test_an_empty_directory_of_the_wrong_kind_is_removed(store: BrokerStore, tmp_path: Path) -> None:
    (tmp_path / "out" / "consumequeue" / "BatchQ" / "0").mkdir(parents=True)
    with no_fsync():
        Running(config_of(store), tmp_path / "out")
    assert not (tmp_path / "out" / "consumequeue" / "BatchQ").exists()


def test_topics_that_are_away(store: BrokerStore, tmp_path: Path) -> None:
    """Nothing is written meanwhile, and they are read again."""
    with no_fsync():
        running = Running(config_of(store), tmp_path / "out")
        end = running.log.settled_end(0)
        running.take(running.log.align_down(0, end // 2))
        config, away = store.root / "config", store.root / "away"
        shutil.rmtree(store.root / "batchconsumequeue")
        config.rename(away)
        for _ in range(2):
            with pytest.raises(StoreError, match=r"topics\.json is gone"):
                running.take(end)
        away.rename(config)
        assert running.take(end) is False
