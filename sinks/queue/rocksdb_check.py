"""Queues in RocksDB compared with the log, range by range, and the values about the whole database.

The key of an entry is its message's own queue offset, and a later message with the same one replaces it. So each range
compares the entries of its own records, and no queue needs a walk. Entries that no record explains are found by their
count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.dispatch.piece import PieceEntries
from reput.sinks.findings import Difference, Findings
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.queue.queue_check import LogLimits
from reput.sinks.queue.queue_reader import Units
from reput.sinks.queue.rocksdb_queue import (
    ROCKSDB_ENTRY,
    Place,
    QueueKey,
    RocksDBQueues,
    queue_words,
    rocksdb_units,
)
from reput.source.arrays import Bools, Bytes, Int64s
from reput.source.printable import counted


@dataclass(frozen=True)
class ComparedRange:
    """The result of a range: each queue's first and last record, and the number of entries that are right."""

    first: dict[QueueKey, Place]
    last: dict[QueueKey, Place]
    right: Counter[QueueKey]
    findings: Findings


def compare_range(directory: Path, entries: PieceEntries) -> ComparedRange:
    """Compare the entries of the database in `directory` with those that a range's records make."""
    result = ComparedRange({}, {}, Counter(), Findings())
    with RocksDBQueues.open(directory) as queues:
        for incoming in entries.all_queues():
            dispatched = incoming.rows(0, int((_offsets(incoming) < queues.dispatched_to).sum()))
            if len(dispatched.entries):
                _compare(queues, dispatched, result)
    return result


def _offsets(incoming: QueueEntries) -> Int64s:
    offsets: Int64s = incoming.entries.view(ENTRY)[:, 0]["physical_offset"].astype(np.int64)
    return offsets


def _compare(queues: RocksDBQueues, incoming: QueueEntries, result: ComparedRange) -> None:
    queue, numbers = (incoming.topic, incoming.queue_id), incoming.queue_offsets
    expected, offsets = rocksdb_units(incoming), _offsets(incoming)
    result.first[queue] = Place(int(offsets[0]), int(numbers.min()))
    last = int(np.searchsorted(offsets, offsets[-1]))  # a message may name a queue twice
    result.last[queue] = Place(int(offsets[-1]), int(numbers[last]))
    there, found = _read(queues, queue, int(numbers.min()), int(numbers.max()) + 1)
    at = np.minimum(np.searchsorted(there, numbers), max(0, len(there) - 1))
    has_one: Bools = there[at] == numbers if len(there) else np.zeros(len(numbers), bool)
    same, later = np.zeros(len(numbers), bool), np.zeros(len(numbers), bool)
    if len(there):
        same = has_one & (_bytes(found)[at] == _bytes(expected)).all(axis=1)
        later = has_one & ~same & (found["physical_offset"][at] > expected["physical_offset"])
    end = queues.last[queue].queue_offset if queue in queues.last else -1
    result.right[queue] += len(np.unique(numbers[same & (numbers <= end)]))
    # If a broker dispatches several records at once, it keeps the entry of the earlier one.
    later |= ~same & np.isin(numbers, numbers[same])
    # A broker removes a topic's entries with it; the queue's last entry is compared with its last record.
    removed = ~has_one & (numbers > end)
    result.findings.note("repeated", int(later.sum()))
    result.findings.note("behind_the_last_entry", int(removed.sum()))
    for row in np.flatnonzero(~same & ~later & ~removed).tolist():
        kind, what = "entry_missing", "missing"
        if has_one[row]:
            kind, what = "entry_differs", "not as its record makes it"
        result.findings.differ(
            Difference(
                kind,
                f"{queue_words(queue)}, entry {numbers[row]}: {what}",
                queue_offset=int(numbers[row]),
                physical_offset=int(offsets[row]),
                expected=str(expected[row].item()),
                found=str(found[at[row]].item()) if has_one[row] else None,
            )
        )


def _read(queues: RocksDBQueues, queue: QueueKey, first: int, end: int) -> tuple[Int64s, Units]:
    chunks = [(np.empty(0, np.int64), np.empty(0, ROCKSDB_ENTRY)), *queues.entries(queue, first, end)]
    numbers, units = zip(*chunks, strict=True)
    return np.concatenate(numbers), np.concatenate(units).astype(ROCKSDB_ENTRY)  # joined in the order of this machine


def _bytes(units: Units) -> Bytes:
    """The values as they are in the database, uint8[n, 28]."""
    return np.ascontiguousarray(units).view(np.uint8).reshape(len(units), -1)


@dataclass
class RocksDBTotals:
    """The results of all ranges, joined in log order."""

    first: dict[QueueKey, Place] = field(default_factory=dict)
    last: dict[QueueKey, Place] = field(default_factory=dict)
    right: Counter[QueueKey] = field(default_factory=Counter)

    def take(self, ranges: Iterable[ComparedRange], findings: Findings) -> None:
        """Add the results of the next ranges."""
        for each in ranges:
            for queue, place in each.first.items():
                known = self.first.setdefault(queue, place)
                self.first[queue] = Place(known.physical_offset, min(known.queue_offset, place.queue_offset))
            self.last |= each.last
            self.right += each.right
            findings.add(each.findings)

    def check(self, directory: Path, log: LogLimits, log_end: int, findings: Findings) -> dict[str, int]:
        """Check the rest of the database, beside the entries of the log's records; return what was compared.

        `log_end` is where the log ends, a physical offset.
        """
        entries = 0
        with RocksDBQueues.open(directory) as queues:
            findings.note("not_dispatched_yet", max(0, log_end - queues.dispatched_to))
            if queues.dispatched_to > log_end:
                findings.note("bytes_behind_the_end", queues.dispatched_to - log_end)
            for queue in sorted({*queues.last, *self.last}):
                self._check_ends(queues, queue, log_end, findings)
                entries += self._check_count(queues, queue, log, log_end, findings)
            return {"queues": len(queues.last), "entries": entries}

    def _check_ends(self, queues: RocksDBQueues, queue: QueueKey, log_end: int, findings: Findings) -> None:
        found, due = queues.last.get(queue), self.last.get(queue)
        if due is not None and found != due and (found is None or found.physical_offset < log_end):
            text = f"{queue_words(queue)}: the last entry is not that of its last record"
            findings.differ(Difference("last_entry", text, expected=str(due), found=str(found)))
        first, begin = queues.first.get(queue), self.first.get(queue)
        if first is not None and begin is not None and first.queue_offset > begin.queue_offset:
            text = f"{queue_words(queue)}: the first entry is after that of its first record, so a broker hides some"
            findings.differ(Difference("first_entry", text, expected=str(begin), found=str(first)))

    def _check_count(
        self, queues: RocksDBQueues, queue: QueueKey, log: LogLimits, log_end: int, findings: Findings
    ) -> int:
        """Check that each entry up to the last one is explained; return their number."""
        count, unexplained = 0, -self.right[queue]
        for _, units in queues.entries(queue):
            offsets = units["physical_offset"].astype(np.int64)
            expired, behind = offsets < log.least, offsets >= min(log_end, queues.dispatched_to)
            lost = ~expired & ~behind & log.lacks(offsets)
            count += len(units)
            unexplained += int((~expired & ~behind & ~lost).sum())
            findings.note("expired_entries", int(expired.sum()))
            findings.note("entries_behind_the_end", int(behind.sum()))
            findings.note("entries_not_judged", int(lost.sum()))
        if unexplained > 0:
            entries = counted(unexplained, "entry leads", "entries lead")
            text = f"{queue_words(queue)}: {entries} to no record of the queue, or to one with another queue offset"
            findings.differ(Difference("entry_unexplained", text), unexplained)
        return count
