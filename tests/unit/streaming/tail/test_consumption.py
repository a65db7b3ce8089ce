"""The ledger of consumption: what moved between two looks at a broker's offsets, once, and nothing else."""

from __future__ import annotations

import json
import logging
import shutil
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import run_reput
from support.record_writer import Message, write_log
from support.store_table import add_store

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.table.columns import CONSUMPTION_SCHEMA
from reput.sinks.table.consumption import ConsumptionTable
from reput.sinks.table.delta_table import DataFile, DeltaTable
from reput.sinks.table.location import consumption_table_path
from reput.sinks.table.log import read_snapshot
from reput.sinks.table.retention import Expired, RowRetention
from reput.source.errors import OutputError
from reput.source.times import milliseconds_of
from reput.streaming.config import consumer_offsets
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.status.run_state import RunState
from reput.streaming.tail import consumption
from reput.streaming.tail.consumption import ConsumptionWatch

Group = dict[int, int]
FILE = "consumerOffset.json"


def text_of(groups: dict[str, Group]) -> str:
    """The file as a broker of 5.5.0 writes it."""
    named = (
        f'\t\t"{name}":{{{",".join(f"{q}:{o}" for q, o in queues.items())}\n\t\t}}' for name, queues in groups.items()
    )
    table = ",\n".join(named)
    return (
        '{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1795749122925\n\t},\n'
        f'\t"groupTopicMap":{{}},\n\t"offsetTable":{{\n{table}\n\t}},\n\t"pullOffsetTable":{{}}\n}}'
    )


class Broker:
    """A store with a broker's offsets, and the ledger of a tail of it."""

    def __init__(self, root: Path) -> None:
        self.store, self.table, self.output = root / "store", root / "messages", root / "output"
        (self.store / "config").mkdir(parents=True)
        (self.store / "commitlog").mkdir()
        self.output.mkdir()
        self.file = self.store / "config" / FILE
        self.seconds = 1_800_000_000
        self.run = RunState()
        self.watch = self.start()

    def start(self, *options: str, broker: str = "broker-a", trigger_ms: int = 0) -> ConsumptionWatch:
        overrides = [f"broker={broker}", f"tableTriggerMs={trigger_ms}", *options]
        config = load_config(self.store, overrides=overrides)
        return ConsumptionWatch(config, OutputPaths(self.output, self.table), DurableFiles(self.output), self.run)

    def write(self, groups: dict[str, Group], *, text: str | None = None) -> None:
        """Replace the file as a broker does, five seconds later."""
        new = self.file.with_suffix(".tmp")
        new.write_text(text_of(groups) if text is None else text)
        new.replace(self.file)

    def rows(self) -> list[dict[str, Any]]:
        """The ledger, in the order of its times."""
        path = consumption_table_path(self.table)
        if not path.exists():
            return []
        found = [pq.read_table(path / name) for name in (file.path for file in read_snapshot(path).files())]
        return pa.concat_tables([CONSUMPTION_SCHEMA.empty_table(), *found]).sort_by("seen_after").to_pylist()

    def moves(self) -> list[tuple[Any, ...]]:
        names = "consumer_group", "topic", "queue_id", "offset_before", "offset_after", "move"
        return [tuple(row[name] for name in names) for row in self.rows()]

    def commits(self) -> int:
        return len(list((consumption_table_path(self.table) / "_delta_log").glob("*.json")))


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_each_move_is_a_row_with_the_times_between_which_it_came(broker: Broker) -> None:
    began = now_ms()
    broker.write({"orders@billing": {0: 10, 1: 4}})
    broker.watch.look()
    first_seen = now_ms()
    broker.write({"orders@billing": {0: 25, 1: 2}, "%RETRY%billing@billing": {0: 0}})
    broker.watch.look()
    broker.write({"orders@billing": {0: 25}})
    broker.watch.look()
    assert broker.moves() == [
        ("billing", "orders", 0, None, 10, "first_seen"),
        ("billing", "orders", 1, None, 4, "first_seen"),
        ("billing", "orders", 0, 10, 25, "progress"),
        ("billing", "orders", 1, 4, 2, "reset_back"),
        ("billing", "%RETRY%billing", 0, None, 0, "first_seen"),
        ("billing", "orders", 1, 2, None, "gone"),
        ("billing", "%RETRY%billing", 0, 0, None, "gone"),
    ]
    rows = broker.rows()
    assert [row["seen_before"] for row in rows[:2]] == [None, None]  # there was no watch before
    progress = rows[2]
    # The file with the old offset was written within a second after its offsets were those.
    assert began - 1100 <= milliseconds_of(progress["seen_before"]) <= first_seen
    assert first_seen - 1100 <= milliseconds_of(progress["seen_after"]) <= now_ms() + 100
    assert {row["broker"] for row in rows} == {"broker-a"}
    told = {key: (moves.passed, moves.resets) for key, moves in broker.run.groups.items()}
    assert told == {("billing", "orders"): (15, 1), ("billing", "%RETRY%billing"): (0, 0)}


def test_nothing_is_written_when_nothing_moved(broker: Broker) -> None:
    broker.watch.look()
    assert not consumption_table_path(broker.table).exists()
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    commits = broker.commits()
    for _ in range(3):
        broker.write({"orders@billing": {0: 10}})  # as a broker writes it every five seconds
        broker.watch.look()
    broker.start().look()
    assert (broker.commits(), len(broker.rows())) == (commits, 1)


def test_a_file_is_read_only_when_it_changed_and_only_groups_that_changed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []
    group = consumer_offsets._quick_group

    def counted(topic: bytes, name: bytes, queues: bytes) -> Any:
        read.append(name)
        return group(topic, name, queues)

    monkeypatch.setattr(consumer_offsets, "_quick_group", counted)
    broker.write({"orders@billing": {0: 10}, "orders@stock": {0: 10}})
    broker.watch.look()
    broker.watch.look()
    assert read == [b"billing", b"stock"]
    broker.write({"orders@billing": {0: 10}, "orders@stock": {0: 11}})
    broker.watch.look()
    assert read == [b"billing", b"stock", b"stock"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0" * 100,
        text_of({"orders@billing": {0: 99}})[:-20],
        '{"offsetTable":7}',
        '{"offsetTable":{"a@b":{0:"x"}}}',
        "{}",
    ],
    ids=["empty", "zeros", "half", "no table", "no number", "nothing"],
)
def test_a_file_that_is_not_whole_is_told_once_and_moves_nothing(
    broker: Broker, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    before = now_ms()
    time.sleep(0.05)
    shutil.copy(broker.file, f"{broker.file}.bak")
    broker.write({}, text=text)
    with caplog.at_level(logging.WARNING):
        broker.watch.look()
        assert not caplog.records  # a broker may be writing it
        for _ in range(3):
            broker.watch.look()
    assert [FILE in record.getMessage() for record in caplog.records] == [True]
    assert len(broker.rows()) == 1
    broker.write({"orders@billing": {0: 12}})
    broker.watch.look()
    assert broker.moves()[1:] == [("billing", "orders", 0, 10, 12, "progress")]
    assert milliseconds_of(broker.rows()[1]["seen_before"]) <= before


def test_the_backup_is_read_at_first_as_a_broker_reads_it_and_says_nothing_of_the_time_before(broker: Broker) -> None:
    Path(f"{broker.file}.bak").write_text(text_of({"orders@billing": {0: 10}}))
    broker.file.write_text("")
    for _ in range(3):
        broker.watch.look()
    assert broker.moves() == [("billing", "orders", 0, None, 10, "first_seen")]
    broker.write({"orders@billing": {0: 12}})
    broker.watch.look()
    assert [row["seen_before"] for row in broker.rows()] == [None, None]


def test_the_interval_of_the_first_move_after_a_stop_spans_the_time_in_which_nobody_watched(broker: Broker) -> None:
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    stopped = now_ms()
    time.sleep(0.05)
    broker.write({"orders@billing": {0: 20}})
    broker.write({"orders@billing": {0: 30}})
    broker.start().look()
    row = broker.rows()[-1]
    assert (row["offset_before"], row["offset_after"]) == (10, 30)
    assert stopped - 1200 <= milliseconds_of(row["seen_before"]) <= stopped
    assert milliseconds_of(row["seen_after"]) >= stopped


def test_after_a_crash_between_commit_and_mark_the_interval_is_longer_and_true(broker: Broker) -> None:
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    mark = broker.output / "reput" / consumption.MARK
    old = mark.read_bytes()
    broker.write({"orders@billing": {0: 20}})
    broker.watch.look()
    mark.write_bytes(old)  # what a crash leaves
    broker.write({"orders@billing": {0: 30}})
    broker.start().look()
    rows = broker.rows()
    assert [row["offset_after"] for row in rows] == [10, 20, 30]
    assert rows[2]["seen_before"] == rows[1]["seen_before"]


def test_a_move_is_after_the_last_file_with_the_old_offset_and_not_after_the_last_look(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may have got the new offset right after it wrote the file."""
    monkeypatch.setattr(consumer_offsets, "_WRITTEN_WITHIN_MS", 0)
    broker.write({"orders@billing": {0: 10}})
    written = now_ms()
    time.sleep(0.1)
    broker.watch.look()
    broker.watch.look()
    broker.write({"orders@billing": {0: 20}})
    broker.watch.look()
    assert milliseconds_of(broker.rows()[1]["seen_before"]) <= written


def test_a_mark_of_rows_that_are_gone_is_not_believed(broker: Broker) -> None:
    """As after a RESTORE of the table."""
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    mark = broker.output / "reput" / consumption.MARK
    said = json.loads(mark.read_bytes())
    mark.write_text(json.dumps(said | {"version": said["version"] + 5, "seen_ms": said["seen_ms"] + 500}))
    broker.write({"orders@billing": {0: 20}})
    broker.start().look()
    assert broker.rows()[1]["seen_before"] is None  # unknown


def test_a_crash_while_moves_wait_loses_no_time(broker: Broker) -> None:
    """Moves that were seen but not written are found again, after the last time in the ledger."""
    watch = broker.start(trigger_ms=3_600_000)
    broker.write({"orders@billing": {0: 10}})
    watch.look()
    before = now_ms()
    time.sleep(1.2)  # longer than the time that a broker takes to write
    broker.write({"orders@billing": {0: 20}})
    watch.look()
    broker.write({"orders@billing": {0: 20}})
    broker.start().look()
    rows = broker.rows()
    assert [row["offset_after"] for row in rows] == [10, 20]
    assert milliseconds_of(rows[1]["seen_before"]) <= before


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_commit_that_failed_is_made_once(
    broker: Broker, is_committed: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    append = DeltaTable.append

    def failing(self: DeltaTable, files: list[DataFile], **how: Any) -> int:
        if is_committed:
            append(self, files, **how)
        raise OutputError("the disk went away")

    monkeypatch.setattr(DeltaTable, "append", failing)
    monkeypatch.setattr(consumption, "_PAUSE_S", 0.0)
    broker.write({"orders@billing": {0: 20}})
    broker.watch.look()
    assert "the disk went away" in caplog.text
    monkeypatch.setattr(DeltaTable, "append", append)
    broker.watch.look()
    broker.watch.look()
    assert [row["offset_after"] for row in broker.rows()] == [10, 20]


def test_moves_wait_for_the_trigger_and_are_not_lost_at_the_end(broker: Broker) -> None:
    watch = broker.start(trigger_ms=3_600_000)
    broker.write({"orders@billing": {0: 10}})
    watch.look()
    for offset in (20, 30):
        broker.write({"orders@billing": {0: offset}})
        watch.look()
    assert len(broker.rows()) == 1
    watch.look(at_end=True)
    assert [row["offset_after"] for row in broker.rows()] == [10, 20, 30]


def test_a_clock_that_is_set_back_keeps_the_rows_in_order(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    monkeypatch.setattr(consumer_offsets, "_TICK_MS", -3_600_000)
    broker.write({"orders@billing": {0: 20}})
    broker.watch.look()
    times = [row["seen_after"] for row in broker.rows()]
    assert times == sorted(times)
    broker.write({"orders@billing": {0: 20}})
    broker.start().look()
    assert len(broker.rows()) == 2  # it continues from the last row


def test_small_files_are_merged_and_no_row_is_lost(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reput.sinks.table.consumption._MERGED_AT", 5)
    for offset in range(22):
        broker.write({"orders@billing": {0: offset}})
        broker.watch.look()
    assert [row["offset_after"] for row in broker.rows()] == list(range(22))
    assert len(list(read_snapshot(consumption_table_path(broker.table)).files())) < 8
    broker.write({"orders@billing": {0: 30}})
    broker.start().look()
    assert broker.moves()[-1][3:5] == (21, 30)


def test_moves_expire_with_their_topic_and_the_offset_that_was_reached_stays(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.sinks.table.consumption._MERGED_AT", 1000)
    options = "tableRetention=orders=1d"
    watch = broker.start(options)
    for offset in (10, 20, 30):
        broker.write({"orders@billing": {0: offset, 1: 5}, "orders@late": {0: 1}, "stock@billing": {0: offset}})
        watch.look()
    broker.write({"orders@billing": {0: 30, 1: 5}, "stock@billing": {0: 30}})
    watch.look()
    two_days_later = time.time() + 2 * 86_400
    with monkeypatch.context() as later:
        later.setattr("reput.sinks.table.consumption.time.time", lambda: two_days_later)
        broker.write({"orders@billing": {0: 30, 1: 5}, "stock@billing": {0: 40}})
        broker.start(options).look()
    rows = broker.moves()
    # The group that is gone leaves nothing.
    assert {row for row in rows if row[1] == "orders"} == {
        ("billing", "orders", 0, None, 30, "first_seen"),
        ("billing", "orders", 1, None, 5, "first_seen"),
    }
    assert [row[4] for row in rows if row[1] == "stock"] == [10, 20, 30, 40]
    broker.write({"orders@billing": {0: 35, 1: 5}, "stock@billing": {0: 40}})
    broker.start(options).look()
    assert ("billing", "orders", 0, 30, 35, "progress") in broker.moves()


def test_another_writer_compacts_the_ledger_in_the_moment_in_which_moves_expire(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reput.sinks.table.consumption._MERGED_AT", 1000)
    options = "tableRetention=orders=1d"
    watch = broker.start(options)
    for offset in (10, 20, 30):
        broker.write({"orders@billing": {0: offset}, "stock@billing": {0: offset}})
        watch.look()
    two_days_later, write, compacted = time.time() + 2 * 86_400, DataFile.of_rows, []

    def compact_first(storage: Any, rows: pa.Table, columns: Any, **form: Any) -> DataFile:
        file = write(storage, rows, columns, **form)
        if rows["offset_after"].to_pylist() == [10] and not compacted:  # what stays of a file is written
            compacted.append(deltalake.DeltaTable(consumption_table_path(broker.table)).optimize.compact())
        return file

    broker.write({"orders@billing": {0: 30}, "stock@billing": {0: 40}})
    with monkeypatch.context() as later:
        later.setattr("reput.sinks.table.consumption.time.time", lambda: two_days_later)
        later.setattr(DataFile, "of_rows", compact_first)
        broker.start(options).look()
    assert compacted[0]["numFilesRemoved"] > 1
    assert sorted(row[4] for row in broker.moves() if row[1] == "stock") == [10, 20, 30, 40]
    assert [row for row in broker.moves() if row[1] == "orders"] == [("billing", "orders", 0, None, 30, "first_seen")]


def test_no_ledger_is_kept_if_it_is_switched_off(broker: Broker) -> None:
    broker.write({"orders@billing": {0: 10}})
    for is_kept in (False, True):
        config = load_config(broker.store, overrides=[f"tableConsumption={str(is_kept).lower()}"])
        with consumption.consumption_watched(config, OutputPaths(broker.output, broker.table)):
            pass
        assert consumption_table_path(broker.table).exists() == is_kept


def test_two_brokers_share_a_ledger(broker: Broker) -> None:
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    other = broker.start(broker="broker-b")
    shutil.rmtree(broker.output / "reput")
    other.look()
    found = sorted((row["broker"], row["move"]) for row in broker.rows())
    assert found == [("broker-a", "first_seen"), ("broker-b", "first_seen")]


@pytest.mark.parametrize("name", ["a\\u0040b@g", 'quo\\"te@g', "a{b@g", "topic", "a@b@c", "LMQ@%LMQ%x"])
def test_odd_names_are_read_as_a_broker_reads_them(broker: Broker, name: str) -> None:
    broker.write({name: {0: 1}, "orders@billing": {0: 10}})
    broker.watch.look()
    assert ("billing", "orders", 0, None, 10, "first_seen") in broker.moves()
    assert len(broker.moves()) == 2 - (name in ("topic", "a@b@c", "a\\u0040b@g"))


def test_offsets_of_config_v2_are_read_from_its_database(broker: Broker) -> None:
    rocksdict = pytest.importorskip("rocksdict")

    def key(group: bytes, topic: bytes, queue_id: int) -> bytes:
        names = b"".join(len(each).to_bytes(2, "big") + each + b"\x01" for each in (group, topic))
        return b"\x01\x00\x01\x02" + names + queue_id.to_bytes(4, "big")

    directory = broker.store / "config" / "rdb"
    with closing(rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))) as database:
        database[key(b"billing", b"orders", 3)] = (70_000).to_bytes(8, "big")
        database[b"\x01\x00\x01\x01version"] = b"\0" * 24
    broker.start("configManagerVersion=v2").look()
    assert broker.moves() == [("billing", "orders", 3, None, 70_000, "first_seen")]


def test_a_file_whose_topics_stay_is_not_written_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the ledger nor beside it: it would be written each day, for a rule about another topic."""
    monkeypatch.setattr("reput.sinks.table.consumption._MERGED_AT", 1000)
    options = "tableRetention=orders=1d"
    watch = broker.start(options)
    for offset in (10, 20, 30):
        broker.write({"stock@billing": {0: offset}})
        watch.look()
    for offset in (10, 20, 30):
        broker.write({"stock@billing": {0: 30}, "orders@billing": {0: offset}})
        watch.look()
    before = data_files(broker)
    two_days_later = time.time() + 2 * 86_400
    table = ConsumptionTable(broker.table, "broker-a", 0, RowRetention.parse("orders=1d"))
    assert table.expired(two_days_later) == Expired(2, 3)
    assert table.expired(time.time()) == Expired()
    assert data_files(broker) == before
    assert table.expire(two_days_later) == Expired(2, 3)
    stayed = {file.path for file in read_snapshot(consumption_table_path(broker.table)).files()}
    assert len(stayed & before) == 3
    assert len(data_files(broker) - before) == 1
    for _ in range(2):
        assert table.expired(two_days_later) == table.expire(two_days_later) == Expired()
    assert len(data_files(broker) - before) == 1


def data_files(broker: Broker) -> set[str]:
    return {path.name for path in consumption_table_path(broker.table).glob("*.parquet")}


def test_the_command_expires_the_moves_of_each_broker_or_of_one(broker: Broker) -> None:
    """Beside a message table with rows of the one broker alone."""
    write_log(broker.store / "commitlog", [Message("orders", store_timestamp=now_ms())])
    add_store(broker.table, broker.store, "broker-a")
    for watch in (broker.watch, broker.start(broker="broker-b")):
        shutil.rmtree(broker.output / "reput", ignore_errors=True)
        for offset in (10, 20, 30):
            broker.write({"orders@billing": {0: offset}})
            watch.look()
    words = ["table", "expire", "--table", str(broker.table), "-o", "tableRetention=orders=1d"]
    assert "broker broker-b: removed 0 moves" in run_reput(words).stdout
    with mock.patch.object(time, "time", return_value=time.time() + 2 * 86_400):
        plan = json.loads(run_reput([*words, "--dry-run", "--json"]).stdout)
        assert plan["consumption"] == {name: {"rows": 2, "files": 3} for name in ("broker-a", "broker-b")}
        assert len(broker.rows()) == 6
        of_one = run_reput([*words, "--broker", "broker-b"]).stdout
        assert of_one.startswith("broker broker-b: removed 2 moves of consumer groups from 3 files")
        assert [row["broker"] for row in broker.rows()].count("broker-a") == 3
        assert json.loads(run_reput([*words, "--json"]).stdout)["consumption"]["broker-a"] == {"rows": 2, "files": 3}
        assert "--broker broker-c: " in run_reput([*words, "--broker", "broker-c"], 2).output
    assert broker.moves() == [("billing", "orders", 0, None, 30, "first_seen")] * 2


@pytest.mark.parametrize(
    "words",
    [
        ["expire", "-o", "tableRetention=*=1d"],
        ["optimize"],
        ["forget", "--topic", "orders"],
        ["forget", "--topic", "orders", "--yes"],
    ],
)
def test_commands_about_messages_refuse_the_ledger(broker: Broker, words: list[str]) -> None:
    broker.write({"orders@billing": {0: 10}})
    broker.watch.look()
    path = consumption_table_path(broker.table)
    before = broker.rows()
    assert "is not a message table" in run_reput(["table", *words, "--table", str(path)], 2).output
    assert broker.rows() == before
    told = run_reput(["table", "describe", "--table", str(path)]).stdout
    assert "1 row in 1 file" in told
    assert "key filter" not in told
