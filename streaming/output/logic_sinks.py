"""The sinks of the `logic` query, as the configuration asks for them, and what tasks must compute for them."""

from __future__ import annotations

from dataclasses import dataclass

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.batch_consume_queue import BatchConsumeQueueSink
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.sink import Sink
from reput.streaming.config.broker import count_of_empty_index, logic_needs
from reput.streaming.config.pipeline import PipelineConfig


@dataclass(frozen=True)
class LogicSinks:
    """`sinks` in the order they are written; `index` is the one among them that the store's checkpoint asks."""

    sinks: tuple[Sink, ...]
    index: IndexSink | None
    needs: LogicNeeds

    @classmethod
    def open(cls, config: PipelineConfig, files: DurableFiles) -> LogicSinks:
        """Make the sinks that are switched on, none of them recovered yet.

        Raises
        ------
        OptionError
            The store's ``config/`` cannot be read.
        """
        sinks: list[Sink] = []
        index = None
        needs = logic_needs(config.values, config.store)
        if config["consumeQueueEnable"]:
            ext_file_size = config["mappedFileSizeConsumeQueueExt"] if config["enableConsumeQueueExt"] else None
            bound = config["maxFirstQueueOffset"]
            sinks.append(ConsumeQueueSink(files, config["mappedFileSizeConsumeQueue"], ext_file_size, bound))
            if needs.batch_topics:
                sinks.append(BatchConsumeQueueSink(files, config["mapperFileSizeBatchConsumeQueue"]))
        if config["messageIndexEnable"]:
            count = count_of_empty_index(config.values, config.store)
            index = IndexSink(files, config["maxHashSlotNum"], config["maxIndexNum"], count_of_empty=count)
            sinks.append(index)
        return cls(tuple(sinks), index, needs)
