"""A file of a ConsumeQueue or of a BatchConsumeQueue: what it is, and its entries."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

from reput.sinks.formats.batch_consume_queue import BATCH_ENTRY
from reput.sinks.formats.consume_queue import ENTRY, is_pre_blank, is_written
from reput.sinks.formats.consume_queue_ext import is_ext_addr
from reput.sinks.queue.queue_reader import Units, units_of_file
from reput.streaming.dump.entries import (
    BAD_ENTRY,
    EMPTY,
    ENTRY_VERDICT,
    PRE_BLANK,
    EntryRange,
    Parts,
    Rows,
    Run,
    file_fields,
    hexadecimal,
    merged,
)
from reput.streaming.dump.store_file import DumpedFile, FileKind
from reput.streaming.query.lines import time_text

_KINDS = (ENTRY_VERDICT, PRE_BLANK, EMPTY, BAD_ENTRY)


class QueueFileDump:
    """A file of a ConsumeQueue, or of a BatchConsumeQueue."""

    def __init__(self, file: DumpedFile, chosen: EntryRange) -> None:
        self._file, self._chosen = file, chosen
        self._is_batch = file.kind is FileKind.BATCH_CONSUME_QUEUE
        self._unit = BATCH_ENTRY if self._is_batch else ENTRY
        self._first = (file.file_from_offset or 0) // self._unit.itemsize

    @property
    def names(self) -> list[str]:
        """The columns of an entry; in a ConsumeQueue's file its number is its queue offset."""
        more = ["store_time", "store_timestamp", "msg_base_offset", "batch_size", "compacted_offset", "reserved"]
        names = ["entry" if self._is_batch else "queue_offset", "position", "verdict", "physical_offset", "msg_size"]
        return [*names, "tags_code", "tags_code_hex", *(more if self._is_batch else ["ext_address"])]

    def header(self) -> dict[str, Any]:
        """What the file is, how many entries of each verdict it has, and where their records lie."""
        counts: Counter[str] = Counter()
        low, high = None, None
        for _, units in units_of_file(self._file.path, self._unit):
            kinds = self._kinds(units)
            counts.update({name: int(np.count_nonzero(kinds == number)) for number, name in enumerate(_KINDS)})
            offsets = units["physical_offset"][kinds == 0]
            if len(offsets):
                low = int(offsets.min()) if low is None else min(low, int(offsets.min()))
                high = int(offsets.max()) if high is None else max(high, int(offsets.max()))
        return {
            **file_fields(self._file),
            "first_entry" if self._is_batch else "first_queue_offset": self._first,
            "entries": counts[ENTRY_VERDICT],
            "pre_blank": counts[PRE_BLANK],
            "empty": counts[EMPTY],
            "bad": counts[BAD_ENTRY],
            "bytes_behind_the_last_unit": self._file.size % self._unit.itemsize,
            "min_physical_offset": low,
            "max_physical_offset": high,
        }

    def parts(self) -> Parts:
        """The entries in order; pre-blank and empty ones as runs."""
        yield from merged(self._parts())

    def _kinds(self, units: Units) -> np.ndarray[Any, Any]:
        """The verdict on each unit, as its place in `_KINDS`."""
        is_empty = ~units.view(np.uint8).reshape(len(units), -1).any(axis=1)
        kinds = np.where(is_written(units), 0, np.where(is_empty, 2, 3))
        return kinds if self._is_batch else np.where(is_pre_blank(units), 1, kinds)

    def _parts(self) -> Parts:
        for number, units in units_of_file(self._file.path, self._unit):
            kinds = self._kinds(units)
            edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
            for begin, end in pairwise(edges):
                verdict, at = _KINDS[kinds[begin]], number + begin
                if verdict in (PRE_BLANK, EMPTY):
                    size = self._unit.itemsize
                    more = {self.names[0]: self._first + at}
                    yield Run(verdict, at * size, (end - begin) * size, end - begin, more)
                else:
                    numbers = np.arange(at, number + end)
                    chosen = self._chosen.rows(units[begin:end])
                    yield self._rows(verdict, numbers[chosen], units[begin:end][chosen])

    def _rows(self, verdict: str, numbers: np.ndarray[Any, Any], units: Units) -> Rows:
        codes = units["tags_code"].tolist()
        columns = [
            (numbers + self._first).tolist(),
            (numbers * self._unit.itemsize).tolist(),
            [verdict] * len(units),
            units["physical_offset"].tolist(),
            units["msg_size"].tolist(),
            codes,
            [hexadecimal(code) for code in codes],
        ]
        if self._is_batch:
            times = units["store_timestamp"].tolist()
            rest = [units[name].tolist() for name in self.names[-4:]]
            columns += [[time_text(time) for time in times], times, *rest]
        else:
            columns.append([code if is_ext_addr(code) else None for code in codes])
        return Rows(verdict, columns, units.nbytes)
