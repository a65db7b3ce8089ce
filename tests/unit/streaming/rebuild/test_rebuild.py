"""`reput rebuild` gives the bytes of `reput tail`, wherever the log is cut; swaps them in whole, resumes, refuses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from conftest import BrokerStore
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker_stores import unpack
from support.logs import end_of, load_log, put_bytes
from support.outputs import config_of, disordered, messages_of
from support.rebuild_runner import LocalTasks, rebuild
from support.record_writer import Message, encode, write_log
from support.sink_runner import SMALL, LogBatches, dispatch_store, files_below, no_fsync, run_sinks
from support.store_compare import differing_bytes
from support.tail_runs import tail_of

from reput.sinks.dispatch import piece as range_entries
from reput.sinks.files import swap
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index import index_sink
from reput.source.errors import CorruptRecordError, OptionError, OutputError, StoreLockedError
from reput.streaming.config.made_for import made_for, recorded_in
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.rebuild.pipeline import RebuildProgress
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.recover.recover import recover_output
from reput.streaming.tasks.tasks import OnResult, Results

GetStore = Callable[[str], BrokerStore]
TOPICS = ["A", "B", "SCHEDULE_TOPIC_XXXX"]


@pytest.fixture(autouse=True)
def fast_disk() -> Any:
    with no_fsync():
        yield


def config_for(store: Path, *more: str) -> PipelineConfig:
    return config_of(store, SMALL, *more)


def check_equal(config: PipelineConfig, output: Path, expected: Path) -> None:
    """The output is what `tail` makes: queues, index, checkpoint, progress records; and nothing else is left."""
    assert differing_bytes(expected, output) == {}
    others, ours = (
        {path: data for path, data in files_below(root).items() if not path.startswith(("consumequeue", "index/"))}
        for root in (expected, output)
    )
    ours.pop("lock")
    ours.pop("reput/settings.json")  # the steps of `tail` alone do not write it
    assert recorded_in(output, config.store) == made_for(config, config.store, queues=True, index=True)
    for name in ("consumequeue", "index"):
        mine, theirs = (json.loads(each.pop(f"reput/progress/{name}.json")) for each in (ours, others))
        for record in (mine, theirs):
            record["state"].pop("file", None)  # a clock's
        assert mine == theirs
    assert ours == others
    assert "checkpoint" in ours


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_bytes_are_those_of_tail(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any order of queue offsets, any ranges, waves, pieces, any order of the tasks, which write or do not."""
    rng = Random(seed)
    root = tmp_path_factory.mktemp("rebuild")
    messages = disordered(rng, rng.randrange(1, 120))
    write_log(root / "store" / "commitlog", messages, 2000)
    config = config_for(
        root / "store",
        f"rebuildMaxBytesPerPartition={rng.randrange(50, 3000)}",
        f"rebuildMaxBytesPerWave={rng.randrange(50, 9000)}",
        f"enableConsumeQueueExt={rng.choice(['true', 'false', 'false'])}",
        "queueRestart=replay",  # a rebuild refuses what some of these logs say of later lives
    )
    dispatch_store(config, root / "tail")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_entries, "PIECE_BYTES", rng.choice([1, 1 << 20]))
        for name in ("_ENTRIES", "_KEYS", "_QUEUES", "_TOPIC_BYTES"):
            patch.setattr(range_entries, name, rng.choice([1, 1 << 12]))
        patch.setattr(index_sink, "_ENTRIES_A_WRITE", rng.choice([1, 7, 1 << 20]))
        patch.setattr(index_sink, "_SLOTS_A_WRITE", rng.choice([1, 7, 1 << 20]))
        report = rebuild(config, root / "out", is_on_cluster=rng.random() < 0.5)
    assert report.messages == len(messages)
    check_equal(config, root / "out", root / "tail")
    shutil.rmtree(root)


STORES: list[Any] = ["golden-b", "v4-plain", "v4-tx-delay-retry", "v4-killed-rebuilt", "v4-expired-rebuilt", "v4-lmq"]
STORES += ["v4-dledger", "v5-plain", "v5-batchcq", "v5-longtopic", "v5-propcrc"]
STORES += [pytest.param("v4-sql92-rebuilt", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", STORES)
def test_bytes_are_the_brokers(broker_store: GetStore, tmp_path: Path, name: str) -> None:
    """Every kind of queue, the index, DLedger's framing: files of real brokers."""
    store = broker_store(name)
    more = ["tailGuardMs=0", "rebuildMaxBytesPerWave=700k", "rebuildMaxBytesPerPartition=90k"]
    config = load_config(store.root, broker_conf=store.broker_conf, overrides=more)
    report = rebuild(config, tmp_path / "out")
    assert differing_bytes(store.root, tmp_path / "out") == {}
    assert report.messages == store.facts["totalMessages"]
    assert report.queue_files == len(list((tmp_path / "out").glob("*consumequeue/*/*/*")))


@pytest.mark.parametrize("left", ["rocksdb", "backup", "torn"])
def test_kinds_of_queues_are_the_brokers(left: str, broker_store: GetStore, tmp_path: Path) -> None:
    """Of topics in RocksDB, and of those in the ``.bak`` alone, which a broker loads."""
    if left == "rocksdb":
        home = unpack("v5-config-v2-batchcq", tmp_path)
        store, conf = home / "store", home / "broker.conf"
    else:
        store, conf = tmp_path / "store", broker_store("v5-batchcq").broker_conf
        shutil.copytree(broker_store("v5-batchcq").root, store)
        topics = store / "config" / "topics.json"
        topics.rename(topics.with_name("topics.json.bak"))
        if left == "torn":
            topics.write_bytes(topics.with_name("topics.json.bak").read_bytes()[:-9])
    rebuild(load_config(store, broker_conf=conf, overrides=["tailGuardMs=0"]), tmp_path / "out")
    assert differing_bytes(store, tmp_path / "out") == {}


def test_a_forged_record_in_a_body_is_read_as_a_body(tmp_path: Path) -> None:
    """A cut settles on it, the range fails, and the segment's rest is followed record by record."""
    plain = Message(properties={"KEYS": "k"})
    records: list[Message] = []
    offset = 0
    for number in range(12):
        if number % 3 == 1:
            forged = encode(Message(topic="Forged", body=b"", queue_offset=5), offset + 88)
            records.append(replace(plain, body=forged + b"x" * 200))
        else:
            records.append(plain)
        offset += len(encode(records[-1], 0))
    write_log(tmp_path / "store" / "commitlog", records, 1 << 16)
    for bytes_a_range in (100, 150, 260, 400, 1000):
        for bytes_a_wave in (1, 500, 1 << 20):
            options = (f"rebuildMaxBytesPerPartition={bytes_a_range}", f"rebuildMaxBytesPerWave={bytes_a_wave}")
            config = config_for(tmp_path / "store", *options)
            dispatch_store(config, tmp_path / "tail")
            assert rebuild(config, tmp_path / "out").messages == 12
            check_equal(config, tmp_path / "out", tmp_path / "tail")
            shutil.rmtree(tmp_path / "out")
            shutil.rmtree(tmp_path / "tail")


def test_a_damaged_record_stops_it(tmp_path: Path) -> None:
    """As `tail`: an error with file and offset; the output keeps what it had."""
    queue, records = load_log(tmp_path / "store" / "commitlog", messages_of(Random(1), 60), 2000)
    config = config_for(tmp_path / "store", "rebuildMaxBytesPerPartition=300")
    rebuild(config, tmp_path / "out")
    before = others(tmp_path / "out")
    at = records[5].physical_offset
    put_bytes(queue.files[0].path, at + 4, b"\0\0\0\0")
    with pytest.raises(CorruptRecordError, match=f"no good record at offset {at} .*BAD_MAGIC"):
        rebuild(config, tmp_path / "out")
    assert others(tmp_path / "out") == before


# --- parts of an output ----------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_log(tmp_path / "store" / "commitlog", messages_of(Random(7), 90), 2000)
    return tmp_path / "store"


def spoil(output: Path, *folders: str) -> dict[str, bytes]:
    """Damage every file below the folders; returns all the others."""
    files = {path: data for path, data in files_below(output).items() if not path.startswith(folders)}
    for path in files_below(output).keys() - files.keys():
        (output / path).write_bytes(b"damaged")
    return files


def others(output: Path) -> dict[str, bytes]:
    """All files but those of a rebuild that was stopped."""
    return {path: data for path, data in files_below(output).items() if not path.startswith(("lock", "reput/rebuild"))}


def test_one_queue_alone(store: Path, tmp_path: Path) -> None:
    """Only its files change, and `tail` accepts the output: its number of entries is right."""
    config = config_for(store)
    dispatch_store(config, tmp_path / "out")
    dispatch_store(config, tmp_path / "expected")
    kept = spoil(tmp_path / "out", "consumequeue/A/1/")
    (tmp_path / "out" / "consumequeue" / "A" / "1" / "00000000000000009000").write_bytes(bytes(60))
    report = rebuild(config, tmp_path / "out", topic="A", queue_id=1)
    assert report.queues == 1
    assert differing_bytes(tmp_path / "expected", tmp_path / "out") == {}
    changed = {path for path, data in kept.items() if files_below(tmp_path / "out")[path] != data}
    assert changed <= {"reput/progress/consumequeue.json"}
    rebuild_of_tail(config, tmp_path / "out", tmp_path / "expected")


def rebuild_of_tail(config: PipelineConfig, output: Path, expected: Path) -> None:
    """`tail`'s sinks take the output up as it is, and have nothing to do."""
    record = json.loads((output / "reput/progress/consumequeue.json").read_text())
    dispatch_store(config, output)
    assert json.loads((output / "reput/progress/consumequeue.json").read_text()) == record
    assert differing_bytes(expected, output) == {}


def test_one_topic_of_an_output_that_is_behind(store: Path, tmp_path: Path) -> None:
    """The topic's queues end where the others do, not where the log does."""
    config = config_for(store)
    offsets = [record.physical_offset for record in write_log(tmp_path / "again", messages_of(Random(7), 90), 2000)]
    rebuild(config, tmp_path / "out", end=offsets[50])
    before = files_below(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "consumequeue" / "A")
    rebuild(config, tmp_path / "out", topic="A")
    assert files_below(tmp_path / "out") == before
    rebuild(config, tmp_path / "all")
    dispatch_store(config, tmp_path / "out")
    assert differing_bytes(tmp_path / "all", tmp_path / "out") == {}


def test_one_topic_of_a_brokers_own_files(broker_store: GetStore, tmp_path: Path) -> None:
    """A store of a stopped broker: a lost topic is made again in the store itself, its lock held meanwhile."""
    store = broker_store("v4-tx-delay-retry")
    shutil.copytree(store.root, tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "consumequeue" / "DelayTopic")
    config = load_config(tmp_path / "store", broker_conf=store.broker_conf, overrides=["tailGuardMs=0"])
    log = files_below(tmp_path / "store" / "commitlog")
    rebuild(config, tmp_path / "store", topic="DelayTopic")
    assert differing_bytes(store.root, tmp_path / "store") == {}
    assert files_below(tmp_path / "store" / "commitlog") == log
    assert not (tmp_path / "store" / "reput" / "progress").exists()


@pytest.mark.parametrize("only", ["consumequeue", "index"])
def test_only_one_of_them(store: Path, tmp_path: Path, only: str) -> None:
    """The other one's files and record are not touched."""
    config = config_for(store)
    dispatch_store(config, tmp_path / "out")
    dispatch_store(config, tmp_path / "expected")
    kept = spoil(tmp_path / "out", f"{only}/", f"reput/progress/{only}")
    rebuild(config, tmp_path / "out", only=only)
    assert differing_bytes(tmp_path / "expected", tmp_path / "out") == {}
    assert kept.items() <= files_below(tmp_path / "out").items()
    rebuild_of_tail(config, tmp_path / "out", tmp_path / "expected")


def test_topics_left_out(store: Path, tmp_path: Path) -> None:
    """They have no queues; their keys are in the index."""
    config = config_for(store)
    dispatch_store(config, tmp_path / "expected")
    rebuild(config, tmp_path / "out", exclude=("A", "SCHEDULE_TOPIC_XXXX"))
    left_out = {
        path for path in files_below(tmp_path / "expected") if path.startswith(("consumequeue/A/", "consumequeue/S"))
    }
    assert left_out
    for path in left_out:
        (tmp_path / "expected" / path).unlink()
    assert differing_bytes(tmp_path / "expected", tmp_path / "out") == {}


def test_a_part_of_the_log(store: Path, tmp_path: Path) -> None:
    """From a record to a record: the queues begin with pre-blank entries, and `tail` continues at the end."""
    config = config_for(store)
    records = write_log(tmp_path / "again", messages_of(Random(7), 90), 2000)
    start, end = records[20].physical_offset, records[60].physical_offset
    report = rebuild(config, tmp_path / "out", start=start, end=end)
    assert (report.start, report.end, report.messages) == (start, end, 40)
    run_sinks(tmp_path / "expected", LogBatches(store / "commitlog"), [start, end_of(records)], SMALL)
    dispatch_store(config, tmp_path / "out")
    assert differing_bytes(tmp_path / "expected", tmp_path / "out") == {}


@pytest.mark.parametrize(("name", "option"), [("start", "--from"), ("end", "--to")])
def test_a_place_inside_a_record_is_refused(store: Path, tmp_path: Path, name: str, option: str) -> None:
    """The message names the places before and after it."""
    records = write_log(tmp_path / "again", messages_of(Random(7), 90), 2000)
    first, second = records[20].physical_offset, records[21].physical_offset
    for offset in (first + 1, second - 1):
        with pytest.raises(OptionError, match=f"{option} {offset} is inside the record at {first};.* and at {second}$"):
            rebuild(config_for(store), tmp_path / "out", **{name: offset})
    with pytest.raises(OptionError, match=f"{option} 99999999: an offset from 0 to {end_of(records)} wanted"):
        rebuild(config_for(store), tmp_path / "out", **{name: 99999999})
    assert not (tmp_path / "out" / "reput").exists()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"only": "queues"}, "consumequeue, index or table wanted"),
        ({"only": "table"}, "needs --table"),
        ({"queue_id": 1}, "--queue-id needs --topic"),
        ({"topic": "A", "exclude": ("B",)}, "leave out --exclude"),
        ({"topic": "A", "only": "index"}, "leave out"),
        ({"topic": "A", "end": 0}, "no --from, no --to"),
    ],
)
def test_options_that_contradict(store: Path, tmp_path: Path, request_: dict[str, Any], message: str) -> None:
    """Before anything is written."""
    with pytest.raises(OptionError, match=message):
        rebuild(config_for(store), tmp_path / "out", **request_)
    assert not (tmp_path / "out").exists()


def test_a_topic_needs_an_output_and_messages(store: Path, tmp_path: Path) -> None:
    """One queue alone is not an output, and a topic that the log does not have leaves everything as it is."""
    config = config_for(store)
    with pytest.raises(OutputError, match="has no queues"):
        rebuild(config, tmp_path / "out", topic="A")
    dispatch_store(config, tmp_path / "out")
    before = others(tmp_path / "out")
    with pytest.raises(OptionError, match="--topic Nobody --queue-id 3: the log has no message of it"):
        rebuild(config, tmp_path / "out", topic="Nobody", queue_id=3)
    assert others(tmp_path / "out") == before


def test_a_lock_is_respected(store: Path, tmp_path: Path, hold_lock: Callable[[Path], int]) -> None:
    """A broker's, or another reput's."""
    (tmp_path / "out").mkdir()
    holder = hold_lock(tmp_path / "out" / "lock")
    with pytest.raises(StoreLockedError, match=f"by process {holder}"):
        rebuild(config_for(store), tmp_path / "out")


def test_never_inside_the_commitlog(store: Path) -> None:
    """Nothing is ever written there."""
    with pytest.raises(OutputError, match="inside the commitlog"):
        rebuild(config_for(store), store / "commitlog" / "out")


def test_what_an_output_had_is_replaced(store: Path, tmp_path: Path) -> None:
    """Files of other kinds and Spark's checkpoint of `logic` go, the table's stays."""
    config = config_for(store)
    out = tmp_path / "out"
    tops = ("consumequeue_ext", "batchconsumequeue", "consumequeue")
    for path in (*(f"{top}/Old/0/{0:020}" for top in tops), "index/20260102030405006"):
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(b"old")
    for query in ("logic", "table"):
        (out / "reput" / "spark-checkpoint" / query).mkdir(parents=True)
    rebuild(config, out)
    dispatch_store(config, tmp_path / "expected")
    assert differing_bytes(tmp_path / "expected", out) == {}
    assert [path.name for path in (out / "reput" / "spark-checkpoint").iterdir()] == ["table"]


# --- stopped and continued -------------------------------------------------------------------------------


class StoppedError(Exception):
    """The process dies."""


class StoppingTasks(LocalTasks):
    """Dies when a piece of work begins that is one too many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def start(self, work: Callable[[int], str], count: int, on_result: OnResult[str] | None = None) -> Results:
        def counted(number: int) -> str:
            self._most -= 1
            if self._most < 0:
                raise StoppedError
            return work(number)

        return super().start(counted, count, on_result)


def run_until(config: PipelineConfig, output: Path, most: int) -> bool:
    """Rebuild with this many pieces of work; return whether they were enough."""
    try:
        with Rebuild(config, RebuildRequest(output), RebuildProgress()) as job:
            job.run(StoppingTasks(most))
    except StoppedError:
        return False
    return True


def test_it_goes_on_after_the_last_wave(store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Stopped in any task: the output is unchanged; the same command continues and ends with the same bytes."""
    config = config_for(store, "rebuildMaxBytesPerPartition=500", "rebuildMaxBytesPerWave=2500")
    dispatch_store(config, tmp_path / "expected")
    resumed = 0
    for most in range(0, 100, 3):
        out = tmp_path / f"out{most}"
        if run_until(config, out, most):
            break
        assert {path.name for path in out.iterdir()} == {"lock", "reput"}
        tasks = LocalTasks()
        caplog.clear()
        with Rebuild(config, RebuildRequest(out), RebuildProgress()) as job, caplog.at_level("INFO", "reput"):
            report = job.run(tasks)
        resumed += report.resumed_at > 0
        check_equal(config, out, tmp_path / "expected")
        shutil.rmtree(out)
    assert most > 15
    assert resumed > 3


@pytest.mark.parametrize("lost", ["index", "consumequeue"])
def test_a_sink_that_is_behind_catches_up(store: Path, tmp_path: Path, lost: str) -> None:
    """One of them was not written, and waves have another size now: each takes what it has not yet."""
    assert not run_until(config_for(store, "rebuildMaxBytesPerWave=2500"), tmp_path / "out", 4)
    made = tmp_path / "out" / "reput" / "rebuild"
    shutil.rmtree(made / lost)
    (made / "reput" / "progress" / f"{lost}.json").unlink()
    config = config_for(store, "rebuildMaxBytesPerWave=1700", "rebuildMaxBytesPerPartition=900")
    assert rebuild(config, tmp_path / "out").resumed_at == 0
    dispatch_store(config, tmp_path / "expected")
    check_equal(config, tmp_path / "out", tmp_path / "expected")


@pytest.mark.parametrize("changed", ["option", "request", "log"])
def test_another_command_begins_afresh(
    store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, changed: str
) -> None:
    """Other options, another part of the log, another log: the earlier files are not used, and a line says so."""
    options = ["rebuildMaxBytesPerPartition=500", "rebuildMaxBytesPerWave=1500"]
    assert not run_until(config_for(store, *options), tmp_path / "out", 12)
    request: dict[str, Any] = {}
    if changed == "option":
        options.append("brokerVersion=5.5.0")
    elif changed == "request":
        request["exclude"] = ("A",)
    else:
        shutil.rmtree(store)
        write_log(store / "commitlog", [replace(m, store_timestamp=5) for m in messages_of(Random(8), 90)], 2000)
    with caplog.at_level("WARNING", "reput"):
        report = rebuild(config_for(store, *options), tmp_path / "out", **request)
    assert "starting again" in caplog.text
    assert report.resumed_at == 0
    rebuild(config_for(store, *options), tmp_path / "expected", **request)
    assert differing_bytes(tmp_path / "expected", tmp_path / "out") == {}


def test_a_log_that_was_cut_meanwhile(store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last record of a finished wave is another one now: afresh."""
    config = config_for(store, "rebuildMaxBytesPerPartition=500", "rebuildMaxBytesPerWave=1500")
    assert not run_until(config, tmp_path / "out", 12)
    messages = messages_of(Random(7), 90)
    shutil.rmtree(store)
    write_log(store / "commitlog", [messages[0], *messages_of(Random(9), 120, 1)], 2000)
    with caplog.at_level("WARNING", "reput"):
        rebuild(config, tmp_path / "out")
    assert "starting the rebuild again" in caplog.text
    dispatch_store(config, tmp_path / "expected")
    check_equal(config, tmp_path / "out", tmp_path / "expected")


@pytest.mark.parametrize("command", ["tail", "recover"])
def test_whoever_takes_the_output_finishes_the_swap(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The process dies when the swap is noted down and nothing is moved yet."""
    config, out = config_for(store), tmp_path / "out"
    dispatch_store(config_for(store, "messageIndexEnable=false"), out)

    def die(_: DurableFiles) -> bool:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(swap, "finish_swap", die)
        with pytest.raises(StoppedError):
            rebuild(config, out)
    assert not (out / "index").exists()
    if command == "tail":
        with tail_of(config, out):
            pass
    else:
        assert not recover_output(config, store, out).is_changed
    dispatch_store(config, tmp_path / "expected")
    assert differing_bytes(tmp_path / "expected", out) == {}
    assert not (out / "reput" / "rebuild").exists()


def test_an_empty_log(tmp_path: Path) -> None:
    """A rebuild with nothing to make succeeds."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    report = rebuild(load_config(tmp_path / "store"), tmp_path / "out")
    assert (report.messages, report.queues) == (0, 0)
