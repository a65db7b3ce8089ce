"""A log of small segments, written again as a whole: what a broker does that cut its log and continued."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.record_writer import CommitLogWriter, Message

SIZE = 2048


def messages(count: int, first: int = 0, body: int = 30) -> list[Message]:
    """Make messages of two topics, each with a key of its own number."""
    return [
        Message("AB"[number % 2], body=b"x" * body, properties={"KEYS": f"k{number}"}, store_timestamp=10**12 + number)
        for number in range(first, first + count)
    ]


def write(store: Path, content: list[Message]) -> list[int]:
    """Write the log of a store again; returns where each record begins, and where the last ends."""
    shutil.rmtree(store / "commitlog", ignore_errors=True)
    with CommitLogWriter(store / "commitlog", SIZE, preallocate=True) as writer:
        for message in content:
            writer.append(message)
    return [*(record.physical_offset for record in writer.records), writer.max_offset]
