"""The bodies of messages as two columns of the table, for those who ask for them: as text, or as bytes."""

from __future__ import annotations

import pyarrow as pa

from reput.sinks.table.body_schema import BODY_SCHEMA
from reput.source.errors import CorruptRecordError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.record.message_body import decompress_body
from reput.source.record.message_format import COMPRESSED_FLAG

# What a row takes in memory beside its body.
_ROW_BYTES = 64


class BodyColumns:
    """The bodies of records, decompressed, until they are cleared; null for those of more than `bytes_max` bytes.

    A body that cannot be decompressed is null, too. A body of UTF-8 is in `body`, any other in `body_bytes`.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._texts: list[str | None] = []
        self._bytes: list[bytes | None] = []
        self.size_bytes = 0

    def add(self, columns: RecordColumns, room: int) -> int:
        """Add the bodies of the first records, until they take `room` bytes; returns how many, at least one of any.

        At most one body more than fits is decompressed: small bodies may hold much.
        """
        until = self.size_bytes + room
        data, spans = columns.data.data, columns.parts[:, [rk.BODY, rk.BODY_SIZE]].tolist()
        for count, ((start, size), sys_flag) in enumerate(zip(spans, columns.sys_flag.tolist(), strict=True)):
            if count and self.size_bytes >= until:
                return count
            self._add(bytes(data[start : start + size]), sys_flag)
        return len(columns)

    def _add(self, stored: bytes, sys_flag: int) -> None:
        plain = self._plain(stored, sys_flag) if sys_flag & COMPRESSED_FLAG else stored
        self.size_bytes += _ROW_BYTES
        text = other = None
        if plain is not None and len(plain) <= self._bytes_max:
            self.size_bytes += len(plain)
            try:
                text = plain.decode()
            except UnicodeDecodeError:
                other = plain
        self._texts.append(text)
        self._bytes.append(other)

    def _plain(self, stored: bytes, sys_flag: int) -> bytes | None:
        try:
            return decompress_body(stored, sys_flag, size_max=self._bytes_max)
        except CorruptRecordError:
            return None

    def arrays(self) -> list[pa.Array]:
        """The columns of `BODY_SCHEMA`."""
        columns = (self._texts, self._bytes)
        return [pa.array(values, kind) for values, kind in zip(columns, BODY_SCHEMA.types, strict=True)]

    def clear(self) -> None:
        """Forget all."""
        self._texts.clear()
        self._bytes.clear()
        self.size_bytes = 0
