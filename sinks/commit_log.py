"""A plain commitlog as a broker writes it: records one after the other, in segments of one size.

If the next record does not fit, a segment ends with the blank (``CommitLog.DefaultAppendMessageCallback#doAppend``):
the number of bytes left, the blank's magic code, zeros. There is always room for it.
"""

from __future__ import annotations

import struct

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import RelativePath
from reput.source.errors import SinkError
from reput.source.log.store_layout import COMMIT_LOG, file_name
from reput.source.record.message_format import BLANK_MAGIC_CODE, BLANK_SIZE

_BLANK = struct.Struct(">ii")
_WRITTEN_AT_ONCE = 1 << 22

assert _BLANK.size == BLANK_SIZE


def segment_path(file_from_offset: int) -> RelativePath:
    """The path of a segment below the store's root."""
    return COMMIT_LOG, file_name(file_from_offset)


class CommitLogWriter:
    """Appends records to a log that ends at `end`, in segments of `mapped_file_size` bytes; `flush` before a sync.

    The same records from the same `end` give the same bytes, so this overwrites what a stopped writer left.
    """

    def __init__(self, files: DurableFiles, end: int, mapped_file_size: int) -> None:
        self._files = files
        self._size = mapped_file_size
        self._buffer = bytearray()
        self._segment: RelativePath | None = None
        #: The physical offset after the last appended record.
        self.end = end

    def place(self, size: int) -> int:
        """Return the physical offset of the next record of `size` bytes; end a segment that lacks room for it.

        Raises
        ------
        SinkError
            No segment has room for it.
        """
        if size + BLANK_SIZE > self._size:
            raise SinkError(f"a record of {size} bytes does not fit into a segment of {self._size} bytes")
        left = self._size - self.end % self._size
        if size + BLANK_SIZE > left:
            self._buffer += _BLANK.pack(left, BLANK_MAGIC_CODE)
            self.end += BLANK_SIZE
            self.flush()
            self.end += left - BLANK_SIZE
        return self.end

    def append(self, record: bytes | bytearray) -> None:
        """Append the record that was made for the offset that `place` returned."""
        self._buffer += record
        self.end += len(record)
        if len(self._buffer) >= _WRITTEN_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write everything that is still in memory."""
        if not self._buffer:
            return
        begin = self.end - len(self._buffer)
        path = segment_path(begin - begin % self._size)
        if path != self._segment:
            self._files.create(*path, size=self._size, keeps=True)
            self._segment = path
        self._files.write(*path, offset=begin % self._size, data=memoryview(self._buffer))
        self._buffer = bytearray()
