"""The message at one offset of the log, and offset message ids."""

from __future__ import annotations

import ipaddress
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reput.source.errors import OptionError
from reput.source.record import message_format as fmt
from reput.source.record.message_decoder import Message, Verdict, decode_message
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels
from reput.source.segments.mapped_file_queue import MappedFile, MappedFileQueue, open_for_reading

# Most records end within it, so that one read is enough.
_HEAD_BYTES = 4096
_MSG_ID = re.compile(r"(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{56})")
_PORT_AND_OFFSET = struct.Struct(">iq")
_OWN_OFFSET = struct.Struct(">q")


@dataclass(frozen=True)
class MessageId:
    """An offset message id: the broker's packed address (4 or 16 bytes), its port, the place in its log."""

    address: bytes
    port: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Decode 32 (IPv4) or 56 (IPv6) hexadecimal digits (``MessageDecoder#decodeMessageId``).

        Raises
        ------
        OptionError
            The text is not of that form.
        """
        if not _MSG_ID.fullmatch(text):
            raise OptionError(
                f"{text!r} is no offset message id: 32 hexadecimal digits wanted, or 56 of a broker on IPv6",
                advice="a client's unique key is asked for with --topic and --unique-key",
            )
        data = bytes.fromhex(text)
        port, offset = _PORT_AND_OFFSET.unpack(data[-_PORT_AND_OFFSET.size :])
        return cls(data[: -_PORT_AND_OFFSET.size], port, offset)

    @classmethod
    def of(cls, message: Message) -> MessageId:
        """The id that the broker gave this message (``MessageDecoder#createMessageId``)."""
        address, port = message.store_host
        return cls(address, port, message.physical_offset)

    def __str__(self) -> str:
        return (self.address + _PORT_AND_OFFSET.pack(self.port, self.offset)).hex().upper()


def host_text(host: tuple[bytes, int]) -> str:
    """``address:port`` of a packed address and a port, an IPv6 address in brackets."""
    address, port = ipaddress.ip_address(host[0]), host[1]
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


@dataclass(frozen=True)
class Absence:
    """Why there is no message at an offset: a short `reason` to count by, and the whole `detail`."""

    offset: int
    reason: str
    detail: str


class MessageLookup:
    """Messages of one commitlog by physical offset, each judged as the replay judges it, body checksum included.

    Parameters
    ----------
    paths
        The commitlog's directories.
    mapped_file_size
        Bytes of a segment; None infers it.
    dledger
        Whether the log is DLedger's; offsets are the records', not their entries'.
    delays_ms
        Delay levels in milliseconds, level 1 first.

    Raises
    ------
    StoreError
        The directories hold no row of segments.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        mapped_file_size: int | None = None,
        dledger: bool = False,
        delays_ms: tuple[int, ...] = parse_delay_levels(DEFAULT_MESSAGE_DELAY_LEVEL),
    ) -> None:
        self._queue = MappedFileQueue.load(paths, mapped_file_size, dledger=dledger)
        self._delays_ms = delays_ms

    @property
    def min_offset(self) -> int:
        """The first place the log still has; 0 without segments."""
        return self._queue.min_offset

    def find(self, offset: int) -> Message | Absence:
        """The message that begins at `offset`, or why there is none.

        Stricter than the broker, which returns whatever stands there (``DefaultMessageStore#lookMessageByOffset``):
        magic, lengths, the record's own physical offset and the body's checksum must be right.

        Raises
        ------
        StoreError, TransientError
            The segment is there and cannot be read; see ``read_error``.
        """
        file = self._queue.find(offset)
        if file is None:
            return self._outside(offset)
        try:
            verdict, message, head = self._read(file, offset)
        except FileNotFoundError:
            return Absence(offset, "expired", f"{file.path} is gone: the log expired while it was looked at")
        if message is not None:
            return message
        at = offset - file.file_from_offset
        detail = (
            f"{file.path}: no good record at offset {offset} (byte {at} of the file): {verdict.name}, "
            f"the bytes there are {head[:16].hex(' ', 4)}"
        )
        return Absence(offset, f"no good record ({verdict.name})", detail)

    def _outside(self, offset: int) -> Absence:
        begin, end = self._queue.min_offset, self._queue.end_of_files
        detail = f"offset {offset} is outside the log, whose files hold [{begin}, {end})"
        if offset < 0 or offset >= end:
            return Absence(offset, "outside the log", detail)
        if offset < begin:
            return Absence(offset, "expired", f"{detail}: it expired")
        return Absence(offset, "in a missing segment", f"offset {offset} is in a segment that is missing from the log")

    def _read(self, file: MappedFile, offset: int) -> tuple[Verdict, Message | None, bytes]:
        with open_for_reading(file.path, offset) as descriptor:
            at, size = offset - file.file_from_offset, min(_HEAD_BYTES, file.end - offset)
            data = os.pread(descriptor, size, at)
            verdict, message = self._decode(data, file, offset)
            # A length is believed only from a record that names this place: anything else may be a gigabyte of nothing.
            if verdict is Verdict.UNDERFLOW and len(data) >= fmt.FIXED_LENGTH:
                if _OWN_OFFSET.unpack_from(data, fmt.PHYSICAL_OFFSET_AT)[0] != offset:
                    return Verdict.BAD_PHYSICAL_OFFSET, None, data
                data = os.pread(descriptor, int.from_bytes(data[:4], "big"), at)
                verdict, message = self._decode(data, file, offset)
        return verdict, message, data

    def _decode(self, data: bytes, file: MappedFile, offset: int) -> tuple[Verdict, Message | None]:
        return decode_message(memoryview(data), 0, offset, file.end, check_crc=True, delays_ms=self._delays_ms)
