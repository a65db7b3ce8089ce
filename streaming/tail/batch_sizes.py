"""How much of the log one micro-batch of a query takes, in the stream and while sinks catch up with it."""

from __future__ import annotations

from dataclasses import dataclass

from reput.streaming.config.master import processes_of
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.spark_checkpoint import TABLE

_WORTH_A_TASK = 32 * 1024 * 1024


@dataclass(frozen=True)
class BatchSizes:
    """Limits of a micro-batch: its bytes, its messages (None for any number) and the bytes of one of its ranges."""

    bytes_a_batch: int
    messages_a_batch: int | None
    bytes_a_range: int

    @classmethod
    def of(cls, config: PipelineConfig, query: str) -> BatchSizes:
        """The limits of the query with this name."""
        sizes = config.table if query == TABLE else config.logic
        cores = processes_of(config.spark.master) or 1
        # Every core gets a range of a full batch, unless such ranges would be too small to be worth a task.
        bytes_a_core = max(_WORTH_A_TASK, sizes.max_bytes_per_trigger // cores)
        bytes_a_range = min(sizes.max_bytes_per_partition, bytes_a_core)
        return cls(sizes.max_bytes_per_trigger, config.source.max_messages_per_trigger, bytes_a_range)
