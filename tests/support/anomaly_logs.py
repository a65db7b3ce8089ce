"""Logs that hold what a broker never writes in one undisturbed life, one case a topic, and what each counts as.

Only cases whose effect on queues and index is the same at every replay; files of 3 queue entries (`SETTINGS`) make
small numbers cross a file's end.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from support.model import Settings
from support.record_writer import CommitLogWriter, Message, StoredRecord

SETTINGS = Settings(mapped_file_size_consume_queue=60, max_hash_slot_num=7, max_index_num=1000)
MAPPED_FILE_SIZE = 4096
T = 1_700_000_000_000
V6 = {"born_host": ("1050::5:600:300c:326b", 1234), "store_host": ("fe80::1", 10_911)}


@dataclass(frozen=True)
class Case:
    """Messages of one topic in log order, and how often each anomaly is met in them."""

    messages: Sequence[Message]
    counts: Mapping[str, int] = field(default_factory=dict)


def offsets(*queue_offsets: int, queue_id: int = 0) -> list[Message]:
    """One message with a key a queue offset."""
    return [
        Message(queue_id=queue_id, queue_offset=offset, properties={"KEYS": f"k{offset}", "TAGS": "t"})
        for offset in queue_offsets
    ]


def stored_at(*times: int) -> list[Message]:
    """One message with a key a store time."""
    return [
        Message(queue_offset=offset, properties={"KEYS": f"k{offset}"}, store_timestamp=time)
        for offset, time in enumerate(times)
    ]


def keyed(*keys: str, uniq_key: str = "U") -> list[Message]:
    """One message a KEYS property."""
    return [
        Message(queue_offset=offset, properties={"KEYS": text, "UNIQ_KEY": uniq_key})
        for offset, text in enumerate(keys)
    ]


CASES = {
    "Sound": Case(offsets(0, 1, 2, 3, 4)),
    "Gap": Case(offsets(0, 1, 5, 6, 7), {"gap": 3}),
    "GapThenBehind": Case(offsets(0, 5, 1, 2, 6), {"gap": 2, "repeated": 1}),
    "GapThatCloses": Case(offsets(0, 2, 2, 3), {"gap": 1}),
    "Repeated": Case(offsets(0, 1, 2, 1, 2, 3), {"repeated": 2}),
    "RepeatedBehindAFullFile": Case(offsets(0, 1, 2, 2), {"repeated": 1}),
    "DeletedAndMadeAgain": Case(offsets(0, 1, 2, 0, 1, 2, 3, 4, 5), {"queue_restart": 1, "repeated": 3}),
    "ManyZeros": Case(offsets(0, 0, 0, 0, 1), {"queue_restart": 3, "repeated": 1}),
    "BeginsInAFile": Case(offsets(7, 8, 9), {"pre_blank": 1}),
    "BeginsWithAFile": Case(offsets(6, 7, 8, 9), {"pre_blank": 1}),
    "BelowTheFirst": Case(offsets(7, 3, 6, 8), {"pre_blank": 1, "repeated": 2}),
    "BeginsLateThenZero": Case(offsets(4, 0, 5, 6), {"pre_blank": 1, "queue_restart": 1, "repeated": 1}),
    "BeginsFarOff": Case(offsets(2**40 + 1, 2**40 + 2), {"pre_blank": 1}),
    "NegativeOffset": Case(offsets(0, 1, -1, -(2**40), 2), {"repeated": 2}),
    "HugeOffset": Case(offsets(0, 2**40, 2**58, 1, 3), {"gap": 2, "repeated": 1}),
    # As a long, 20 times these is 0, -20, -2^63, and for the last one 2^62, which is a gap.
    "OffsetBeyondALong": Case(offsets(0, 2**62, 2**63 - 1, 2**61, 2**60, 2), {"repeated": 3, "gap": 1}),
    "LastQueueId": Case(offsets(0, 1, 2, queue_id=2**31 - 1)),
    "TimeBackwards": Case(stored_at(T + 9000, T, T + 5000, 1, T + 9000), {"store_time_backwards": 2}),
    "TimeJumps": Case(stored_at(T, T + 2**32 * 1000, T), {"store_time_backwards": 1}),
    "KeysTwice": Case(keyed("k k", "k", "U U k", "k")),
    "KeysAndBlanks": Case(keyed("  a   b c ", " ", "   ", "a\tb\nc", "  中文  é ")),
    "NoKeysAtAll": Case([Message(queue_offset=0), Message(queue_offset=1, properties=b"")]),
    "IPv6": Case([replace(message, **V6) for message in offsets(0, 1, 3)], {"gap": 1}),  # type: ignore[arg-type]
    "Transactions": Case(
        [
            replace(message, sys_flag=sys_flag)
            for message, sys_flag in zip(offsets(0, 0, 0, 1), (0x0, 0x4, 0xC, 0x8), strict=True)
        ]
    ),
}


def of_topic(topic: str) -> list[Message]:
    """The messages of one case."""
    return [replace(message, topic=topic) for message in CASES[topic].messages]


def all_cases() -> list[Message]:
    """The cases' messages in turn, one of each topic at a time."""
    rows = itertools.zip_longest(*(of_topic(topic) for topic in CASES))
    return [message for row in rows for message in row if message is not None]


def queue_counts() -> dict[str, int]:
    """The counts of all cases together, without store times: their order is that of the log as a whole."""
    counts = sum((Counter(case.counts) for case in CASES.values()), Counter[str]())
    return {name: count for name, count in counts.items() if name != "store_time_backwards"}


def write_all_cases(directory: Path) -> list[StoredRecord]:
    """All cases as one log, with a segment that is one blank only and whole old records behind a blank."""
    messages = all_cases()
    half = len(messages) // 2
    with CommitLogWriter(directory, MAPPED_FILE_SIZE) as writer:
        for message in messages[:half]:
            writer.append(message)
        first_blank = writer.max_offset
        with suppress(ValueError):
            writer.append(Message(body=bytes(MAPPED_FILE_SIZE)))
        for message in messages[half:]:
            writer.append(message)
        records = writer.records
    # The earlier contents of a broker's buffer: the first segment's records again, after the 8 bytes of the blank.
    first = (directory / f"{0:020d}").read_bytes()
    segment = directory / f"{first_blank - first_blank % MAPPED_FILE_SIZE:020d}"
    stale_at = first_blank % MAPPED_FILE_SIZE + 8
    with segment.open("r+b") as file:
        file.seek(stale_at)
        file.write(first[: MAPPED_FILE_SIZE - stale_at])
    return records
