"""The message at one offset of the log.

The reference decoder reads it: a look-up need not wait until the compiled decoder is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reput.source.errors import DataLossError
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue, open_segment
from reput.source.log.range_reader import DecodeOptions, no_good_record
from reput.source.log.segment_scan import read_record_bytes
from reput.source.record.dledger_entry import decode_entry
from reput.source.record.message_decoder import Message, Verdict, decode_message
from reput.source.record.message_properties import DEFAULT_MESSAGE_DELAY_LEVEL, parse_delay_levels


def read_message(file: MappedFile, offset: int, end: int, options: DecodeOptions) -> Message | Verdict:
    """The message at `offset` of the log, inside `file`, or the verdict on what stands there.

    A record that crosses `end` is UNDERFLOW.

    Raises
    ------
    DataLossError
        The segment has gone, or is shorter than it was.
    StoreError, TransientError
        The segment cannot be read; see ``read_error``.
    """
    start = offset - file.frame
    if start < file.file_from_offset:  # inside the frame of the first record
        return Verdict.BAD_PHYSICAL_OFFSET
    decode = decode_entry if file.frame else decode_message
    with open_segment(file, offset=offset) as descriptor:
        data = read_record_bytes(descriptor, file, start, end)
    verdict, message = decode(data.data, 0, start, file.end, check_crc=options.check_crc, delays_ms=options.delays_ms)
    if message is not None:
        return message
    return Verdict.BAD_PHYSICAL_OFFSET if verdict is Verdict.UNDERFLOW and len(data) < end - start else verdict


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
        self._options = DecodeOptions(check_crc=True, delays_ms=delays_ms)

    @property
    def min_offset(self) -> int:
        """The first physical offset that the log still has; 0 without segments."""
        return self._queue.min_offset

    def find(self, offset: int) -> Message | Absence:
        """The message that begins at `offset`, or why there is none.

        It is stricter than the broker, which returns whatever stands there
        (``DefaultMessageStore#lookMessageByOffset``): magic, lengths, the record's own physical offset and the body's
        checksum must be right, and under DLedger the header of its entry.

        Raises
        ------
        StoreError, TransientError
            The segment is there and cannot be read; see ``read_error``.
        """
        file = self._queue.find(offset)
        if file is None:
            return self._outside(offset)
        try:
            found = read_message(file, offset, file.end, self._options)
            if isinstance(found, Message):
                return found
            return Absence(offset, f"no good record ({found.name})", no_good_record(file, offset, found))
        except DataLossError as error:
            return Absence(offset, "expired", str(error))

    def _outside(self, offset: int) -> Absence:
        begin, end = self._queue.min_offset, self._queue.end_of_files
        detail = f"offset {offset} is outside the log, whose files hold [{begin}, {end})"
        if offset < 0 or offset >= end:
            return Absence(offset, "outside the log", detail)
        if offset < begin:
            return Absence(offset, "expired", f"{detail}: it expired")
        return Absence(offset, "in a missing segment", f"offset {offset} is in a segment that is missing from the log")
