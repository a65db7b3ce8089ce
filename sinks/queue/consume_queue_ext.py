"""One queue's ConsumeQueueExt files: what consumers' filters need of a message, without reading the message."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.file_system import data_extents
from reput.sinks.files.store_path import consume_queue_ext_directory
from reput.sinks.formats.consume_queue import (
    END_BLANK_DATA_LENGTH,
    CqExtUnit,
    append_units,
    decorate,
    is_ext_addr,
    skip_units,
    un_decorate,
)
from reput.source.arrays import Int64s
from reput.source.errors import OptionError, SinkError
from reput.source.log.mapped_file_queue import open_for_reading
from reput.source.log.store_layout import file_name, is_file_name

MAPPED_FILE_SIZE_CONSUME_QUEUE_EXT = 48 * 1024 * 1024
_SETTING = "mappedFileSizeConsumeQueueExt"


def files_before(ends: Mapping[int, int], min_address: int) -> list[int]:
    """The first bytes of files that end before `min_address`; empty if that is not an address.

    `ends` has the end of each file by its begin, both in bytes of the queue. A file that ends exactly at the address is
    not among them, as with the broker (``ConsumeQueueExt#truncateByMinAddress``).
    """
    if not is_ext_addr(min_address):
        return []
    offset = un_decorate(min_address)
    return [file for file, end in ends.items() if end < offset]


class ConsumeQueueExt:
    """The units of one queue, below ``consumequeue_ext/<topic>/<queueId>``; call `recover` first.

    Units are durable after ``DurableFiles.sync``.

    Parameters
    ----------
    topic
        As in the record; a name that cannot be a directory is refused.
    mapped_file_size
        ``mappedFileSizeConsumeQueueExt`` in bytes: the size of every file from its creation on.

    Raises
    ------
    OptionError
        A file is too small even for its end mark.
    SinkError
        The topic or the queue id cannot be a directory.
    """

    def __init__(self, files: DurableFiles, topic: bytes, queue_id: int, mapped_file_size: int) -> None:
        if mapped_file_size < END_BLANK_DATA_LENGTH:
            raise OptionError(f"{_SETTING} is {mapped_file_size}; it is at least {END_BLANK_DATA_LENGTH} bytes")
        self._durable = files
        self._directory = consume_queue_ext_directory(topic, queue_id)
        self._file_size = mapped_file_size
        self._files: list[int] = []  # where each file begins
        self._end = 0

    @property
    def min_address(self) -> int:
        """The address of the first file's first byte; without files, that of byte 0."""
        return decorate(self._files[0] if self._files else 0)

    @property
    def has_older_files(self) -> bool:
        """Whether there are files before the last one."""
        return len(self._files) > 1

    @property
    def max_address(self) -> int:
        """The address after the last byte written; without files, that of byte 0."""
        return decorate(self._end)

    def put(self, tags_codes: Int64s, store_timestamps: Int64s, bit_maps: Sequence[bytes | None]) -> Int64s:
        """Append a unit for each record, in log order (``ConsumeQueueExt#put``).

        The broker does so for every record of the queue that is dispatched, before it knows whether the record is a
        repeated one.

        Parameters
        ----------
        tags_codes, store_timestamps
            int64[n], milliseconds.
        bit_maps
            One for each record; None for a topic without filters.

        Returns
        -------
        int64[n], the values that replace the tags codes in the ConsumeQueue entries where ``is_ext_addr`` holds.
        Elsewhere the unit could not be put, and the entry keeps its tags code.
        """
        append = append_units(tags_codes, store_timestamps, bit_maps, self._end, self._file_size)
        for write in append.writes:
            file = write.offset - write.offset % self._file_size
            if not self._files or file > self._files[-1]:
                self._durable.create(*self._parts(file), size=self._file_size)
                self._files.append(file)
            self._durable.write(*self._parts(file), offset=write.offset - file, data=write.data)
        self._end = append.end
        return append.addresses

    def get(self, address: int) -> CqExtUnit | None:
        """The unit at an address (``ConsumeQueueExt#get``).

        None if the address is a tags code, its file is gone, or no unit was written there. If the address is inside a
        unit, the bytes there are read as a unit.

        Raises
        ------
        SinkError
            The unit runs over the end of what was written.
        """
        if not is_ext_addr(address):
            return None
        offset = un_decorate(address)
        file = offset - offset % self._file_size
        if file not in self._files:
            # Like the broker, use the first existing file if the first one is lost.
            if offset != 0 or not self._files:
                return None
            file = self._files[0]
        at = offset % self._file_size
        written = self._written(file)
        if at >= written:
            return None
        with open_for_reading(str(self._path(file))) as descriptor:
            data = os.pread(descriptor, min(written - at, 2**16), at)
        try:
            return CqExtUnit.read(data)
        except ValueError:
            path = self._path(file)
            raise SinkError(
                f"{path}: no unit at byte {at}: it runs over the {written} bytes written", file=path
            ) from None

    def recover(self) -> None:
        """Find the files, and the end of the last file's units (``ConsumeQueueExt#load`` and ``#recover``).

        Earlier files are not read: wherever their units end, the broker continues in the next file.

        Raises
        ------
        SinkError
            A file's size is not that of the setting, or the last file's units run over its end.
        """
        self._files, self._end = self._list(), 0
        # A crash may leave an empty file, which has no unit.
        while self._files and self._path(self._files[-1]).stat().st_size == 0:
            self._durable.remove(*self._parts(self._files.pop()))
        if self._files:
            file = self._files[-1]
            end = skip_units(np.frombuffer(self._data(file, 0), np.uint8), self._file_size)
            if end < 0:
                raise SinkError(
                    f"{self._path(file)}: the unit at byte {-1 - end} runs over the file's end",
                    advice="remove the queue's directories below consumequeue_ext/ and consumequeue/ to derive both "
                    "from the log again",
                    file=self._path(file),
                )
            self._end = file + end

    def truncate_by_max_address(self, max_address: int) -> None:
        """Drop every unit after the one at `max_address` (``ConsumeQueueExt#truncateByMaxAddress``).

        This does nothing if `max_address` is not an address or has no unit. The broker leaves the bytes of dropped
        units; here they are zeroed, because nothing else would mark the end for the next recovery.
        """
        unit = self.get(max_address)
        if unit is not None:
            self.truncate_dirty_files(un_decorate(max_address) + unit.size)

    def truncate_dirty_files(self, offset: int) -> None:
        """Drop everything from byte `offset` of the queue on: later files, and the rest of the file with that byte."""
        while self._files and self._files[-1] > offset:
            self._durable.remove(*self._parts(self._files.pop()))
        if not self._files:
            self._end = 0
            return
        last = self._files[-1]
        self._end = min(self._end, offset, last + self._file_size)
        stale = self._data(last, self._end - last).rstrip(b"\0")
        if stale:
            self._durable.write(*self._parts(last), offset=self._end - last, data=bytes(len(stale)))

    def destroy(self) -> None:
        """Drop all files (``ConsumeQueueExt#destroy``)."""
        while self._files:
            self._durable.remove(*self._parts(self._files.pop()))
        self._end = 0

    def forget_file(self, file: int) -> None:
        """Forget the file that begins at byte `file` of the queue, which was removed."""
        self._files = [other for other in self._files if other != file]
        if not self._files:
            self._end = 0

    def _written(self, file: int) -> int:
        """The number of bytes of a file that count as written."""
        return self._end - file if file == self._files[-1] else self._file_size

    def _data(self, file: int, at: int) -> bytes:
        """The bytes of a file from `at`, without the hole at its end."""
        with open_for_reading(str(self._path(file))) as descriptor:
            end = max((end for _, end in data_extents(descriptor, at)), default=at)
            return os.pread(descriptor, end - at, at)

    def _list(self) -> list[int]:
        directory = self._durable.root.joinpath(*self._directory)
        if not directory.is_dir():
            return []
        found = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if not is_file_name(entry.name):
                    continue
                size, begin = entry.stat(follow_symlinks=False).st_size, int(entry.name)
                if size not in (0, self._file_size) or begin % self._file_size:
                    raise SinkError(
                        f"{entry.path} has {size} bytes and begins at {begin} where {_SETTING} is {self._file_size}",
                        advice="give the broker's setting (--broker-conf), or remove the queue's directories below "
                        "consumequeue_ext/ and consumequeue/ to derive both again",
                        file=entry.path,
                    )
                found.append(begin)
        return sorted(found)

    def _parts(self, file: int) -> tuple[str, str, str, str]:
        return (*self._directory, file_name(file))

    def _path(self, file: int) -> Path:
        return self._durable.root.joinpath(*self._parts(file))
