"""How much of the log one micro-batch of a query takes, in the stream and while sinks catch up with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reput.streaming.config.master import processes_of
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.spark_checkpoint import TABLE

_WORTH_A_TASK = 32 * 1024 * 1024


@dataclass(frozen=True)
class BatchSizes:
    """Limits of a micro-batch: its bytes, its messages (None for any number) and the bytes of one of its ranges.

    `bytes_a_wave` is what is written, at least, while more of the batch is read.
    """

    bytes_a_batch: int
    messages_a_batch: int | None
    bytes_a_range: int
    bytes_a_wave: int

    @classmethod
    def of(cls, config: PipelineConfig, names: Sequence[str]) -> BatchSizes:
        """The sizes of a query that keeps all of `names` (LOGIC, TABLE): the lesser ones."""
        sizes = [config.table if name == TABLE else config.logic for name in names]
        bytes_a_batch = min(each.max_bytes_per_trigger for each in sizes)
        # No core is without a range of a full batch, unless that makes ranges that are not worth a task.
        bytes_a_core = max(_WORTH_A_TASK, bytes_a_batch // (processes_of(config.spark.master) or 1))
        bytes_a_range = min(bytes_a_core, *(each.max_bytes_per_partition for each in sizes))
        # Each wave is a commit of the table.
        bytes_a_wave = bytes_a_range * (2 if TABLE in names else 1)
        return cls(bytes_a_batch, config.source.max_messages_per_trigger, bytes_a_range, bytes_a_wave)
