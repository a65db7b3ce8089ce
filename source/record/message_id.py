"""Offset message ids, and hosts as text."""

from __future__ import annotations

import ipaddress
import re
import struct
from dataclasses import dataclass

from reput.source.errors import OptionError
from reput.source.record.message_decoder import Message

_MSG_ID = re.compile(r"(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{56})")
_PORT_AND_OFFSET = struct.Struct(">iq")


@dataclass(frozen=True)
class MessageId:
    """An offset message id: the broker's packed address (4 or 16 bytes), its port, the offset in its log."""

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
                advice="a client's unique key is asked for with --topic and --uniq-key",
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
