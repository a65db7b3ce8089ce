"""ConsumeQueueExt units as they are on disk, compared with those that the records make; nothing is written.

A unit's bitmap says which groups' expressions the message matched when it was dispatched, and no disk holds the
subscriptions of that moment. So a bitmap that differs from today's subscriptions is only a note; a different tags code
or store time is a difference.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reput.sinks.dispatch.entries import ExtUnits
from reput.sinks.files.directory import names_in
from reput.sinks.files.sparse_file import data_extents
from reput.sinks.files.store_path import consume_queue_ext_directory
from reput.sinks.formats.consume_queue_ext import CqExtUnit, is_ext_addr, skip_units, un_decorate
from reput.sinks.queue.queue_reader import Units
from reput.sinks.verify.findings import Difference, Findings
from reput.source.segments.mapped_file_name import file_name, is_file_name
from reput.source.segments.mapped_file_queue import open_for_reading

_READ_BYTES = 256 * 1024
_UNIT_BYTES_MAX = 2**16


@dataclass
class ExtFiles:
    """The units of one queue below `root`; `file_size` is ``mappedFileSizeConsumeQueueExt`` in bytes."""

    root: Path
    file_size: int
    topic: bytes
    queue_id: int
    _parts: tuple[str, str, str] = field(init=False)
    _at: int = 0
    _data: bytes = b""

    def __post_init__(self) -> None:
        self._parts = consume_queue_ext_directory(self.topic, self.queue_id)

    def unit(self, address: int) -> CqExtUnit | None:
        """The unit at an address; None without one."""
        offset = un_decorate(address)
        data = self._bytes(offset)
        try:
            return CqExtUnit.read(data)
        except ValueError:
            return None

    def check_files(self, findings: Findings) -> None:
        """Check each file's name and size, and that its last unit does not run over its end."""
        directory = self.root.joinpath(*self._parts)
        for name in sorted(names_in(directory)):
            path, shown = directory / name, "/".join((*self._parts, name))
            size = path.stat().st_size
            if not is_file_name(name) or size != self.file_size or int(name) % self.file_size:
                text = f"no file of mappedFileSizeConsumeQueueExt={self.file_size}: its name or its {size} bytes say so"
                findings.differ(Difference("ext_file", text, shown))
                continue
            with open_for_reading(str(path)) as descriptor:
                end = max((end for _, end in data_extents(descriptor)), default=0)
                data = np.frombuffer(os.pread(descriptor, end, 0), np.uint8)
            units_end = skip_units(data, self.file_size)
            if units_end < 0:
                text = "a unit runs over the file's end"
                findings.differ(Difference("ext_file", text, shown, byte_offset=-1 - units_end))

    def _bytes(self, offset: int) -> bytes:
        """The bytes from `offset` on: as many as a unit may have, at most to the end of the file."""
        left = self.file_size - offset % self.file_size
        wanted = min(_UNIT_BYTES_MAX, left)
        if not self._at <= offset <= offset + wanted <= self._at + len(self._data):
            self._at, self._data = offset, b""
            path = self.root.joinpath(*self._parts, file_name(offset - offset % self.file_size))
            try:
                with open_for_reading(str(path)) as descriptor:
                    self._data = os.pread(descriptor, min(_READ_BYTES, left), offset % self.file_size)
            except FileNotFoundError:
                return b""
        begin = offset - self._at
        return self._data[begin : begin + wanted]


def codes_agree(
    found: Units, expected: Units, ext: ExtUnits | None, files: ExtFiles | None
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether each unit's third field is its record's tags code, or the address of the record's ext unit."""
    same: np.ndarray[tuple[int], np.dtype[np.bool_]] = found["tags_code"] == expected["tags_code"]
    if files is None or ext is None:
        return same
    for row in np.flatnonzero(~same & ext.is_put).tolist():
        address = int(found["tags_code"][row])
        unit = files.unit(address) if is_ext_addr(address) else None
        same[row] = unit is not None and not ext_problem(unit, int(expected["tags_code"][row]), ext, row)
    return same


def ext_problem(unit: CqExtUnit, tags_code: int, ext: ExtUnits, row: int) -> str:
    """What is wrong with the unit of an entry; empty if nothing is."""
    store_time, maps = int(ext.store_timestamps[row]), unit.filter_bit_map or b""
    if unit.tags_code != tags_code:
        return f"tags code {tags_code} expected, {unit.tags_code} found"
    if unit.msg_store_time != store_time:
        return f"store time {store_time} expected, {unit.msg_store_time} found"
    if unit.size != 20 + len(maps):
        return f"a size of {20 + len(maps)} bytes expected, {unit.size} found"
    return ""


def note_ext_units(found: Units, ext: ExtUnits, files: ExtFiles, findings: Findings) -> None:
    """Count, among entries that agree, those without a unit and those whose bitmap differs from today's."""
    for row in np.flatnonzero(ext.is_put).tolist():
        address = int(found["tags_code"][row])
        unit = files.unit(address) if is_ext_addr(address) else None
        if unit is None:
            findings.note("entry_without_ext_unit")
        elif (unit.filter_bit_map or b"") != (ext.bit_maps[row] or b""):
            findings.note("bit_map_of_other_subscriptions")
