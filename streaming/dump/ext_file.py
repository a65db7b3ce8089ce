"""A file of a ConsumeQueueExt: its units, the mark behind the last one, and what is left of it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from reput.sinks.formats.consume_queue_ext import MAX_EXT_UNIT_SIZE, MIN_EXT_UNIT_SIZE, CqExtUnit, decorate
from reput.source.segments.mapped_file_queue import open_for_reading
from reput.streaming.dump.entries import (
    BAD_ENTRY,
    EMPTY,
    END_MARK,
    ENTRIES_AT_ONCE,
    ENTRY_VERDICT,
    Parts,
    Rows,
    Run,
    file_fields,
    hexadecimal,
)
from reput.streaming.dump.store_file import DumpedFile
from reput.streaming.query.lines import time_text

_READ_BYTES = 1 << 20


class ExtFileDump:
    """A file of a ConsumeQueueExt."""

    names: Final = (
        "position",
        "verdict",
        "address",
        "size",
        "tags_code",
        "tags_code_hex",
        "store_time",
        "store_timestamp",
        "filter_bit_map",
    )

    def __init__(self, file: DumpedFile) -> None:
        self._file = file

    def header(self) -> dict[str, Any]:
        """What the file is, and how many units it has."""
        counts: Counter[str] = Counter()
        size = 0
        for part in self.parts():
            if isinstance(part, Rows):
                counts[part.verdict] += len(part.columns[0])
                size += part.size
        return {
            **file_fields(self._file),
            "units": counts[ENTRY_VERDICT],
            "bad": counts[BAD_ENTRY],
            "bytes_of_units": size,
        }

    def parts(self) -> Parts:
        """The units in order, the mark behind the last one, and what is left of the file."""
        at, found, rows = 0, None, []
        with open_for_reading(str(self._file.path)) as descriptor:
            for at, found in self._units(descriptor):
                if found is None:
                    break
                rows.append((at, found))
                if len(rows) == ENTRIES_AT_ONCE:
                    yield from self._rows(rows)
                    rows = []
            yield from self._rows(rows)
            rest = os.pread(descriptor, MIN_EXT_UNIT_SIZE, at)
        if at < self._file.size:
            verdict = EMPTY if not rest.strip(b"\0") else END_MARK if rest[:2] == b"\xff\xff" else BAD_ENTRY
            yield Run(verdict, at, self._file.size - at)

    def _units(self, descriptor: int) -> Iterator[tuple[int, CqExtUnit | None]]:
        """Each unit with its byte in the file; None where no whole unit follows."""
        at, begin, data = 0, 0, b""
        while True:
            if at + MAX_EXT_UNIT_SIZE > begin + len(data):
                begin, data = at, os.pread(descriptor, _READ_BYTES, at)
            try:
                unit = CqExtUnit.read(data[at - begin : at - begin + MAX_EXT_UNIT_SIZE])
            except ValueError:
                unit = None
            if unit is not None and at + unit.size > self._file.size:
                unit = None
            yield at, unit
            if unit is None:
                return
            at += unit.size

    def _rows(self, units: Sequence[tuple[int, CqExtUnit]]) -> Iterator[Rows]:
        """The units by verdict: one whose size is not that of its parts is bad."""
        first = self._file.file_from_offset or 0
        rows = []
        for at, unit in units:
            maps = unit.filter_bit_map or b""
            verdict = ENTRY_VERDICT if unit.size == MIN_EXT_UNIT_SIZE + len(maps) else BAD_ENTRY
            code, time = unit.tags_code, unit.msg_store_time
            row = (at, verdict, decorate(first + at), unit.size, code, hexadecimal(code))
            rows.append((*row, time_text(time), time, maps.hex()))
        for verdict, same in groupby(rows, key=itemgetter(1)):
            columns = [list(column) for column in zip(*same, strict=True)]
            yield Rows(verdict, columns, sum(columns[3]))
