"""A topic that was deleted and made again: its queues hold the later life, wherever the log is cut or a run stops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from support.anomaly_logs import offsets
from support.broker_stores import unpack
from support.record_writer import Message, StoredRecord, write_log
from support.sink_runner import LogBatches, dispatch_store, no_fsync, record_bounds

from reput.sinks.dispatch.entries import BEFORE, LifeBegin, last_life
from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_sink import LIVES
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.doctor.doctor import examine
from reput.streaming.doctor.start_settings import RELEASES
from reput.streaming.recover.recover import OutputRecovery
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification

FILE_SIZE = 60  # three entries


def sink_of(root: Path, *, keeps: bool = True) -> ConsumeQueueSink:
    sink = ConsumeQueueSink(DurableFiles(root), FILE_SIZE, keeps_later_life=keeps)
    sink.recover(0)
    return sink


def numbers(root: Path, records: list[StoredRecord], topic: str = "TopicTest") -> list[int]:
    """The queue offsets of the records to which the queue's entries point, entry by entry."""
    by_offset = {record.physical_offset: record.message.queue_offset for record in records}
    units = np.concatenate(
        [np.frombuffer(path.read_bytes(), ENTRY) for path in sorted((root / "consumequeue" / topic / "0").iterdir())]
    )
    return [by_offset[int(unit["physical_offset"])] or 0 for unit in units if unit["msg_size"]]


@pytest.mark.parametrize(
    ("queue_offsets", "has_entries", "awaited", "found"),
    [
        ([3, 4], True, 0, LifeBegin(None, 0)),
        ([0, 1, 2], False, 0, LifeBegin(None, 0)),
        ([0, 1, 2], True, 0, LifeBegin(0, 0)),
        ([3, 4, 0, 1], True, 0, LifeBegin(2, 0)),
        ([0, 1, 2, 0, 1, 2], False, 0, LifeBegin(3, 0)),
        ([5, 0], True, 0, LifeBegin(None, 1)),
        ([1, 2], True, 1, LifeBegin(BEFORE, 0)),
        ([6, 7], True, 1, LifeBegin(None, 0)),
        ([4, 0, 5, 6], True, 0, LifeBegin(None, 0)),
        ([0, 0, 0, 0, 1], True, 0, LifeBegin(3, 0)),
        ([0, 1, 0], True, 0, LifeBegin(0, 1)),
        ([], True, 1, LifeBegin(None, 1)),
    ],
)
def test_where_a_life_begins(queue_offsets: list[int], has_entries: bool, awaited: int, found: LifeBegin) -> None:
    values = np.array(queue_offsets, np.int64)
    ones = np.ones(len(values), np.int64)
    assert last_life(values, ones, has_entries=has_entries, awaited=awaited) == found


CASES = {
    "remade": ((0, 1, 2, 3, 4, 0, 1, 2), [0, 1, 2]),
    "twice": ((0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4), [0, 1, 2, 3, 4]),
    "longer than before": ((0, 1, 0, 1, 2, 3, 4, 5), [0, 1, 2, 3, 4, 5]),
    "earlier life expired in part": ((7, 8, 0, 1), [0, 1]),
    # The log does not prove these: nothing is taken away.
    "one message of the later life": ((0, 1, 2, 0), [0, 1, 2, 0]),
    "a damaged number": ((0, 1, 2, 0, 4, 5), [0, 1, 2, 0, 4, 5]),
    "zeros alone": ((0, 0, 0), [0, 0, 0]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", [1, 2, 3, 100])
def test_any_batches_make_the_same_queue(name: str, step: int, tmp_path: Path) -> None:
    """Each batch by a process of its own: what a life awaits is in the progress record."""
    given, expected = CASES[name]
    records = write_log(tmp_path / "log", offsets(*given))
    bounds, batches = record_bounds(records), LogBatches(tmp_path / "log")
    cuts = sorted({*bounds[::step], bounds[-1]})
    with no_fsync():
        for start, end in itertools.pairwise(cuts):
            sink = sink_of(tmp_path / "out")
            sink.write(batches(start, end))
            sink.files.close()
    assert numbers(tmp_path / "out", records) == expected


@pytest.mark.parametrize("step", [1, 100])
def test_any_batches_make_the_same_record(step: int, tmp_path: Path) -> None:
    """The record lists the queues by name, whichever of them started over first."""
    messages = [*offsets(0, 1), *offsets(0, 1, queue_id=1), *offsets(0, 1, queue_id=1), *offsets(0, 1)]
    bounds, batches = record_bounds(write_log(tmp_path / "log", messages)), LogBatches(tmp_path / "log")
    sink = sink_of(tmp_path / "out")
    for start, end in itertools.pairwise(sorted({*bounds[::step], bounds[-1]})):
        sink.write(batches(start, end))
    lives = ProgressFile(sink.files, sink.name).load().state[LIVES]  # type: ignore[union-attr]
    assert [life[:2] for life in lives] == [["TopicTest", 0], ["TopicTest", 1]]


def test_without_it_the_lives_are_joined(tmp_path: Path) -> None:
    """That is what a broker's own replay makes; see tests/test_anomalies_broker.py."""
    records = write_log(tmp_path / "log", offsets(0, 1, 2, 3, 4, 0, 1, 2))
    sink = sink_of(tmp_path / "out", keeps=False)
    sink.write(LogBatches(tmp_path / "log")(0, record_bounds(records)[-1]))
    assert numbers(tmp_path / "out", records) == [0, 1, 2, 3, 4, 0]


def stopping_files(stop_at: int) -> Iterator[None]:
    """Make the call `stop_at` of those that change files fail."""
    calls = itertools.count()

    def stopping(name: str) -> mock._patch[object]:
        original = getattr(DurableFiles, name)

        def call(files: DurableFiles, *args: object, **more: object) -> object:
            if next(calls) == stop_at:
                raise KeyboardInterrupt
            return original(files, *args, **more)

        return mock.patch.object(DurableFiles, name, call)

    patches = [stopping(name) for name in ("create", "write", "remove", "replace", "sync")]
    for patch in patches:
        patch.start()
    yield
    for patch in patches:
        patch.stop()


@pytest.mark.parametrize("cut", [5, 6, 7])
def test_a_stop_anywhere_loses_nothing(cut: int, tmp_path: Path) -> None:
    """The earlier life goes before the batch with the later one is recorded; a stop between leaves no other queue."""
    records = write_log(tmp_path / "log", offsets(0, 1, 2, 3, 4, 0, 1, 2))
    bounds, batches = record_bounds(records), LogBatches(tmp_path / "log")
    first, second = batches(0, bounds[cut]), batches(bounds[cut], bounds[-1])
    with no_fsync():
        for stop_at in itertools.count():
            root = tmp_path / str(stop_at)
            sink = sink_of(root)
            sink.write(first)
            stop = stopping_files(stop_at)
            next(stop)
            try:
                sink.write(second)
            except KeyboardInterrupt:
                pass
            else:
                break
            finally:
                next(stop, None)
            sink.files.close()
            again = sink_of(root)
            for batch in (first, second):
                if batch.end > again.end_offset:
                    again.write(batch)
            assert numbers(root, records) == [0, 1, 2], stop_at
    assert stop_at >= (3 if cut == 7 else 5)


def test_a_broker_that_joined_the_lives_is_noticed(tmp_path: Path) -> None:
    """It continues with the number after the joined queue; in the later life alone there is no such place."""
    records = write_log(tmp_path / "log", offsets(0, 1, 2, 3, 4, 0, 1, 2, 6, 7))
    bounds, batches = record_bounds(records), LogBatches(tmp_path / "log")
    for name, cuts in (("one", [0, bounds[-1]]), ("each", bounds)):
        sink = sink_of(tmp_path / name)
        for start, end in itertools.pairwise(cuts):
            sink.write(batches(start, end))
        assert sink.joined_lives() == [(b"TopicTest", 0, 6)]
    sink = sink_of(tmp_path / "later")
    sink.write(batches(0, bounds[8]))
    assert not sink.joined_lives()


def further(name: str, number: int, at: int) -> Message:
    properties = {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": str(number)}
    return Message(topic="Other", queue_offset=at, properties=properties)


def test_a_queue_of_multi_dispatch_starts_over(tmp_path: Path) -> None:
    """Whenever 4.9.3 deletes a topic it removes queues that belong to no topic, and numbers them from 0 again."""
    records = write_log(tmp_path / "log", [further("X", number, at) for at, number in enumerate((0, 1, 2, 0, 1))])
    batches = LogBatches(tmp_path / "log", needs=LogicNeeds(multi_dispatch=MultiDispatch()))
    sink = sink_of(tmp_path / "out")
    sink.write(batches(0, record_bounds(records)[-1]))
    assert numbers(tmp_path / "out", records, "X") == [3, 4]  # by their own queue's numbers


# --- a broker's store ------------------------------------------------------------------------------------


QUEUE_FILE = Path("consumequeue", "T", "0", f"{0:020d}")


def config_of(home: Path, *options: str) -> PipelineConfig:
    return load_config(home / "store", broker_conf=home / "broker.conf", overrides=options)


def verified(home: Path, output: Path, *options: str) -> StoreSection:
    return StoreVerification(config_of(home, *options), output).run(SerialTasks())[1]


def test_the_brokers_files_are_right(tmp_path: Path) -> None:
    home = unpack("v5-topic-remade", tmp_path)
    found = verified(home, home / "store").findings
    assert not found.differences
    assert found.notes["queue_restart"] == 1
    assert found.remarks == [
        "queue T-0 started over at offset 1285: the topic was deleted and made again, and the files hold the later life"
    ]


def test_joined_lives_are_a_difference(tmp_path: Path) -> None:
    """Two of three live messages have no entry; with queueRestart=replay that is what was asked for."""
    home = unpack("v5-topic-remade", tmp_path)
    dispatch_store(config_of(home, "queueRestart=replay"), tmp_path / "joined")
    found = verified(home, tmp_path / "joined").findings
    assert found.counts == {"lives_joined": 1}
    assert "2 messages of the later one have no entry" in found.first[0].text
    assert not verified(home, tmp_path / "joined", "queueRestart=replay").findings.differences
    dispatch_store(config_of(home), tmp_path / "later")
    assert (tmp_path / "later" / QUEUE_FILE).read_bytes() == (home / "store" / QUEUE_FILE).read_bytes()
    assert not verified(home, tmp_path / "later").findings.differences


def test_damage_in_the_later_life_is_found(tmp_path: Path) -> None:
    home = unpack("v5-topic-remade", tmp_path)
    with (home / "store" / QUEUE_FILE).open("r+b") as file:
        file.seek(20)
        file.write(bytes(20))
    found = verified(home, home / "store").findings
    assert found.counts == {"entry_missing": 1}


def test_doctor_takes_no_live_entry_away(tmp_path: Path) -> None:
    """The broker's store is sound. One with both lives joined lacks two live messages, and says so."""
    home = unpack("v5-topic-remade", tmp_path)
    config = config_of(home)
    for diagnosis in examine(config, home / "broker.conf", RELEASES).diagnoses:
        assert diagnosis.prediction.is_harmless
        assert not diagnosis.advice
    dispatch_store(config_of(home, "queueRestart=replay"), tmp_path / "joined")
    (home / "store" / QUEUE_FILE).write_bytes((tmp_path / "joined" / QUEUE_FILE).read_bytes())
    (queue,) = examine(config, home / "broker.conf", RELEASES).diagnoses[1].prediction.short_queues
    assert (queue.entries, queue.records, queue.missing) == (6, 3, 2)


def test_recover_trusts_the_later_life(tmp_path: Path) -> None:
    """Entries of the earlier life went with its topic; a first entry without such a record is not a proof."""
    home = unpack("v5-topic-remade", tmp_path)
    config = config_of(home)
    dispatch_store(config, tmp_path / "out")
    log = LogReader(SourceOptions.parse(config.source_options()))
    assert not OutputRecovery(config, DurableFiles(tmp_path / "out"), log).is_changed
    with (tmp_path / "out" / QUEUE_FILE).open("r+b") as file:
        file.write((1542).to_bytes(8, "big"))  # the record of queue offset 1
    found = OutputRecovery(config, DurableFiles(tmp_path / "out"), log)
    assert [sink.end_after for sink in found.sinks if sink.name == "consumequeue"] == [0]
