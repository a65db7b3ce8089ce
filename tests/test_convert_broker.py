"""`reput convert` on the stores of real DLedger brokers: a plain broker serves every message, and lets the others live.

A broker of one node in DLedger mode gets plain messages and batches, transactions that are committed, rolled back and
left open, delayed messages, and messages that a consumer refuses. Its records are compared with those of the new log by
a parser of the tests. Real brokers without DLedger then start on the new store: they serve every message and find every
key, deliver what waits, and ask about the half messages, which a client commits. The short form is a kept store; all::

    python -m pytest tests/test_convert_broker.py -m "slow or not slow"
"""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import javaproperties
import pytest
from broker import kinds, remoting
from broker.boot_check import boot_check
from broker.java_process import free_port
from broker.kinds import Client
from broker.log_contents import Record, log_directory, parse, read_records
from broker.random_store import RandomStore, random_conf, random_store
from broker.rocketmq import Broker, NameServer, RocketMQ
from broker.server import write_conf
from support.broker_stores import unpack
from support.command_line import invoke
from support.proof_counts import Proof
from support.sink_runner import files_below

pytestmark = pytest.mark.broker

GetRelease = Callable[[str], RocketMQ]
MESSAGES = 400
TIMERS, POPPED = 7, 24
OPEN, LONE = 5, 3
LONG = kinds.Kind("delays", kinds.delay, {"messageDelayLevel": "1s 20s 1h"})
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
# A broker of 5.x that is stopped looks at half messages once more, and puts those back that it would ask about.
EXPECTED = re.compile(r"the broker changed (?:consumequeue/RMQ_SYS_TRANS_HALF_TOPIC/0|index)/[0-9]+$")
ID_NAME = b"ORIGIN_MESSAGE_ID\x01"
COMMITTED = 0x8
PHYSICAL_OFFSET_AT, PREPARED_AT, HOST_V6_EXTRA = 28, 76, 12


def raw_records(store: Path, conf: Mapping[str, str]) -> Iterator[tuple[Record, bytes]]:
    """Every record of a log with its bytes."""
    segments = {int(path.name): path.read_bytes() for path in log_directory(store, conf).iterdir()}
    size = len(next(iter(segments.values())))
    for record in read_records(store, conf):
        begin = record.offset % size
        yield record, segments[record.offset - begin][begin : begin + record.size]


def without_places(store: Path, conf: Mapping[str, str]) -> tuple[list[bytes], int, int]:
    """The records of a log with the numbers of messages in place of physical offsets.

    Also returns how many named a half message, and how many a message by its id.
    """
    records = list(raw_records(store, conf))
    numbers = {record.offset: number for number, (record, _) in enumerate(records)}
    told, prepared_count, id_count = [], 0, 0
    for number, (record, data) in enumerate(records):
        hosts = HOST_V6_EXTRA * (bool(record.sys_flag & 0x10) + bool(record.sys_flag & 0x20))
        copy = bytearray(data)
        struct.pack_into(">q", copy, PHYSICAL_OFFSET_AT, number)
        (prepared,) = struct.unpack_from(">q", copy, PREPARED_AT + hosts)
        if prepared:
            struct.pack_into(">q", copy, PREPARED_AT + hosts, numbers[prepared])
            assert records[numbers[prepared]][0].topic == HALF_TOPIC
            prepared_count += 1
        text = record.properties.get("ORIGIN_MESSAGE_ID")
        if text is not None:
            at = copy.index(ID_NAME) + len(ID_NAME) + len(text) - 16
            offset = numbers.get(int(text[-16:], 16))
            if offset is not None:
                copy[at : at + 16] = b"%016X" % offset
                id_count += 1
        told.append(bytes(copy))
    return told, prepared_count, id_count


class NewStore:
    """The home of a store that `reput convert` made of `old`, checked record by record."""

    def __init__(self, old: Path, broker_conf: Path, home: Path) -> None:
        conf = dict(javaproperties.loads(broker_conf.read_text()))
        before = files_below(old)
        done = invoke(
            [
                "convert",
                "--store",
                str(old),
                "--broker-conf",
                str(broker_conf),
                "--output",
                str(home / "store"),
                "--json",
            ]
        )
        assert done.exit_code == 0, done.output
        result = json.loads(done.stdout)
        self.messages, self.uncommitted = result["messages"], result["uncommitted"]
        self.last_entry = result["last_term"], result["last_index"]
        assert files_below(old) == before
        self.home = home
        self.conf = {
            **{name: value for name, value in conf.items() if not name.startswith(("enableDLeger", "dLeger"))},
            "storePathRootDir": str(home / "store"),
            "storePathCommitLog": str(home / "store" / "commitlog"),
        }
        write_conf(home / "broker.conf", self.conf)
        expected, self.prepared, self.ids = without_places(old, conf)
        assert without_places(home / "store", self.conf)[0] == expected
        assert len(expected) == self.messages
        assert (home / "store" / "config" / "consumerOffset.json").exists()

    def verify(self) -> None:
        done = invoke(["verify", "--store", str(self.home / "store"), "--broker-conf", str(self.home / "broker.conf")])
        assert done.exit_code == 0, done.output

    def check_served(self, rocketmq: RocketMQ, work: Path, proof: Proof) -> None:
        """A broker takes log, queues and index as its own, and is asked for everything."""
        report = boot_check(rocketmq, self.home, self.home / "store", work, queries_max=300)
        assert [problem for problem in report.problems if not EXPECTED.search(problem)] == [], str(report)
        assert report.warnings == []
        assert report.audit is not None
        assert 0 < report.audit.consumed.expected == report.audit.consumed.found
        assert 0 < report.audit.keys.expected == report.audit.keys.found
        proof("G13 messages of converted DLedger stores that a broker serves", report.audit.consumed.found)


def check_alive(rocketmq: RocketMQ, new: NewStore, unknown: int, work: Path) -> None:
    """Messages that wait are delivered, and half messages that were left open are committed when a client is asked."""
    before, expected = without_places(new.home / "store", new.conf)[0], open_halves(new)
    assert len(expected) == unknown
    conf = {**new.conf, "transactionTimeOut": 1000, "transactionCheckInterval": 2000}
    late = waiting(new, "SCHEDULE_TOPIC_XXXX", "2")
    with rocketmq.name_server(work / "namesrv") as name_server:
        conf["namesrvAddr"] = name_server.address
        with rocketmq.broker(work / "broker", name_server, conf) as broker:
            done = rocketmq.workload(
                "transactions",
                name_server,
                topics="TxLater:1",
                commit=1,
                rollback=0,
                unknown=0,
                resolve="commit",
                waitSeconds=30,
            )
            assert done["failed"] == 0
            broker.stop()
    assert done["checked"] >= unknown > 0
    assert without_places(new.home / "store", new.conf)[0][: len(before)] == before
    records = list(read_records(new.home / "store", new.conf))
    # A broker may ask twice, and then there are two.
    assert expected <= {record.uniq_key for record in records if record.sys_flag & 0xC == COMMITTED}
    delivered = {record.uniq_key for record in records if record.topic.startswith("Late")}
    assert late
    assert late <= delivered


def open_halves(new: NewStore) -> set[str | None]:
    """The unique keys of transactions that have no end yet."""
    records = list(read_records(new.home / "store", new.conf))
    ended = {int(number) for body in op_bodies(new) for number in body.split(",") if number}
    halves = {record.queue_offset: record.uniq_key for record in records if record.topic == HALF_TOPIC}
    return {key for queue_offset, key in halves.items() if queue_offset not in ended}


def op_bodies(new: NewStore) -> Iterator[str]:
    """Yield the bodies of op messages: the queue offsets of half messages that were committed or rolled back."""
    for record, data in raw_records(new.home / "store", new.conf):
        if record.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC":
            hosts = HOST_V6_EXTRA * (bool(record.sys_flag & 0x10) + bool(record.sys_flag & 0x20))
            (size,) = struct.unpack_from(">i", data, PREPARED_AT + hosts + 8)
            yield data[PREPARED_AT + hosts + 12 :][:size].decode()


def waiting(new: NewStore, topic: str, level: str) -> set[str | None]:
    """The messages of a level that the broker had not delivered."""
    records = list(read_records(new.home / "store", new.conf))
    delivered = {record.uniq_key for record in records if record.topic.startswith("Late")}
    return {
        record.uniq_key
        for record in records
        if record.topic == topic and record.properties["DELAY"] == level and record.uniq_key not in delivered
    }


def make(rocketmq: RocketMQ, seed: int, work: Path) -> RandomStore:
    """A DLedger store with every kind of message; delayed ones come last, so that some still wait."""
    all_kinds = (kinds.DLEDGER, kinds.TRANSACTIONS, kinds.RETRY, LONG)
    return random_store(rocketmq, seed, all_kinds, MESSAGES, work)


CASES = [
    pytest.param("4.9.3", "5.5.0", 1, marks=pytest.mark.slow),
    pytest.param("4.9.3", "4.9.3", 2, marks=pytest.mark.slow),
    pytest.param("5.5.0", "5.5.0", 3, marks=pytest.mark.slow),
    pytest.param("4.9.3", "5.5.0", 4, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("wrote", "reads", "seed"), CASES)
def test_a_broker_without_dledger(
    wrote: str, reads: str, seed: int, release: GetRelease, tmp_path: Path, proof: Proof
) -> None:
    left = make(release(wrote), seed, tmp_path / "old")
    new = NewStore(left.store, left.broker_conf, tmp_path / "new")
    assert new.prepared > 0
    assert new.ids > 0
    new.verify()
    new.check_served(release(reads), tmp_path / "boot", proof)
    unknown = max(1, MESSAGES // 4 // 3)
    check_alive(release(reads), new, unknown, tmp_path / "alive")
    proof("G13 DLedger stores that were converted", 1)


@pytest.mark.slow
def test_a_log_at_another_place(release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """DLedger's segments are where ``storePathDLedgerCommitLog`` says, its checkpoint is in the store."""
    entries = tmp_path / "entries"
    kind = replace(kinds.DLEDGER, conf={**kinds.DLEDGER.conf, "storePathDLedgerCommitLog": str(entries)})
    left = random_store(release("5.5.0"), 5, (kind,), MESSAGES, tmp_path / "old")
    assert list(entries.iterdir())
    new = NewStore(left.store, left.broker_conf, tmp_path / "new")
    new.verify()
    new.check_served(release("5.5.0"), tmp_path / "boot", proof)


@pytest.mark.slow
def test_timers(release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """Messages for a time, which wait in the wheel of a DLedger broker, are delivered by one without DLedger."""
    rocketmq = release("5.5.0")
    conf = {
        **kinds.DLEDGER.conf,
        "dLegerPeers": f"n0-127.0.0.1:{free_port()}",
        "mappedFileSizeTimerLog": 1 << 20,
        "mappedFileSizeCommitLog": 1 << 16,
        "mappedFileSizeConsumeQueue": 6000,
        "maxHashSlotNum": 100,
        "maxIndexNum": 4000,
    }
    soon, much_later = (round(time.time() * 1000) + delay_ms for delay_ms in (70_000, 3_600_000))
    with rocketmq.name_server(tmp_path / "namesrv") as name_server:
        with rocketmq.broker(tmp_path / "broker", name_server, conf) as broker:
            for number in range(TIMERS):
                remoting.send_message(
                    broker.port, "Timed", 0, b"soon", TIMER_DELIVER_MS=soon, UNIQ_KEY=f"soon-{number}"
                )
                remoting.send_message(
                    broker.port, "Timed", 0, b"not yet", TIMER_DELIVER_MS=much_later, UNIQ_KEY="later"
                )
            time.sleep(5)  # until they are in the wheel
            broker.stop()
        assert time.time() * 1000 < soon - 10_000, "the machine is too slow: the messages may be delivered already"
        new = NewStore(broker.store, broker.home / "server.conf", tmp_path / "new")
        units = [data for path in (new.home / "store/timerlog").iterdir() if (data := path.read_bytes()).strip(b"\0")]
        assert units, "no message was in the wheel"
        again = {**new.conf, "namesrvAddr": name_server.address}
        with rocketmq.broker(tmp_path / "again", name_server, again) as plain:
            until = time.monotonic() + 120
            while len(delivered := timed(new)) < TIMERS and time.monotonic() < until:
                time.sleep(1)
            plain.stop()
    assert sorted(delivered) == sorted(f"soon-{number}" for number in range(TIMERS))
    proof("G13 timers of a DLedger store that fired in a plain one", TIMERS)


class Group:
    """Three brokers of one DLedger group, below `work`."""

    def __init__(self, rocketmq: RocketMQ, name_server: NameServer, work: Path) -> None:
        pick = random.Random(6)
        self.work, self._client = work, Client(rocketmq, name_server, work, "", pick)
        peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(3))
        conf = {
            **random_conf(pick, (kinds.DLEDGER, LONG)),
            "dLegerPeers": peers,
            "transactionCheckInterval": 3_600_000,
            # So late that some still wait when the last node has stopped.
            "messageDelayLevel": "1s 45s 1h",
        }
        self.nodes = [
            rocketmq.broker(work / name, name_server, {**conf, "dLegerSelfId": name}) for name in ("n0", "n1", "n2")
        ]

    def leader(self) -> Broker:
        """The node that leads, as soon as there is one."""
        until = time.monotonic() + 120
        while True:
            for node in self.nodes:
                if node.running and remoting.is_master(self._client.name_server.port, node.address):
                    return node
            assert time.monotonic() < until, "no node leads"
            time.sleep(0.5)

    def send(self, name: str) -> None:
        """Have the leader, once there is one, acknowledge messages of every kind; delayed ones come last."""
        self.leader()
        client = replace(self._client, name=name)
        for kind, count in ((kinds.PLAIN, 200), (kinds.TRANSACTIONS, OPEN * 3), (LONG, 60)):
            kind.send(client, count)

    def wait_for_topic(self, topic: str) -> None:
        """Wait until each node knows a topic: a follower asks for topics every ten seconds."""
        until = time.monotonic() + 120
        for path in [node.store / "config" / "topics.json" for node in self.nodes]:
            while not path.exists() or f'"{topic}"' not in path.read_text():
                assert time.monotonic() < until, f"{path} does not get {topic}"
                time.sleep(0.5)

    def acknowledged(self) -> set[tuple[str, int, int, str]]:
        """Topic, queue, queue offset and unique key of what was acknowledged to plain producers."""
        lines = [line for path in self.work.glob("*-send.jsonl") for line in path.read_text().splitlines()]
        acks = map(json.loads, lines)
        return {(ack["topic"], ack["queue_id"], ack["queue_offset"], ack["uniq_key"]) for ack in acks}


def send_to_a_lone_leader(group: Group, leader: Broker, threads: ThreadPoolExecutor) -> None:
    """Messages that no other node gets, and that the leader never acknowledges, before all are killed."""

    def send(number: int) -> None:
        with pytest.raises((ConnectionError, TimeoutError)):
            remoting.send_message(leader.port, "Lone", 0, b"alone", UNIQ_KEY=f"lone-{number}")

    for node in group.nodes:
        if node is not leader:
            node.kill()
    list(threads.map(send, range(LONE)))
    leader.kill()


def check_node(new: NewStore, last: NewStore, lone: set[str]) -> None:
    """A node has nothing that the `last` leader lacks, but after what it knew to be committed."""
    here, there = (list(read_records(store.home / "store", store.conf)) for store in (new, last))
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(here, there, strict=False)))
    assert {record.uniq_key for record in here} >= lone
    assert lone.isdisjoint(record.uniq_key for record in there)
    assert new.messages - new.uncommitted <= same
    assert len(here) - same >= len(lone)
    # The page's rule: less than the last leader's entries, exactly where messages are missing.
    assert (new.last_entry == last.last_entry) == (here == there)


@pytest.mark.parametrize("version", ["4.9.3", "5.5.0"])
@pytest.mark.slow
def test_a_group_of_three(version: str, release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """The leader is killed with messages that only it has; another one leads, and the first one follows it."""
    rocketmq = release(version)
    with ExitStack() as cleanup:
        name_server = cleanup.enter_context(rocketmq.name_server(tmp_path / "namesrv"))
        group = Group(rocketmq, name_server, tmp_path / "old")
        for node in group.nodes:
            cleanup.callback(node.kill)
        threads = cleanup.enter_context(ThreadPoolExecutor(LONE))
        list(threads.map(Broker.start, group.nodes))
        first = group.leader()
        group.send("first")
        group.wait_for_topic("Latefirst")
        send_to_a_lone_leader(group, first, threads)
        list(threads.map(Broker.start, (node for node in group.nodes if node is not first)))
        group.send("second")
        shutil.copytree(first.store, tmp_path / "killed")
        first.start()
        group.send("third")
        leader = group.leader()
        for node in sorted(group.nodes, key=lambda node: node is leader):
            node.stop()
    stores = {node.home.name: node.store for node in group.nodes} | {"killed": tmp_path / "killed"}
    confs = {node.home.name: node.home / "server.conf" for node in (*group.nodes, first)}
    confs["killed"] = confs[first.home.name]
    made = {name: NewStore(store, confs[name], tmp_path / "new" / name) for name, store in stores.items()}
    last = max(made.values(), key=lambda new: new.last_entry)
    assert made["killed"].last_entry[0] < last.last_entry[0]
    for name, new in made.items():
        check_node(new, last, {f"lone-{number}" for number in range(LONE if name == "killed" else 0)})
    records = read_records(last.home / "store", last.conf)
    held = {(record.topic, record.queue_id, record.queue_offset, record.uniq_key) for record in records}
    assert len(acknowledged := group.acknowledged()) == 3 * 200
    assert acknowledged <= held
    last.verify()
    last.check_served(release("5.5.0"), tmp_path / "boot", proof)
    check_alive(release("5.5.0"), last, 3 * OPEN, tmp_path / "alive")
    proof("G13 DLedger stores that were converted", len(made))


def timed(new: NewStore) -> list[str | None]:
    """The unique keys of messages that were delivered at their time."""
    return [record.uniq_key for record in read_records(new.home / "store", new.conf) if record.topic == "Timed"]


def key_and_queue_offset(message: bytes) -> tuple[str | None, int]:
    """Return the unique key and the queue offset in the bytes of a stored message."""
    record = parse(int.from_bytes(message[PHYSICAL_OFFSET_AT:][:8], "big"), message)
    return record.uniq_key, record.queue_offset


def pop_and_acknowledge(broker: Broker, invisible_ms: int) -> tuple[set[str | None], set[str | None]]:
    """Have messages handed out, and acknowledge each second one; returns these, and the others."""
    messages, popped = remoting.pop(broker.port, "poppers", "Popped", 0, invisible_ms)
    pairs = [key_and_queue_offset(message) for message in messages]
    for _, queue_offset in pairs[::2]:
        remoting.acknowledge(broker.port, "poppers", "Popped", 0, popped, queue_offset)
    return {key for key, _ in pairs[::2]}, {key for key, _ in pairs[1::2]}


@pytest.mark.slow
def test_pop(release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """After the conversion a POP group gets its unacknowledged messages again, no acknowledged one, and all others."""
    rocketmq = release("5.5.0")
    conf = {**random_conf(random.Random(7), (kinds.DLEDGER,)), "mappedFileSizeTimerLog": 1 << 20}
    with rocketmq.name_server(tmp_path / "namesrv") as name_server:
        with rocketmq.broker(tmp_path / "broker", name_server, conf) as broker:
            remoting.make_group(broker.port, "poppers")
            for number in range(POPPED):
                remoting.send_message(broker.port, "Popped", 0, b"body", UNIQ_KEY=f"popped-{number}")
            # Some are shown again before the conversion, in the retry topic of the group, and some must be after it.
            acknowledged, shown_again = pop_and_acknowledge(broker, 3_000)
            more, in_flight = pop_and_acknowledge(broker, 60_000)
            acknowledged |= more
            until = time.monotonic() + 60
            while retried(broker.store, broker.home / "server.conf") < shown_again:
                assert time.monotonic() < until, "the broker does not show messages again"
                time.sleep(1)
            broker.stop()
        assert not in_flight & retried(broker.store, broker.home / "server.conf")
        new = NewStore(broker.store, broker.home / "server.conf", tmp_path / "new")
        got: Counter[str | None] = Counter()
        with rocketmq.broker(
            tmp_path / "again", name_server, {**new.conf, "namesrvAddr": name_server.address}
        ) as plain:
            wanted, until = {f"popped-{number}" for number in range(POPPED)} - acknowledged, time.monotonic() + 150
            # Those that were acknowledged would come with the others that were handed out at the same time.
            later = 8.0
            while time.monotonic() < until and later > 0:
                messages, _ = remoting.pop(plain.port, "poppers", "Popped", 0, 600_000)
                got.update(key_and_queue_offset(message)[0] for message in messages)
                time.sleep(0.5)
                later -= 0.5 if got.keys() >= wanted else 0
            plain.stop()
    assert (len(acknowledged), len(shown_again), len(in_flight)) == (8, 4, 4)
    assert got == Counter(wanted)
    proof("G13 messages of POP groups after a conversion", POPPED)


def retried(store: Path, broker_conf: Path) -> set[str | None]:
    """The unique keys of messages that the broker shows the group again."""
    records = read_records(store, javaproperties.loads(broker_conf.read_text()))
    return {record.uniq_key for record in records if record.topic.startswith("%RETRY%poppers")}


@pytest.mark.parametrize("version", [pytest.param("4.9.3", marks=pytest.mark.slow), "5.5.0"])
def test_a_kept_store(version: str, release: GetRelease, tmp_path: Path, proof: Proof) -> None:
    """The store of tests/data, whose segments and queues have several files."""
    old = unpack("v4-dledger", tmp_path / "old")
    new = NewStore(old / "store", old / "broker.conf", tmp_path / "new")
    new.verify()
    new.check_served(release(version), tmp_path / "boot", proof)
    shutil.rmtree(tmp_path / "boot")
