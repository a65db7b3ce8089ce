"""The store's checkpoint: three times, and the offsets that 5.x keeps behind them."""

from __future__ import annotations

from typing import Any, Final

from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.streaming.dump.entries import Parts, file_fields
from reput.streaming.dump.store_file import DumpedFile
from reput.streaming.query.lines import time_text

# What 5.x keeps in the checkpoint behind the three times, eight bytes each.
_CHECKPOINT_OFFSETS = ("master_flushed_offset", "confirm_phy_offset", "logics_physical_offset")


class CheckpointDump:
    """The store's checkpoint, which has a header and nothing else."""

    names: Final[tuple[str, ...]] = ()

    def __init__(self, file: DumpedFile) -> None:
        self._file = file

    def header(self) -> dict[str, Any]:
        """The three times, and the offsets that 5.x keeps behind them."""
        checkpoint = StoreCheckpoint.decode(self._file.path.read_bytes())
        fields = file_fields(self._file)
        for name in ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp"):
            fields[name.removesuffix("stamp")] = time_text(getattr(checkpoint, name))
            fields[name] = getattr(checkpoint, name)
        others = checkpoint.others.ljust(8 * len(_CHECKPOINT_OFFSETS), b"\0")
        for number, name in enumerate(_CHECKPOINT_OFFSETS):
            fields[name] = int.from_bytes(others[8 * number : 8 * number + 8], "big", signed=True)
        return fields

    def parts(self) -> Parts:
        """Nothing."""
        return iter(())
