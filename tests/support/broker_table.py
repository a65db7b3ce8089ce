"""The message table of a real broker's store, made without Spark, and the messages that its rows are made from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
from conftest import BrokerStore

from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.storage import table_storage
from reput.source.log.log_reader import LogReader
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_reader import read_windows
from reput.source.options import SourceOptions
from reput.source.record.message_decoder import Message
from reput.streaming.config.pipeline import load_config


def _log_of(store: BrokerStore) -> tuple[LogReader, Iterable[OffsetRange], str]:
    config = load_config(store.root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0"], only_reads=True)
    log = LogReader(SourceOptions.parse(config.source_options()))
    return log, log.split(store.facts["minOffset"], store.facts["maxOffset"]), config.broker.name


def make_table(store: BrokerStore, table: Path) -> None:
    """A version of the table for each segment of the log, as a task writes its rows."""
    log, spans, broker = _log_of(store)
    writer = TableFileWriter(table_storage(table), broker, 0, log.decode_options)
    for span in spans:
        path = table / writer.write(span).to_pylist()[0]["path"]
        rows = pq.read_table(path)
        path.unlink()
        deltalake.write_deltalake(str(table), rows, mode="append")


def messages_of(store: BrokerStore) -> list[Message]:
    """All messages of the log, in its order."""
    log, spans, _ = _log_of(store)
    found: list[Message] = []
    for span in spans:
        for window in read_windows(span.file, span.start, span.end, log.decode_options):
            found += window.columns.messages()
    return found
