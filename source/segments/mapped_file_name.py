"""Names of mapped files, of the log and of queues alike: 20 digits that say where the file's first byte belongs."""

from __future__ import annotations

FILE_NAME_DIGITS = 20


def file_name(offset: int) -> str:
    """The name of the file whose first byte is byte `offset` of its row (``UtilAll#offset2FileName``)."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether a mapped file may be called so: 20 ASCII digits."""
    return len(name) == FILE_NAME_DIGITS and name.isdecimal() and name.isascii()
