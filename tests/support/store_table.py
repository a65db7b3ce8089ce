"""A message table of a store's log, as tasks write its files, without Spark."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow.parquet as pq
from support.record_writer import Message, write_store

from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.storage import table_storage
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config


def add_store(
    table: Path,
    store: Path,
    broker: str = "b",
    *,
    broker_conf: Path | None = None,
    body_bytes_max: int | None = None,
) -> None:
    """Add the messages of a whole log to a table, which is made if it is missing."""
    config = load_config(store, broker_conf=broker_conf, overrides=["tailGuardMs=0"])
    log = LogReader(SourceOptions.parse(config.source_options()))
    begin = log.queue().min_offset
    writer = TableFileWriter(table_storage(table), broker, 0, log.decode_options, body_bytes_max)
    for span in log.split(begin, log.settled_end(begin)):
        row = writer.write(span).to_pylist()[0]
        if row["path"] is not None:
            rows = pq.read_table(table / row["path"])
            (table / row["path"]).unlink()
            deltalake.write_deltalake(str(table), rows, mode="append")


def make_table(root: Path, messages: list[Message], broker: str = "b", body_bytes_max: int | None = None) -> Path:
    """A store below `root` and a table with its messages, as a task writes them."""
    write_store(root / "store", messages, 1 << 16)
    add_store(root / "table", root / "store", broker, body_bytes_max=body_bytes_max)
    return root / "table"
