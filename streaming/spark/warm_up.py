"""Compile every kernel by using it once, on a hand-made record; the compiled code is cached on disk."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from reput.sinks.dispatch import piece_kernels
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.piece import Piece, QueueFilter
from reput.sinks.formats.index_file import ENTRY_SIZE, put_entries
from reput.source.kernels.batch_decoder import decode_records
from reput.source.kernels.record_kernels import find_own_offset
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.segment_scan import Window
from reput.source.record.message_decoder import Verdict
from reput.source.record.message_format import FIXED_LENGTH, MESSAGE_MAGIC_CODE
from reput.source.rows import column_kernels
from reput.source.rows.message_rows import message_batch


def small_record(physical_offset: int = 0) -> bytes:
    """Return a message of topic `T`, with a key and a unique key and without a body."""
    topic, properties = b"T", b"KEYS\x01k\x02UNIQ_KEY\x01u"
    size = FIXED_LENGTH + len(topic) + len(properties)
    record = struct.pack(">iiiiiqqiq8xq8xiqi", size, MESSAGE_MAGIC_CODE, 0, 0, 0, 0, physical_offset, 0, 0, 0, 0, 0, 0)
    record += struct.pack(">b", len(topic)) + topic + struct.pack(">h", len(properties)) + properties
    return record


def write_small_log(commit_log: Path, mapped_file_size: int, records: int = 1) -> None:
    """Make a directory with a log of one segment, of as many small records as fit but at most `records`."""
    size = len(small_record())
    count = min(records, mapped_file_size // size)
    data = b"".join(small_record(number * size) for number in range(count))
    commit_log.mkdir(parents=True)
    (commit_log / f"{0:020d}").write_bytes(data.ljust(mapped_file_size, b"\0"))


def compile_kernels(*, with_rows: bool = True) -> None:
    """Run the pipeline's kernels over one small record, with the types of real data.

    Without the kernels that make Arrow rows (``message_rows``) it takes less time.
    """
    record = small_record()
    size = len(record)
    data = np.frombuffer(bytearray(record), np.uint8)
    decoded = decode_records(data, 0, size, 0, size, check_crc=True, delays_ms=np.zeros(1, np.int64))
    assert len(decoded.columns) == 1
    find_own_offset(data, 0, size, 0, 0)
    window = Window(data, 0, decoded.columns.parts, size, Verdict.UNDERFLOW, 0)
    piece = Piece(LogicNeeds(), (0,), 0)
    piece.add(window, MappedFile(0, size, ""))
    piece.arrays(QueueFilter())
    table, queues = np.full(2, -1, np.int32), np.zeros((1, piece_kernels.QUEUE), np.int64)
    piece_kernels.queue_number(
        data[:1], 0, table, queues, np.empty(1, np.uint8), np.zeros(piece_kernels.STATE, np.int64)
    )
    piece_kernels.index_queues(table, queues, 1)
    slots, hashes, offsets = np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int64)
    put_entries(
        *(slots, np.zeros(1, np.bool_), np.empty(1, np.int64), 1, 0, 0),
        *(hashes, offsets, offsets, np.empty((1, ENTRY_SIZE), np.uint8)),
    )
    if with_rows:
        message_batch(decoded.columns)
        column_kernels.index_texts(np.full(2, -1, np.int32), 1, np.array([0, 1], np.int32), np.zeros(1, np.uint8))
