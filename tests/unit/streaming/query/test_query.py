"""`reput query`: options, output, and notes on what was skipped; no Spark anywhere."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.command_line import invoke
from support.logs import ORIGINS, SHAPES, put_bytes
from support.model import Settings, consume_queue_files, index_file_contents
from support.record_writer import Message, StoredRecord, write_store
from typer.testing import Result

from reput.source.errors import OptionError
from reput.source.log.log_reader import MessageLookup
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.record.message_decoder import Message as Decoded
from reput.source.rows.message_rows import message_batch
from reput.source.times import time_text
from reput.streaming.query import store_lookup as query_rows
from reput.streaming.query.options import parse_time
from reput.streaming.query.store_lookup import Found, message_row

SETTINGS = Settings(mapped_file_size_consume_queue=60, max_hash_slot_num=7, max_index_num=10)
START = 1_700_000_000_000
MESSAGES = [
    Message(
        topic="T",
        body=f"body {i}".encode(),
        properties={"KEYS": f"k{i} even" if i % 2 == 0 else f"k{i}", "UNIQ_KEY": f"U{i // 4}", "TAGS": "A"},
        store_timestamp=START + 400 * i,
    )
    for i in range(20)
]


def make_store(store: Path, messages: Sequence[Message], output: Path | None = None) -> list[StoredRecord]:
    """A store as a broker leaves it, by the model."""
    conf = {"maxHashSlotNum": SETTINGS.max_hash_slot_num, "maxIndexNum": SETTINGS.max_index_num}
    records = write_store(store, messages, 1 << 16, broker_conf=conf)
    root = store if output is None else output
    for number, content in enumerate(index_file_contents(records, SETTINGS)):
        write(root / "index" / f"{20231114221320000 + number}", content)
    for (topic, queue_id), files in consume_queue_files(records, SETTINGS).items():
        for offset, content in files.items():
            write(root / "consumequeue" / topic / str(queue_id) / f"{offset:020d}", content)
    return records


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_store(tmp_path / "store", MESSAGES)
    return tmp_path / "store"


def query(store: Path, *words: str, conf: bool = True) -> Result:
    given = ["--broker-conf", str(store / "broker.conf")] if conf else []
    return invoke(["query", "--store", str(store), *given, *words])


def rows(store: Path, *words: str) -> list[dict[str, Any]]:
    result = query(store, "--format", "json", *words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def offsets(store: Path, *words: str) -> list[int]:
    return [row["queue_offset"] for row in rows(store, *words)]


KEY = ["--topic", "T", "--key"]
QUEUE = ["--topic", "T", "--queue-id", "0"]


def test_each_kind_of_query(store: Path) -> None:
    """One message by each."""
    assert offsets(store, *KEY, "k7") == [7]
    assert offsets(store, *QUEUE, "--queue-offset", "3") == [3]
    assert offsets(store, *QUEUE, "--queue-offset", "18", "--limit", "9") == [18, 19]
    assert offsets(store, *QUEUE, "--time", str(START + 1601)) == [5]
    assert offsets(store, *QUEUE, "--time", "2023-11-14T22:13:20.400Z", "--limit", "2") == [1, 2]
    msg_id = rows(store, *KEY, "k7")[0]["msg_id"]
    assert offsets(store, "--msg-id", msg_id) == [7]


def test_keys_newest_first_within_times_and_a_limit(store: Path) -> None:
    """Times are exact to the millisecond although the index has whole seconds."""
    assert offsets(store, *KEY, "even") == list(range(18, -1, -2))
    times = ["--since", str(START + 401), "--end", str(START + 6399)]
    assert offsets(store, *KEY, "even", *times) == [14, 12, 10, 8, 6, 4, 2]
    assert offsets(store, *KEY, "even", "--since", str(START + 800), "--end", str(START + 800)) == [2]
    assert offsets(store, *KEY, "even", "--since", str(START + 800), "--until", str(START + 801)) == [2]
    assert offsets(store, *KEY, "even", "--since", str(START + 800), "--until", str(START + 800)) == []
    limited = query(store, "--format", "json", *KEY, "even", "--limit", "3")
    assert [json.loads(line)["queue_offset"] for line in limited.stdout.splitlines()] == [18, 16, 14]
    assert "the newest 3 index entries were read; there may be older ones: give --until or --limit" in limited.stderr


def test_the_default_limits_are_a_brokers(tmp_path: Path) -> None:
    """64 entries of a key, 32 of a unique key."""
    make_store(tmp_path, [Message(topic="T", properties={"KEYS": "k", "UNIQ_KEY": "U"}) for _ in range(70)])
    assert offsets(tmp_path, *KEY, "k") == list(range(69, 5, -1))
    assert offsets(tmp_path, "--topic", "T", "--uniq-key", "U") == list(range(69, 37, -1))
    assert len(offsets(tmp_path, *KEY, "k", "--limit", "1000")) == 70


def test_of_several_messages_with_a_unique_key_the_first_is_chosen(store: Path) -> None:
    """All are shown, and which one a client returns."""
    found = rows(store, "--topic", "T", "--uniq-key", "U2")
    assert [(row["queue_offset"], row["chosen"]) for row in found] == [(11, False), (10, False), (9, False), (8, True)]
    table = query(store, "--topic", "T", "--uniq-key", "U2").stdout.splitlines()
    assert [line.split()[-1] for line in table] == ["chosen", "False", "False", "False", "True"]


def test_the_first_is_by_store_time(tmp_path: Path) -> None:
    """The clock of a broker may go back; of equal times the smaller offset is the first, as for a client."""
    times = [START + 5000, START, START, START + 9000]
    make_store(tmp_path, [Message(topic="T", properties={"UNIQ_KEY": "U"}, store_timestamp=time) for time in times])
    found = rows(tmp_path, "--topic", "T", "--uniq-key", "U")
    assert [row["queue_offset"] for row in found if row["chosen"]] == [1]


def keyed(*times: int) -> list[Message]:
    return [Message(topic="T", properties={"KEYS": "k", "UNIQ_KEY": "U"}, store_timestamp=time) for time in times]


def test_store_times_before_1970(tmp_path: Path) -> None:
    """A clock that begins in 1900 makes good records: no time is too early to be looked for."""
    make_store(tmp_path, keyed(-2_208_988_800_000, -86_400_001, -86_400_000))
    assert offsets(tmp_path, *KEY, "k") == [2, 1, 0]
    assert offsets(tmp_path, *KEY, "k", "--end", "1969-12-30T23:59:59.999Z") == [1, 0]
    assert offsets(tmp_path, *KEY, "k", "--since=-86400000") == [2]
    assert offsets(tmp_path, "--topic", "T", "--uniq-key", "U") == [2, 1, 0]


def test_messages_within_times_after_the_clock_went_back(tmp_path: Path) -> None:
    """A broker's search ends at the first entry, or file, that is too old; later times come after it."""
    times = [START + 1000 * seconds for seconds in (30, 40, 35, 10, 11, 2, 12, 13, 1, 14, 15, 16, 3)]
    make_store(tmp_path, keyed(*times))
    found = [number for number, time in enumerate(times) if START + 30_000 <= time <= START + 36_000]
    assert offsets(tmp_path, *KEY, "k", "--since", str(START + 30_000), "--end", str(START + 36_000)) == found[::-1]
    assert offsets(tmp_path, *KEY, "k", "--since", str(START), "--end", str(START + 3000)) == [12, 8, 5]
    for number, time in enumerate(times):
        assert offsets(tmp_path, *KEY, "k", "--since", str(time), "--end", str(time)) == [number]


def test_a_message_that_the_index_has_twice_is_shown_once(tmp_path: Path) -> None:
    """A broker's index has one entry for each time that KEYS name the key."""
    make_store(tmp_path, [Message(topic="T", properties={"KEYS": "k k other"})])
    assert offsets(tmp_path, *KEY, "k") == [0]


def test_collisions_are_left_out_and_counted(tmp_path: Path) -> None:
    """`Aa` and `BB` have one hash, and so have the topics `TAa` and `TBB`."""
    keys = [("TAa", "Aa"), ("TAa", "BB"), ("TBB", "Aa"), ("TAa", "x Aa y"), ("TAa", "AaAa")]
    make_store(tmp_path, [Message(topic=topic, properties={"KEYS": key}) for topic, key in keys])
    result = query(tmp_path, "--format", "json", "--topic", "TAa", "--key", "Aa")
    assert [json.loads(line)["queue_offset"] for line in result.stdout.splitlines()] == [2, 0]
    assert "messages of other keys with the same hash left out: 2" in result.stderr
    assert "2 messages found" in result.stderr


def test_a_unique_key_is_no_key(store: Path) -> None:
    """Each is compared with its own property, though the index does not tell them apart."""
    assert offsets(store, *KEY, "U2") == []
    assert offsets(store, "--topic", "T", "--uniq-key", "k7") == []


def test_dead_index_entries_are_counted_by_reason(tmp_path: Path) -> None:
    """Expired, damaged, and outside the log: each reason once, with its first case."""
    records = make_store(tmp_path, [Message(topic="T", properties={"KEYS": "k"}) for _ in range(9)])
    (index,) = (tmp_path / "index").iterdir()
    for number in (2, 3):
        put_bytes(index, 40 + 4 * 7 + 20 * number + 4, (10**9 + number).to_bytes(8, "big"))
    put_bytes(tmp_path / "commitlog" / f"{0:020d}", records[5].physical_offset + 4, b"\0\0\0\0")
    result = query(tmp_path, "--format", "json", *KEY, "k")
    assert result.exit_code == 0
    assert [json.loads(line)["queue_offset"] for line in result.stdout.splitlines()] == [8, 7, 6, 4, 3, 0]
    assert "index entries skipped, outside the log: 2; the first: offset 1000000003 is outside the log" in result.stderr
    assert "index entries skipped, no good record (BAD_MAGIC): 1; the first: " in result.stderr


def test_a_missing_message_is_one_line(store: Path) -> None:
    """Exit code 0: an index without the key has answered."""
    result = query(store, *KEY, "none")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "reput: 0 messages found\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "exactly one of --key, --uniq-key, --msg-id, --queue-offset, --time wanted, found none"),
        (["--topic", "T", "--since", "0"], "found none; 'reput dump --topic TOPIC --since TIME --until TIME' lists"),
        ([*KEY, "k", "--msg-id", "0" * 32], "found --key, --msg-id"),
        (["--key", "k"], "--key needs --topic"),
        (["--queue-offset", "1"], "--queue-offset needs --queue-id and --topic"),
        (["--topic", "T", "--time", "1"], "--time needs --queue-id"),
        ([*KEY, "k", "--queue-id", "2"], "--key does not go with --queue-id"),
        ([*QUEUE, "--queue-offset", "1", "--limit", "2", "--since", "0"], "does not go with --since"),
        (["--msg-id", "0" * 32, "--topic", "T"], "--msg-id does not go with --topic"),
        (["--msg-id", "0"], "'0' is not an offset message id"),
        ([*KEY, ""], "key '': KEYS are split at blanks"),
        ([*KEY, "a b"], "key 'a b': KEYS are split at blanks"),
        (["--topic", "T", "--uniq-key", ""], "the unique key is empty"),
        ([*KEY, "k", "--since", "2", "--end", "1"], "--end is before --since: no time is between them"),
        ([*KEY, "k", "--since", "2", "--until", "1"], "--until is before --since: no time is between them"),
        ([*KEY, "k", "--until", "2", "--end", "1"], "--until does not go with --end"),
        ([*KEY, "k", "--since", "noon"], "time 'noon': milliseconds since 1970 wanted, or a time like"),
        ([*KEY, "k", "--format", "xml"], "--format xml: one of table, json wanted"),
        ([*QUEUE, "--queue-offset", "-1"], "Invalid value for '--queue-offset'"),
    ],
)
def test_wrong_usage(words: list[str], message: str, store: Path) -> None:
    """One line that names the option, exit code 2."""
    result = query(store, *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_what_is_not_there(store: Path, tmp_path: Path) -> None:
    """One line that names the place, exit code 1."""
    foreign = "0A00000100002A9F" + f"{0:016X}"
    cases = {
        (*QUEUE, "--queue-offset", "20"): "OFFSET_OVERFLOW_ONE: queue 0 of topic 'T' has the entries [0, 20)",
        ("--topic", "../x", "--queue-id", "0", "--queue-offset", "0"): "is not the printable name of one directory",
        ("--msg-id", foreign): "the one at offset 0 is 7F00000100002A9F0000000000000000; the id is from another",
        ("--msg-id", foreign[:-1] + "1"): "no good record at offset 1 (byte 1 of the file)",
        ("--msg-id", "F" * 32): "offset -1 is outside the log",
        ("--output", str(tmp_path), *KEY, "k1"): f"no index at {tmp_path}/index",
    }
    for words, message in cases.items():
        result = query(store, *words)
        assert (result.exit_code, result.stdout) == (1, ""), words
        assert message in result.stderr
    without = query(store, *KEY, "k1", conf=False)
    assert (without.exit_code, without.stdout) == (0, query(store, *KEY, "k1").stdout)
    result = query(tmp_path, *KEY, "k", conf=False)
    assert result.exit_code == 1
    assert f"no commitlog at {tmp_path}/commitlog" in result.stderr


def test_files_that_reput_put_elsewhere(tmp_path: Path) -> None:
    """`--output` holds index and queues, the store only the log."""
    make_store(tmp_path / "store", MESSAGES, tmp_path / "out")
    output = ["--output", str(tmp_path / "out")]
    assert offsets(tmp_path / "store", *output, *KEY, "k7") == [7]
    assert offsets(tmp_path / "store", *output, *QUEUE, "--queue-offset", "7") == [7]


def test_a_queue_entry_that_leads_to_no_message(store: Path) -> None:
    """Asked for alone it is an error, among others it is passed over and counted."""
    put_bytes(store / "consumequeue" / "T" / "0" / f"{60:020d}", 0, (2).to_bytes(8, "big"))
    single = query(store, *QUEUE, "--queue-offset", "3")
    assert (single.exit_code, single.stdout) == (1, "")
    assert "entry 3 of queue 0 of topic 'T' leads to no message: " in single.stderr
    assert "no good record at offset 2" in single.stderr
    several = query(store, "--format", "json", *QUEUE, "--queue-offset", "2", "--limit", "3")
    assert [json.loads(line)["queue_offset"] for line in several.stdout.splitlines()] == [2, 4]
    assert "queue entries skipped, no good record (BAD_MAGIC): 1" in several.stderr


def test_a_queue_entry_that_leads_to_another_queues_message(tmp_path: Path) -> None:
    """The message is shown, and what differs: a stale entry, or a queue that was mixed up."""
    records = make_store(tmp_path, [Message(topic="T"), Message(topic="Other", queue_id=2, body=b"longer body")])
    entry = records[1].physical_offset.to_bytes(8, "big")
    put_bytes(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", 0, entry)
    result = query(tmp_path, "--format", "json", *QUEUE, "--queue-offset", "0")
    assert json.loads(result.stdout)["topic"] == "Other"
    sizes = f"size {records[0].msg_size} and {records[1].msg_size}"
    differ = f"entry 0 of queue 0 of topic 'T' and its record differ: {sizes}, queue ('T', 0) and ('Other', 2)"
    assert differ in result.stderr


def test_the_third_field_of_an_entry(store: Path) -> None:
    """A tags code, or the address of a ConsumeQueueExt unit."""
    put_bytes(store / "consumequeue" / "T" / "0" / f"{0:020d}", 12, (-(2**63) + 48).to_bytes(8, "big", signed=True))
    first, second = rows(store, *QUEUE, "--queue-offset", "0", "--limit", "2")
    assert first["entry"] == {"queue_offset": 0, "msg_size": first["msg_size"], "ext_address": -(2**63) + 48}
    assert second["entry"] == {"queue_offset": 1, "msg_size": second["msg_size"], "tags_code": ord("A")}


def test_json_has_every_field(store: Path) -> None:
    """Named as in the message table."""
    (row,) = rows(store, *KEY, "k4", "--body")
    size = row.pop("msg_size")
    assert size == rows(store, *QUEUE, "--queue-offset", "4")[0]["entry"]["msg_size"]
    assert row.pop("physical_offset") > 0
    assert row.pop("msg_id").startswith("7F00000100002A9F")
    assert row.pop("body_crc") == zlib.crc32(b"body 4") & 0x7FFFFFFF
    assert row == {
        "topic": "T",
        "queue_id": 0,
        "queue_offset": 4,
        "store_time": "2023-11-14T22:13:21.600Z",
        "store_timestamp": START + 1600,
        "born_time": "2023-11-14T22:13:20.000Z",
        "born_timestamp": START,
        "born_host": "127.0.0.1:40000",
        "store_host": "127.0.0.1:10911",
        "tags": "A",
        "tags_code": 65,
        "keys": ["k4", "even"],
        "uniq_key": "U1",
        "body_size": 6,
        "flag": 0,
        "sys_flag": 0,
        "transaction_type": "none",
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "delay_level": None,
        "real_topic": None,
        "real_queue_id": None,
        "properties": {"KEYS": "k4 even", "UNIQ_KEY": "U1", "TAGS": "A"},
        "kind": "normal",
        "consumer_group": None,
        "origin_topic": "T",
        "origin_msg_id": None,
        "deliver_time": None,
        "deliver_timestamp": None,
        "producer_group": None,
        "client_host": None,
        "transaction_id": None,
        "first_key": "k4",
        "body": "body 4",
    }


def test_json_is_a_row_of_the_message_table(tmp_path: Path) -> None:
    """The same names and values, for records of all shapes."""
    # Null in the table is null in the command; its types are Arrow's.
    messages = [*SHAPES.values(), Message(properties={"DELAY": "x", "REAL_QID": "7"}), Message(store_timestamp=2**62)]
    messages += ORIGINS
    records = make_store(tmp_path, messages)
    file, end = (
        MappedFileQueue.load([tmp_path / "commitlog"]).files[0],
        records[-1].physical_offset + records[-1].msg_size,
    )
    (window,) = read_windows(file, 0, end, DecodeOptions())
    table = message_batch(window.columns).to_pylist()
    assert len(table) == len(messages)
    lookup = MessageLookup([tmp_path / "commitlog"])
    for wanted in table:
        message = lookup.find(wanted["physical_offset"])
        assert isinstance(message, Decoded)
        row = message_row(Found(message), with_body=False)
        for name in ("store_time", "born_time", "deliver_time"):
            time = wanted[name]
            wanted[name] = time and time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03d}Z"
        wanted["properties"] = dict(wanted["properties"])
        assert {name: row[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("body", "sys_flag", "name", "text"),
    [
        ("é".encode(), 0, "body", "é"),
        (b"", 0, "body", ""),
        (b"\xff\0", 0, "body_base64", "/wA="),
        (zlib.compress(b"plain"), 0x1, "body", "plain"),
        (zlib.compress(b"\xff\0"), 0x1, "body_base64", "/wA="),
        (b"not zlib", 0x1, "body_compressed_base64", base64.b64encode(b"not zlib").decode()),
        (
            zlib.compress(b"cut")[:-1],
            0x1,
            "body_compressed_base64",
            base64.b64encode(zlib.compress(b"cut")[:-1]).decode(),
        ),
    ],
)
def test_bodies(body: bytes, sys_flag: int, name: str, text: str, tmp_path: Path) -> None:
    """Text, base64 of other bytes, base64 of bodies that cannot be decompressed; only when asked for."""
    make_store(tmp_path, [Message(topic="T", body=body, sys_flag=sys_flag, properties={"KEYS": "k"})])
    (row,) = rows(tmp_path, *KEY, "k", "--body")
    assert {key: value for key, value in row.items() if key.startswith("body") and isinstance(value, str)} == {
        name: text
    }
    assert query(tmp_path, *KEY, "k", "--body").stdout.split()[-1] == (text or row["msg_id"])
    assert "body" not in rows(tmp_path, *KEY, "k")[0]


def test_a_body_that_unpacks_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is shown as stored: a small body can fill the memory."""
    monkeypatch.setattr(query_rows, "BODY_BYTES_MAX", 1000)
    for size, is_unpacked in ((1000, True), (1001, False)):
        make_store(tmp_path / str(size), [Message(topic="T", body=zlib.compress(bytes(size)), sys_flag=1)])
        (row,) = rows(tmp_path / str(size), *QUEUE, "--queue-offset", "0", "--body")
        assert ("body" in row) == is_unpacked
        assert ("body_compressed_base64" in row) != is_unpacked


def test_a_table_moves_no_cursor(tmp_path: Path) -> None:
    """Control characters of a key, a tag or a body are shown, not obeyed; columns are below their names."""
    evil = {"KEYS": "k \x1b[2Jx", "TAGS": "a\nb\u202e"}
    make_store(tmp_path, [Message(topic="T", properties=evil, body=b"\x1b]0;x\x07"), Message(topic="T")])
    result = query(tmp_path, *QUEUE, "--queue-offset", "0", "--limit", "2", "--body")
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    assert [word in lines[1] for word in ("k \\x1b[2Jx", "a\\nb\\u202e", "\\x1b]0;x\\x07")] == [True] * 3
    assert lines[0].index("msg_id") == lines[1].index("7F000001") == lines[2].index("7F000001")


def test_times_as_text() -> None:
    """Milliseconds, or ISO 8601, in UTC unless it says otherwise."""
    assert parse_time("1700000000000") == START
    for text in ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20", "2023-11-15T06:13:20+08:00", "2023-11-14 22:13:20.000"):
        assert parse_time(text) == START
    assert parse_time("1969-12-31T23:59:59.999Z") == -1
    assert parse_time("-5") == -5
    for text in ("--5", "-", "", "²", "2023-13-01", "yesterday"):
        with pytest.raises(OptionError, match="milliseconds since 1970 wanted"):
            parse_time(text)
    assert [time_text(ms) for ms in (0, -1)] == ["1970-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z"]
    assert [time_text(ms) for ms in (2**63 - 1, -(2**63), 253_402_300_800_000)] == [None] * 3


def test_a_search_by_time_says_where_it_ends(store: Path) -> None:
    """There is no message after the last one; the note has the offset."""
    result = query(store, *QUEUE, "--time", "2030-01-01")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "offset 20 at 1893456000000; it has the entries [0, 20)" in result.stderr


def test_a_search_by_time_over_a_damaged_record(store: Path) -> None:
    """It cannot continue; a broker would answer 0."""
    put_bytes(store / "consumequeue" / "T" / "0" / f"{360:020d}", 20, (78).to_bytes(8, "big"))
    result = query(store, *QUEUE, "--time", str(START + 7600))
    assert result.exit_code == 1
    assert "entry 19 of queue 0 of topic 'T' leads to no message" in result.stderr


def test_neither_spark_nor_java_is_loaded(store: Path) -> None:
    """In a process of its own: no module of Spark, and nothing written to the store."""
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    code = (
        "import sys\n"
        "from reput.streaming.cli.main import app\n"
        f"app(['query', '--store', {str(store)!r}, '--broker-conf', {str(store / 'broker.conf')!r},"
        " '--topic', 'T', '--key', 'k7'], standalone_mode=False)\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'py4j', 'delta')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "U1" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_help_tells_the_rule_of_times() -> None:
    """Which of the two versions' rules is used, and an example."""
    shown = invoke(["query", "--help"])
    words = " ".join(shown.output.replace("│", " ").split())
    assert shown.exit_code == 0
    assert "Example: reput query" in words
    assert "5.x's rule" in words
