"""The names of mapped files, of the log and of queues alike: 20 digits, the offset of the file's first byte."""

from __future__ import annotations

FILE_NAME_DIGITS = 20


def file_name(offset: int) -> str:
    """The name of the file whose first byte is byte `offset` of its row of files (``UtilAll#offset2FileName``)."""
    return f"{offset:0{FILE_NAME_DIGITS}d}"


def is_file_name(name: str) -> bool:
    """Whether `name` is a mapped file's: 20 ASCII digits."""
    return len(name) == FILE_NAME_DIGITS and name.isdecimal() and name.isascii()
