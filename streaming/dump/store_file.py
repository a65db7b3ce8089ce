"""What a file of a store is: by where it lies and how it is named, by its first bytes, or because somebody says so."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from reput.sinks.files.store_path import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    STORE_CHECKPOINT,
    is_index_file_name,
)
from reput.sinks.store_checkpoint import CHECKPOINT_SIZE
from reput.source.errors import OptionError, StoreError
from reput.source.log.mapped_file_queue import HEAD_SIZE, MappedFile, is_begun, is_framed, open_for_reading
from reput.source.log.store_layout import COMMIT_LOG, is_dledger_log, is_file_name
from reput.source.record.dledger_entry import ENTRY_HEADER_SIZE, ENTRY_POS_AT
from reput.source.record.message_format import PHYSICAL_OFFSET_AT


class FileKind(str, Enum):
    """The kinds of files that a dump reads; each has the name of its directory, or of the file."""

    COMMIT_LOG = COMMIT_LOG
    CONSUME_QUEUE = CONSUME_QUEUE
    CONSUME_QUEUE_EXT = CONSUME_QUEUE_EXT
    BATCH_CONSUME_QUEUE = BATCH_CONSUME_QUEUE
    INDEX = INDEX
    CHECKPOINT = STORE_CHECKPOINT


_KIND_NAMES = ", ".join(kind.value for kind in FileKind)
_QUEUES = (FileKind.CONSUME_QUEUE, FileKind.CONSUME_QUEUE_EXT, FileKind.BATCH_CONSUME_QUEUE)


@dataclass(frozen=True)
class DumpedFile:
    """One file: its kind, its size in bytes, and of a queue's its topic and queue id where the path has them.

    `file_from_offset` is the number in its name: its first byte among those of its row of files; None for other names.
    """

    path: Path
    kind: FileKind
    size: int
    file_from_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None


def kind_named(name: str | None) -> FileKind | None:
    """The kind of that name.

    Raises
    ------
    OptionError
        There is none.
    """
    if name is None:
        return None
    try:
        return FileKind(name)
    except ValueError:
        raise OptionError(f"--file-kind {name}: one of {_KIND_NAMES} wanted") from None


def recognise(path: Path, kind: FileKind | None = None) -> DumpedFile:
    """What the file at `path` is; `kind` says it where neither its path nor its content does.

    Raises
    ------
    OptionError
        There is no such file, or it is none that a dump reads.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise OptionError(f"--file {path}: {error.strerror}") from error
    if not path.is_file():
        raise OptionError(f"--file {path}: not a regular file; --store reads the log of a whole store", file=path)
    kind = kind or _by_path(path, status.st_size) or _by_content(path)
    if kind is None:
        raise OptionError(
            f"--file {path}: neither its path nor its first bytes say what it is",
            advice=f"give --file-kind: {_KIND_NAMES}",
        )
    offset = int(path.name) if is_file_name(path.name) else None
    topic, queue_id = None, None
    if kind in _QUEUES and _is_in_queue(path):
        topic, queue_id = path.parent.parent.name, int(path.parent.name)
    return DumpedFile(path, kind, status.st_size, offset, topic, queue_id)


def segment_of(file: DumpedFile) -> MappedFile:
    """The segment that a file of the log is; its offset, without a name that says it, is that of its first record.

    Raises
    ------
    StoreError
        Neither its name nor a record at its begin says where in the log it belongs.
    """
    head = _head(file.path)
    found = _offset_and_frame(head)
    offset = found[0] if file.file_from_offset is None and found else file.file_from_offset
    if offset is None:
        raise StoreError(
            f"{file.path}: no record begins it, so its physical offset is not known",
            advice="give it the name that it had in the commitlog",
            file=file.path,
        )
    framed = is_framed(head, offset, file.size)
    if framed is None:
        framed = is_dledger_log(file.path.parent)
    return MappedFile(offset, file.size, str(file.path), ENTRY_HEADER_SIZE if framed else 0)


def _by_path(path: Path, size: int) -> FileKind | None:
    if _is_in_queue(path):
        return FileKind(path.parents[2].name)
    if is_file_name(path.name) and (path.parent.name == COMMIT_LOG or is_dledger_log(path.parent)):
        return FileKind.COMMIT_LOG
    if is_index_file_name(path.name):
        return FileKind.INDEX
    return FileKind.CHECKPOINT if path.name == STORE_CHECKPOINT and size == CHECKPOINT_SIZE else None


def _is_in_queue(path: Path) -> bool:
    """Whether it lies in a queue's directory: ``consumequeue/TOPIC/QUEUE/FILE``, or the same of another kind."""
    kinds = {kind.value for kind in _QUEUES}
    parents = path.parents
    return is_file_name(path.name) and parents[0].name.isdecimal() and len(parents) > 2 and parents[2].name in kinds


def _by_content(path: Path) -> FileKind | None:
    return FileKind.COMMIT_LOG if _offset_and_frame(_head(path)) else None


def _offset_and_frame(head: bytes) -> tuple[int, int] | None:
    """The physical offset and the frame of the record that `head` begins with; None without one."""
    for frame, at in ((0, PHYSICAL_OFFSET_AT), (ENTRY_HEADER_SIZE, ENTRY_POS_AT)):
        offset = int.from_bytes(head[at : at + 8], "big", signed=True)
        if offset >= 0 and is_begun(head, offset, frame):
            return offset, frame
    return None


def _head(path: Path) -> bytes:
    with open_for_reading(str(path)) as descriptor:
        return os.pread(descriptor, HEAD_SIZE, 0)
