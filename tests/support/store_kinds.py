"""Stores of the kinds that were once judged too well: doctor's predictions for them are compared with brokers' starts.

Each function makes one store in a new home. `store_damage` then damages it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from support.advice import execute_advice
from support.record_writer import Message, encode, write_store
from support.sink_runner import dispatch_store
from support.store_damage import FURTHER, LIGHT, write

from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config

Homes = Callable[[str], Path]
SMALL = {
    "mappedFileSizeCommitLog": 16_384,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}


def double_written(home: Path, homes: Homes, choose: random.Random) -> None:
    """Queues in files and in RocksDB; the broker reads the files."""
    copy(homes("v5-double-write-lite"), home)
    conf = home / "broker.conf"
    conf.write_text(conf.read_text().replace("combineCQPreferCQType=defaultRocksDB\n", ""))


def rocksdb_preferred(home: Path, homes: Homes, choose: random.Random) -> None:
    """The same, and the broker reads RocksDB."""
    copy(homes("v5-double-write-lite"), home)


def topic_remade(home: Path, homes: Homes, choose: random.Random) -> None:
    """A topic that was deleted and made again: a real broker's store, or a longer log whose later life has queues."""
    if choose.random() < 0.25:
        copy(homes("v5-topic-remade"), home)
        return
    messages, others = [], 0
    for length in [choose.randrange(5, 120) for _ in range(choose.choice([2, 2, 3]))]:
        for number in range(length):
            messages.append(_message("T", number))
            if choose.random() < 0.5:
                messages.append(_message("U", others))
                others += 1
    _write(home, messages, {}, has_queues=True)


def named_twice(home: Path, homes: Homes, choose: random.Random) -> None:
    """Messages that name one light queue twice, between others. The broker counts each name."""
    offset, messages = 0, []
    for number in range(choose.randrange(40, 300)):
        further = {}
        if choose.random() < 0.3:
            names = ["%LMQ%a", "%LMQ%a", *["%LMQ%b"] * choose.choice([0, 1])]
            further["INNER_MULTI_DISPATCH"] = ",".join(names)
            further["INNER_MULTI_QUEUE_OFFSET"] = ",".join([str(offset)] * len(names))
            offset += 2
        messages.append(_message("T", number, further))
    _write(home, messages, LIGHT, has_queues=True)


def dispatch_fails(home: Path, homes: Homes, choose: random.Random) -> None:
    """A whole record that a broker's dispatch may not get over, with queues up to the log's end, or without any."""
    topic, properties, sys_flag = FURTHER[choose.choice(list(FURTHER))]
    messages = [_message("T", number) for number in range(choose.randrange(40, 300))]
    odd = Message(topic=topic, properties=properties if properties is not None else {}, sys_flag=sys_flag)
    messages.insert(choose.randrange(len(messages)), odd)
    has_queues = choose.random() < 0.7
    _write(home, messages, choose.choice([LIGHT, {}]), has_queues=has_queues)


def made_under_a_tail(home: Path, homes: Homes, choose: random.Random) -> None:
    """Queues of the wrong kind: empty directories, or entries; half of the stores are then mended as doctor advises."""
    copy(homes("v5-batchcq"), home)
    store = home / "store"
    if choose.random() < 0.5:
        for queue_id in choose.sample(range(4), choose.choice([1, 4])):
            (store / "consumequeue" / "BatchQ" / str(queue_id)).mkdir(parents=True)
    else:
        for top in ("consumequeue", "batchconsumequeue"):
            shutil.rmtree(store / top)
        (store / "config").rename(home / "config")
        dispatch_store(load_config(store, broker_conf=home / "broker.conf"), home / "tail")
        (home / "config").rename(store / "config")
        (home / "tail" / "consumequeue").rename(store / "consumequeue")
        shutil.rmtree(home / "tail")
    if choose.random() < 0.5:
        execute_advice(home, "5.5.0")


KINDS: dict[str, Callable[[Path, Homes, random.Random], None]] = {
    "double written": double_written,
    "RocksDB preferred": rocksdb_preferred,
    "topic remade": topic_remade,
    "named twice": named_twice,
    "dispatch fails": dispatch_fails,
    "made under a tail": made_under_a_tail,
}
# 4.9.3 has neither a BatchConsumeQueue nor queues in RocksDB.
OF_BOTH_RELEASES = ("topic remade", "named twice", "dispatch fails")


def before_upgrade(home: Path, stored: Path, choose: random.Random) -> None:
    """Make a store of 4.9.3 whose log continues with records of 5.5.0, which dispatches them when it is started.

    `stored` is the home of the store; `home` is made.
    """
    copy(stored, home)
    store = home / "store"
    config = load_config(store, broker_conf=home / "broker.conf")
    log = LogReader(SourceOptions.parse(config.source_options()))
    end = log.settled_end(log.initial_offset())
    (segment,) = (file for file in log.queue().files if file.file_from_offset <= end - 1 < file.end)
    for number in range(choose.randrange(40, 400)):
        record = encode(_message("Upgraded", number, has_crc=choose.random() < 0.5), end)
        if end + len(record) + 8 > segment.end:
            break
        write(Path(segment.path), end - segment.file_from_offset, record)
        end += len(record)
    (store / "abort").touch()


def copy(home: Path, target: Path) -> Path:
    """Copy a home, with new modification times: a broker's retention must delete nothing."""
    shutil.copytree(home, target, copy_function=shutil.copyfile)
    return target


def _message(topic: str, number: int, further: Mapping[str, str] | None = None, *, has_crc: bool = False) -> Message:
    properties = {"KEYS": f"k{number}", "TAGS": "t", **(further or {})}
    return Message(
        topic=topic,
        queue_offset=number,
        properties=properties,
        store_timestamp=1_800_000_000_000 + number,
        append_property_crc=has_crc,
    )


def _write(home: Path, messages: Sequence[Message], conf: Mapping[str, str], *, has_queues: bool) -> None:
    """Write a log of messages, its broker.conf, and queues and index as reput makes them."""
    home.mkdir()
    write_store(home / "store", messages, SMALL["mappedFileSizeCommitLog"])
    (home / "store" / "broker.conf").unlink()
    (home / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in {**SMALL, **conf}.items()))
    if has_queues:
        dispatch_store(load_config(home / "store", broker_conf=home / "broker.conf"), home / "made")
        for name in ("consumequeue", "index", "checkpoint"):
            (home / "made" / name).rename(home / "store" / name)
        shutil.rmtree(home / "made")
