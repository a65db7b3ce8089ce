"""The store checkpoint must never be ahead of log and index, or a broker's recovery begins too late."""

from __future__ import annotations

import struct

from reput.sinks.files.store_path import STORE_CHECKPOINT
from reput.sinks.findings import Difference, Findings
from reput.sinks.index.index_reader import IndexReader
from reput.sinks.store_checkpoint import CHECKPOINT_SIZE, StoreCheckpoint

# Physical offsets that 5.x keeps behind the three times.
_CONFIRMED_AT, _QUEUED_AT = 32, 40


def check_checkpoint(
    data: bytes | None,
    store_timestamp_max: int,
    log_end: int,
    queued_offset: int,
    row: IndexReader | None,
    findings: Findings,
) -> None:
    """Compare the file's bytes with the latest store time in the log (ms), the log's end, the queues and the index.

    `queued_offset` is where the last record begins that the queues must have, a physical offset. `data` is None for a
    store without the file, which is only a note: a broker reads zeros.
    """
    if data is None:
        findings.note("no_checkpoint")
        return
    if len(data) != CHECKPOINT_SIZE:
        text = f"{len(data)} bytes where a checkpoint has {CHECKPOINT_SIZE}"
        findings.differ(Difference("file_size", text, STORE_CHECKPOINT, len(data)))
    known = StoreCheckpoint.decode(data)
    index_end = _last_full_end(row) if row is not None else store_timestamp_max
    times = (
        (0, "physicMsgTimestamp", known.physic_msg_timestamp, store_timestamp_max, "the log's last record"),
        (8, "logicsMsgTimestamp", known.logics_msg_timestamp, store_timestamp_max, "the log's last record"),
        (16, "indexMsgTimestamp", known.index_msg_timestamp, index_end, "the end of the last full index file"),
    )
    for at, name, found, greatest, what in times:
        _check(at, name, found, greatest, what, findings)
    (confirmed,) = struct.unpack_from(">q", data.ljust(CHECKPOINT_SIZE, b"\0"), _CONFIRMED_AT)
    _check(_CONFIRMED_AT, "confirmPhyOffset", confirmed, log_end, "the log's end", findings)
    # Where it is 0 a broker asks the time instead.
    what = "the last record with a queue entry"
    _check(_QUEUED_AT, "logicsPhysicalOffset", known.logics_physical_offset, queued_offset, what, findings)


def _check(at: int, name: str, found: int, greatest: int, what: str, findings: Findings) -> None:
    if found > greatest:
        text = f"{name} is {found}, ahead of {what}, {greatest}"
        findings.differ(
            Difference("checkpoint_ahead", text, STORE_CHECKPOINT, at, expected=f"<= {greatest}", found=str(found))
        )


def _last_full_end(row: IndexReader) -> int:
    """The end time of the last full file, 0 without any file.

    Where the full ones have expired they ended before the one that is left begins.
    """
    headers = row.headers
    ends = [header.end_timestamp for header in headers if header.index_count >= row.max_index_num]
    return ends[-1] if ends else headers[0].begin_timestamp if headers else 0
