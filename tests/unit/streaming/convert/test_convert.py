"""`reput convert`: the new log has the bytes that a plain broker would have written of the same messages."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import invoke, run_reput
from support.logs import V6_STORE, WITH_PROPERTY_CRC, put_bytes, varied_messages
from support.record_writer import CommitLogWriter, Host, Message, StoredRecord
from support.sink_runner import files_below

from reput.sinks.files.store_lock import StoreLock
from reput.streaming.config.broker import broker_version

SIZE = 4096
V4: Host = ("10.0.0.7", 10_911)
TIMER_UNIT = struct.Struct(">iqiqiqiiq")


def message_id(host: Host, offset: int) -> str:
    address = socket.inet_pton(socket.AF_INET6 if ":" in host[0] else socket.AF_INET, host[0])
    return (address + struct.pack(">iq", host[1], offset)).hex().upper()


class Sender:
    """Sends the same messages to any log; some name earlier ones by their place in that log."""

    def __init__(self, seed: int) -> None:
        self.messages = varied_messages(60, seed=seed)
        # Where they were in the first log.
        self.first: dict[int, int] = {}

    def send(self, writer: CommitLogWriter, begin: int = 0, end: int = 60) -> None:
        for number, shape in enumerate(self.messages[begin:end], begin):
            message = replace(shape, prepared_transaction_offset=0, store_host=V6_STORE if number % 4 else V4)
            at = writer.append(message)
            first = self.first.setdefault(number, at)
            half = writer.append(replace(message, topic="RMQ_SYS_TRANS_HALF_TOPIC", sys_flag=0))
            writer.append(replace(message, sys_flag=0x8, prepared_transaction_offset=half))
            sent_back = {"RETRY_TOPIC": message.topic, "ORIGIN_MESSAGE_ID": message_id(message.store_host, at)}
            writer.append(Message("%RETRY%g", properties=sent_back, body=b"ORIGIN_MESSAGE_ID\x01" + b"A" * 32))
            writer.append(replace(WITH_PROPERTY_CRC, properties={**sent_back, "TAGS": "t"}))
            # A unique key, the id of another broker's message, one that has expired, and what only looks like an id.
            for text in (
                "7F0000010000" + "18B4AAC2" * 2 + "0A1B",
                message_id(("10.9.9.9", 1), first),
                message_id(V4, 7),
            ):
                writer.append(Message("%RETRY%g", properties={"ORIGIN_MESSAGE_ID": text, "TAGS": "t"}))
            writer.append(Message("Other", properties={"MY_ORIGIN_MESSAGE_ID": message_id(message.store_host, first)}))


def old_store(root: Path, seed: int, start_offset: int = 0) -> list[StoredRecord]:
    """A DLedger store; returns what the plain log in `root/expected` has, which a plain broker has written."""
    sender = Sender(seed)
    with CommitLogWriter(root / "old/dledger-n0/data", SIZE, start_offset=start_offset, dledger=True) as writer:
        sender.send(writer)
    with CommitLogWriter(root / "expected", SIZE, start_offset=start_offset) as plain:
        sender.send(plain)
    (root / "old/config").mkdir()
    (root / "old/config/consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:3}}}')
    (root / "old/config/more").mkdir()
    (root / "old/config/more/a file").write_bytes(bytes(9000) + b"of any kind")
    return plain.records


def convert(root: Path, *more: str) -> dict[str, int]:
    done = run_reput(["convert", "--store", str(root / "old"), "--output", str(root / "new"), "--json", *more])
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("seed", "start_offset"), [(1, 0), (2, 3 * SIZE)])
def test_the_log_of_a_plain_broker(seed: int, start_offset: int, tmp_path: Path) -> None:
    """Expired segments too; queues, index and checkpoint agree with the log; the old store is as it was."""
    records = old_store(tmp_path, seed, start_offset)
    before = files_below(tmp_path / "old")
    result = convert(tmp_path)
    assert files_below(tmp_path / "new/commitlog") == files_below(tmp_path / "expected")
    assert result["messages"] == len(records)
    assert result["end"] == records[-1].physical_offset + records[-1].msg_size
    assert files_below(tmp_path / "old") == before
    for name in ("config/consumerOffset.json", "config/more/a file"):
        assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "old" / name).read_bytes()
    run_reput(["verify", "--store", str(tmp_path / "new")])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        *("checkpoint", "commitlog", "config", "consumequeue", "index", "lock", "reput")
    ]
    assert convert(tmp_path) == result


def test_a_log_that_dledger_continued(tmp_path: Path) -> None:
    """Plain segments come first, and stay as they are, except for the last, which continues."""
    sender = Sender(3)
    with CommitLogWriter(tmp_path / "old/commitlog", SIZE) as writer:
        sender.send(writer, 0, 20)
    divide = -(-writer.max_offset // SIZE) * SIZE
    rest = divide - writer.max_offset
    put_bytes(tmp_path / f"old/commitlog/{divide - SIZE:020d}", SIZE - rest, struct.pack(">iI", rest, 0xCBD43194))
    queues = {(each.message.topic, each.message.queue_id) for each in writer.records}
    counted = {queue: writer.next_queue_offset(*queue) for queue in queues}
    with CommitLogWriter(
        tmp_path / "old/dledger-n0/data", SIZE, start_offset=divide, first_queue_offsets=counted, dledger=True
    ) as framed:
        sender.send(framed, 20)
    with CommitLogWriter(tmp_path / "expected", SIZE) as plain:
        sender.send(plain, 0, 20)
        sender.send(plain, 20)
    convert(tmp_path)
    assert files_below(tmp_path / "new/commitlog") == files_below(tmp_path / "expected")


def test_timers(tmp_path: Path) -> None:
    """Units of the timer log name the records where they are now; other units, the wheel and holes stay."""
    old_store(tmp_path, 4)
    with CommitLogWriter(tmp_path / "again", SIZE, dledger=True) as writer:
        Sender(4).send(writer)
    with CommitLogWriter(tmp_path / "plain", SIZE) as plain:
        Sender(4).send(plain)
    was, now = ([record.physical_offset for record in each.records[::7]] for each in (writer, plain))
    blank = TIMER_UNIT.pack(30, 0, 0x1234567, 0, 0, was[0], 0, 0, 0)

    def units(offsets: Sequence[int]) -> bytes:
        return b"".join(TIMER_UNIT.pack(52, -1, 1, 1_700_000_000_000, 500, each, 100, 7, 0) for each in offsets)

    log, wheel = tmp_path / "old/timerlog/00000000000000000000", tmp_path / "old/timerwheel"
    log.parent.mkdir()
    log.write_bytes(units([*was, 3]) + blank)
    os.truncate(log, 1 << 23)
    wheel.write_bytes(b"slots")
    os.truncate(wheel, 1 << 22)
    convert(tmp_path)
    made = (tmp_path / "new/timerlog" / log.name).read_bytes()
    assert made.rstrip(b"\0") == (units([*now, 3]) + blank).rstrip(b"\0")
    assert len(made) == 1 << 23
    assert (tmp_path / "new/timerwheel").read_bytes() == wheel.read_bytes()
    assert (tmp_path / "new/timerwheel").stat().st_blocks * 512 < 1 << 20


def test_queues_whose_messages_have_expired(tmp_path: Path) -> None:
    """They keep their files, and so their next queue offset; a queue that no record explains is left out."""
    old_store(tmp_path, 10, 3 * SIZE)
    gone, odd = (tmp_path / "old/consumequeue" / name / "2/00000000000000006000" for name in ("Gone", "Odd"))
    for path, offset in ((gone, 3 * SIZE - 500), (odd, 4 * SIZE)):
        path.parent.mkdir(parents=True)
        path.write_bytes(struct.pack(">qiq", offset, 100, 7) + bytes(5980))
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=6000\n")
    assert convert(tmp_path, "--broker-conf", str(conf))["queues_left_out"] == 1
    assert (tmp_path / "new/consumequeue/Gone/2" / gone.name).read_bytes() == gone.read_bytes()
    assert not (tmp_path / "new/consumequeue/Odd").exists()
    run_reput(["verify", "--store", str(tmp_path / "new"), "--broker-conf", str(conf)])


def test_the_release_shows(tmp_path: Path) -> None:
    """The new store looks to reput like one of the same release."""
    old_store(tmp_path, 11)
    (tmp_path / "old/rocksdbstore").mkdir()
    (tmp_path / "old/rocksdbstore/CURRENT").write_text("MANIFEST-000001\n")
    convert(tmp_path)
    assert broker_version("auto", tmp_path / "new") == (5, 5, 0)
    assert not any((tmp_path / "new/rocksdbstore").iterdir())


def test_segments_keep_their_times(tmp_path: Path) -> None:
    """A broker removes segments by the time of the last write: messages must not become younger."""
    old_store(tmp_path, 5)
    segments = sorted((tmp_path / "old/dledger-n0/data").iterdir())
    for number, path in enumerate(segments):
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    convert(tmp_path)
    times = [int(path.stat().st_mtime) for path in sorted((tmp_path / "new/commitlog").iterdir())]
    assert times == sorted(times)
    assert times[-1] == 1_600_000_000 + len(segments) - 1
    assert times[0] <= 1_600_000_001


def test_uncommitted_entries(tmp_path: Path) -> None:
    """DLedger's checkpoint says which entries most of the group have."""
    records = old_store(tmp_path, 6)
    checkpoint = tmp_path / "old/dledger-n0/checkpoint"
    checkpoint.write_text(f"#\ncommittedIndex={len(records) - 4}\nendIndex={len(records) - 1}\n")
    result = convert(tmp_path)
    assert (result["uncommitted"], result["last_index"]) == (3, len(records) - 1)
    assert result["last_term"] == 0


def refused(root: Path, *more: str, code: int) -> str:
    done = invoke(["convert", "--store", str(root / "old"), "--output", str(root / "new"), *more])
    assert done.exit_code == code, done.output
    assert not (root / "new/commitlog").exists()
    return done.output


def test_refused(tmp_path: Path) -> None:
    old_store(tmp_path, 7)
    with StoreLock(tmp_path / "new"):
        assert "is locked" in refused(tmp_path, code=1)
    (tmp_path / "new/mine").touch()
    assert "is not empty: it has mine" in refused(tmp_path, code=1)
    (tmp_path / "new/mine").unlink()
    inside = invoke(["convert", "--store", str(tmp_path / "old"), "--output", str(tmp_path / "old/new")])
    assert inside.exit_code != 0
    assert not (tmp_path / "old/new").exists()
    conf = tmp_path / "broker.conf"
    conf.write_text("timerRocksDBEnable=true\n")
    assert "timerRocksDBEnable is on" in refused(
        tmp_path, "--broker-conf", str(conf), "-o", "brokerVersion=5.5.0", code=2
    )
    compacted = tmp_path / "old/compaction/compactionLog/T/0/00000000000000000000"
    compacted.parent.mkdir(parents=True)
    compacted.write_bytes(b"x")
    assert "compacted topics" in refused(tmp_path, code=2)
    shutil.rmtree(tmp_path / "old/compaction")
    segment = min((tmp_path / "old/dledger-n0/data").iterdir())
    put_bytes(segment, 48 + 88, b"\xff")  # the first byte of a body
    assert "CRC" in refused(tmp_path, code=1)


def test_another_store(tmp_path: Path) -> None:
    """A conversion of another log is begun again; a complete one is not replaced."""
    old_store(tmp_path, 8)
    convert(tmp_path)
    with CommitLogWriter(tmp_path / "more", SIZE, dledger=True) as writer:
        Sender(9).send(writer)
    shutil.rmtree(tmp_path / "old/dledger-n0/data")
    shutil.move(tmp_path / "more", tmp_path / "old/dledger-n0/data")
    before = files_below(tmp_path / "new")
    done = invoke(["convert", "--store", str(tmp_path / "old"), "--output", str(tmp_path / "new")])
    assert done.exit_code == 1
    assert files_below(tmp_path / "new") == before


def test_a_plain_store(tmp_path: Path) -> None:
    """There is nothing to convert."""
    with CommitLogWriter(tmp_path / "old/commitlog", SIZE) as writer:
        writer.append(Message())
    assert "no DLedger commitlog" in refused(tmp_path, code=1)
