"""The store's `checkpoint` file: how far log, queues and index have come, as store timestamps (``StoreCheckpoint``)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import ClassVar

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import STORE_CHECKPOINT

CHECKPOINT_SIZE = 4096


@dataclass(frozen=True)
class StoreCheckpoint:
    """Store times of messages in milliseconds, not times of flushes.

    Attributes
    ----------
    physic_msg_timestamp
        The time of the last record known to be in the log.
    logics_msg_timestamp
        The time of the last record whose queue entry is on disk.
    index_msg_timestamp
        The end of the last full index file; a broker that starts with an `abort` file deletes newer index files.
    others
        The rest of the file, without zeros at its end: 5.x keeps ``masterFlushedOffset`` and ``confirmPhyOffset``
        there, which reput leaves unchanged; 5.5.0 also ``logicsPhysicalOffset``.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    others: bytes = b""

    _FORMAT: ClassVar[struct.Struct] = struct.Struct(">qqq")
    _LOGICS_PHYSICAL_OFFSET: ClassVar[slice] = slice(16, 24)  # of `others`

    @property
    def logics_physical_offset(self) -> int:
        """The physical offset where the last record whose queue entry is on disk begins; 0 before 5.5.0."""
        return int.from_bytes(self.others[self._LOGICS_PHYSICAL_OFFSET].ljust(8, b"\0"), "big", signed=True)

    def with_logics_physical_offset(self, offset: int) -> StoreCheckpoint:
        """The checkpoint with another `logics_physical_offset`."""
        at = self._LOGICS_PHYSICAL_OFFSET
        others = self.others.ljust(at.stop, b"\0")
        others = others[: at.start] + offset.to_bytes(8, "big", signed=True) + others[at.stop :]
        return replace(self, others=others.rstrip(b"\0"))

    def advanced(
        self, stored: int, queued: int | None, index: int | None, queued_offset: int | None = None
    ) -> StoreCheckpoint:
        """The checkpoint after dispatched records; None leaves a field unchanged.

        `stored` is the store timestamp (ms) of the last record, `queued` that of the last one with a queue entry
        (``ConsumeQueue#putMessagePositionInfoWrapper``), `index` the end of the last full index file. `queued_offset`
        is where the last record with a queue entry begins, a physical offset, for a release that keeps it: all entries
        up to that record are durable.
        """
        known = self if queued_offset is None else self.with_logics_physical_offset(queued_offset)
        return replace(
            known,
            # The record was read from the log, so the log has it; the broker's own value may be older.
            physic_msg_timestamp=max(self.physic_msg_timestamp, stored),
            logics_msg_timestamp=self.logics_msg_timestamp if queued is None else queued,
            index_msg_timestamp=self.index_msg_timestamp if index is None else index,
        )

    def encode(self) -> bytes:
        """The file's 4096 bytes; only zeros follow the three fields if only a 4.9.3 broker wrote to it."""
        times = (self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp)
        return (self._FORMAT.pack(*times) + self.others).ljust(CHECKPOINT_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> StoreCheckpoint:
        """The fields of a checkpoint's first bytes; a shorter file reads as zeros (``StoreCheckpoint`` maps it)."""
        data = data[:CHECKPOINT_SIZE].ljust(CHECKPOINT_SIZE, b"\0")
        physic, logics, index = cls._FORMAT.unpack_from(data)
        return cls(physic, logics, index, data[cls._FORMAT.size :].rstrip(b"\0"))


def load_store_checkpoint(files: DurableFiles) -> StoreCheckpoint:
    """The checkpoint below the output; all zero if there is none."""
    try:
        return StoreCheckpoint.decode((files.root / STORE_CHECKPOINT).read_bytes())
    except FileNotFoundError:
        return StoreCheckpoint()


def store_checkpoint(files: DurableFiles, checkpoint: StoreCheckpoint) -> None:
    """Put the checkpoint in place, completely and durably."""
    files.replace(STORE_CHECKPOINT, data=checkpoint.encode())
