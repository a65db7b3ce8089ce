"""What a task of any sink returns about its stretch of the log: its ends, its count, its last record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from reput.sinks.files.sink_progress import RecordFingerprint
from reput.source.errors import SinkError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.kernels.byte_kernels import load_i32
from reput.source.record.message_format import BODY_CRC_AT

# `[start, end)` of the log, the messages in it, and the last one: offset, size, store timestamp, body CRC.
RESULT_FIELDS = (
    pa.field("start", pa.int64(), nullable=False),
    pa.field("end", pa.int64(), nullable=False),
    pa.field("messages", pa.int64(), nullable=False),
    pa.field("last_record", pa.list_(pa.int64())),
)


def last_record_of(columns: RecordColumns) -> list[int] | None:
    """The last record's fingerprint as a list; None without records."""
    if not len(columns):
        return None
    at = int(columns.parts[-1, rk.AT])
    crc = int(load_i32(columns.data, at + BODY_CRC_AT))
    return [columns.data_offset + at, int(columns.msg_size[-1]), int(columns.store_timestamp[-1]), crc]


def in_log_order(results: pa.Table) -> pa.Table:
    """The tasks' rows in log order; Spark gives them in order, so a copy is rarely made.

    Raises
    ------
    SinkError
        Rows overlap or leave a gap: a result is missing or came twice.
    """
    if results["start"].to_pylist() != sorted(results["start"].to_pylist()):
        results = results.sort_by("start")
    check_no_gap(results["start"].to_pylist(), results["end"].to_pylist())
    return results


def check_no_gap(starts: Sequence[int], ends: Sequence[int]) -> None:
    """Check that each result begins where the one before it ended.

    Raises
    ------
    SinkError
        A result is missing or came twice.
    """
    for end, start in zip(ends, starts[1:], strict=False):
        if end != start:
            msg = f"the tasks' results leave [{end}, {start}) of the log out, or have it twice"
            raise SinkError(msg)


def last_fingerprint(last_records: Iterable[list[int] | None]) -> RecordFingerprint | None:
    """The last record of all results, given in log order; None without any."""
    known = [record for record in last_records if record is not None]
    return RecordFingerprint(*known[-1]) if known else None
