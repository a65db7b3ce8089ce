"""The relations that a question may read beside the table: a broker's configuration and files, and the quarantine.

Each is small and in memory. Nothing is written, and no name in a file leads anywhere: they are values of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from reput.sinks.table.file_list import FileList
from reput.sinks.table.location import TableLocation
from reput.sinks.table.quarantine_schema import QUARANTINE_SCHEMA, quarantine_table_path
from reput.source.errors import OptionError, OutputError
from reput.streaming.ask.broker_config import consumer_offsets, topic_configs
from reput.streaming.ask.question import Question
from reput.streaming.ask.store_files import consume_queues, half_ops, log_segments
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.config.settings import DEFAULT_BROKER
from reput.streaming.output.table_path import check_table
from reput.streaming.sql.duckdb_query import duckdb_query
from reput.streaming.sql.result import Relations

_LONG: Final = pa.int64()
_TEXT: Final = pa.string()
_MOMENT: Final = pa.timestamp("us", tz="UTC")
QUARANTINE: Final = "quarantine"


@dataclass(frozen=True)
class StoreRelation:
    """A relation that is read from a broker's store.

    Attributes
    ----------
    meaning
        What a row of it is.
    columns
        Type and meaning of each column, by name.
    """

    meaning: str
    columns: dict[str, tuple[pa.DataType, str]]
    rows: Callable[[PipelineConfig], Iterable[Sequence[Any]]]

    @property
    def schema(self) -> pa.Schema:
        """Its columns as Arrow has them."""
        return pa.schema([(name, kind) for name, (kind, _) in self.columns.items()])

    def load(self, config: PipelineConfig) -> pa.Table:
        """Its rows; raises what `rows` raises."""
        named = [dict(zip(self.columns, row, strict=True)) for row in self.rows(config)]
        return pa.Table.from_pylist(named, self.schema)


STORE_RELATIONS: Final = {
    "consumer_offsets": StoreRelation(
        "where a consumer group goes on in a queue, from `config/consumerOffset.json` (`lmqConsumerOffset.json` with "
        "enableLmq)",
        {
            "consumer_group": (_TEXT, "the group"),
            "topic": (_TEXT, "the topic"),
            "queue_id": (_LONG, "the queue"),
            "consumer_offset": (_LONG, "the queue offset of the first message that the group has not consumed"),
        },
        lambda config: consumer_offsets(config.store, enable_lmq=config.broker.enable_lmq),
    ),
    "topic_configs": StoreRelation(
        "a topic that the broker knows, from `config/topics.json`",
        {
            "topic": (_TEXT, "the topic"),
            "read_queues": (_LONG, "readQueueNums"),
            "write_queues": (_LONG, "writeQueueNums"),
            "permission": (_LONG, "perm: 6 to read and write, 4 to read, 2 to write"),
        },
        lambda config: topic_configs(config.store),
    ),
    "consume_queues": StoreRelation(
        "a queue on disk, below `consumequeue/` or `batchconsumequeue/`",
        {
            "topic": (_TEXT, "the topic, by the name of its directory"),
            "queue_id": (_LONG, "the queue"),
            "files": (_LONG, "its files"),
            "bytes": (_LONG, "their size, which is allocated and need not be filled"),
        },
        lambda config: consume_queues(config.store),
    ),
    "log_segments": StoreRelation(
        "a segment of the log",
        {
            "physical_offset": (_LONG, "the offset of its first byte"),
            "bytes": (_LONG, "its size, which is allocated and need not be filled"),
            "modified_time": (_MOMENT, "when its file was changed last, by which the broker lets it expire"),
        },
        log_segments,
    ),
    "half_ops": StoreRelation(
        "a half message that was ended, by a commit or a rollback, as the log's op messages tell",
        {
            "queue_id": (_LONG, "the queue of the half message"),
            "queue_offset": (_LONG, "the queue offset of the half message"),
        },
        half_ops,
    ),
}


def relations_of(
    question: Question, table: TableLocation, config: PipelineConfig | None, note: Callable[[str], object]
) -> Relations:
    """The relations that `question` reads; `config` is that of a broker's store, None without one.

    What is missing and counts as empty is told to `note`.

    Raises
    ------
    OptionError
        There is no store, and the question needs one.
    StoreError, OutputError
        What is to be read cannot be read.
    """
    found: dict[str, pa.Table] = {}
    for name in question.reads:
        if name == QUARANTINE:
            found[name] = _quarantine(quarantine_table_path(table), note)
        elif config is None:
            raise OptionError(f"{question.name} reads {name}, which is {STORE_RELATIONS[name].meaning}: --store wanted")
        else:
            found[name] = STORE_RELATIONS[name].load(config)
    return found


def empty_relations(question: Question) -> Relations:
    """The relations that `question` reads, without rows."""
    schemas = {QUARANTINE: QUARANTINE_SCHEMA, **{name: each.schema for name, each in STORE_RELATIONS.items()}}
    return {name: schemas[name].empty_table() for name in question.reads}


def _quarantine(path: TableLocation, note: Callable[[str], object]) -> pa.Table:
    try:
        check_table(path)
    except OutputError as error:
        note(f"nothing is known of ranges that were left out: {error.cause}")
        return QUARANTINE_SCHEMA.empty_table()
    with duckdb_query(path, "SELECT * FROM messages") as rows:
        schema, batches = rows.batches()
        return pa.Table.from_batches(batches, schema)


def broker_of(table: TableLocation, config: PipelineConfig) -> str:
    """The broker of the table to which a store belongs: the one of its settings, or the table's only one.

    Raises
    ------
    OptionError
        The table has no rows of the broker that the settings name, or has rows of several and they name none.
    """
    files = FileList(table).files()
    bounds = [files[name].to_pylist() for name in ("min.broker", "max.broker") if name in files.column_names]
    names = sorted({name for column in bounds for name in column if name is not None})
    stated = config.broker.name
    if stated in names or not names:
        return stated
    if stated == DEFAULT_BROKER and len(names) == 1:
        return str(names[0])
    raise OptionError(
        f"the store is of broker {stated}, by its settings, and the table has rows of {', '.join(names)}",
        advice="give --broker, or the store's --broker-conf",
    )
