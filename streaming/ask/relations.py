"""The relations that a question may read beside the table, from a store or from the tables beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from reput.sinks.table.columns import CONSUMPTION_SCHEMA, FIRST_SEEN, GONE, PROGRESS, QUARANTINE_SCHEMA, RESET_BACK
from reput.sinks.table.data_file import logged_time
from reput.sinks.table.location import TableLocation, consumption_table_path, quarantine_table_path
from reput.sinks.table.log import read_snapshot
from reput.source.errors import OptionError, OutputError
from reput.source.times import time_of
from reput.streaming.ask.evidence import COPIES_SCHEMA, EVIDENCE_SCHEMA, copies_of, evidence_of
from reput.streaming.ask.known_names import BROKER, GROUP, TOPIC
from reput.streaming.ask.question import Question
from reput.streaming.ask.store_relations import STORE_RELATIONS
from reput.streaming.ask.values import literal
from reput.streaming.output.paths import check_table
from reput.streaming.sql.duckdb_query import TableStatements, duckdb_query, table_statements, text_literal
from reput.streaming.sql.output import Relations

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig

QUARANTINE: Final = "quarantine"
CONSUMPTION: Final = "consumption"
EVIDENCE: Final = "evidence"
COPIES: Final = "copies"
_BESIDE: Final = {
    QUARANTINE: QUARANTINE_SCHEMA,
    CONSUMPTION: CONSUMPTION_SCHEMA,
    COPIES: COPIES_SCHEMA,
    EVIDENCE: EVIDENCE_SCHEMA,
}
NO_VALUES: Final[Mapping[str, Any]] = MappingProxyType({})


def relations_of(
    question: Question,
    table: TableLocation,
    config: PipelineConfig | None,
    note: Callable[[str], object],
    values: Mapping[str, Any] = NO_VALUES,
    at: int | datetime | None = None,
) -> Relations:
    """Return the relations that `question` reads; `config` is that of a broker's store, None without one.

    `note` gets a line for each table that is missing and counts as empty. Rows of the ledger of consumption that do not
    matter for the `values` of the question are left out. `at` is the version of the table, or a time; only `copies`
    uses it.

    Raises
    ------
    OptionError
        The question needs a store, and there is none.
    StoreError, OutputError
        A relation cannot be read.
    """
    found: dict[str, pa.Table] = {}
    for name in question.reads:
        if name == QUARANTINE:
            found[name] = _quarantine(quarantine_table_path(table), note)
        elif name == COPIES:
            found[name] = copies_of(table, values, _seen_until(table), at)
        elif name == CONSUMPTION:
            found[name] = _consumption(question, table, values, found.get(COPIES), note)
        elif name == EVIDENCE:
            found[name] = evidence_of(table, found[COPIES], values.get(BROKER), config, note)
        elif config is None:
            raise OptionError(f"{question.name} reads {name}, which is {STORE_RELATIONS[name].meaning}: --store wanted")
        elif config.backup is not None and not STORE_RELATIONS[name].is_configuration:
            raise OptionError(
                f"{question.name} reads {name}, {STORE_RELATIONS[name].meaning}, which a backup does not tell",
                advice=f"'reput restore --from {config.backup} --to DIR' makes a store of it",
            )
        else:
            found[name] = STORE_RELATIONS[name].load(config)
    return found


def empty_relations(question: Question) -> Relations:
    """The relations that `question` reads, without rows."""
    schemas = {**_BESIDE, **{name: each.schema for name, each in STORE_RELATIONS.items()}}
    return {name: pa.Table.from_batches([], schemas[name]) for name in question.reads}


def _quarantine(path: TableLocation, note: Callable[[str], object]) -> pa.Table:
    try:
        check_table(path)
    except OutputError as error:
        note(f"nothing is known of ranges that were left out: {error.cause}")
        return pa.Table.from_batches([], QUARANTINE_SCHEMA)
    with duckdb_query(path, "SELECT * FROM messages") as rows:
        schema, batches = rows.batches()
        return pa.Table.from_batches(batches, schema)


# A ledger has a hundred million rows a month, few of them with these moves.
_RARE_MOVES: Final = f"move IN ('{FIRST_SEEN}', '{RESET_BACK}', '{GONE}')"
_MOVES: Final = f"SELECT {', '.join(CONSUMPTION_SCHEMA.names)} FROM messages WHERE "  # noqa: S608  names of columns
# With messages in more queues than this, all moves of their topics are read.
_QUEUES_MAX: Final = 50


def _consumption(
    question: Question,
    table: TableLocation,
    values: Mapping[str, Any],
    copies: pa.Table | None,
    note: Callable[[str], object],
) -> pa.Table:
    path = consumption_table_path(table)
    try:
        check_table(path)
    except OutputError as error:
        note(f"nothing is known of what consumer groups did: {error.cause}")
        return pa.Table.from_batches([], CONSUMPTION_SCHEMA)
    names = {"consumer_group": GROUP, "topic": TOPIC, "broker": BROKER}
    texts = {column: values.get(name) for column, name in names.items()}
    tests = [f"{name} = {text_literal(str(text))}" for name, text in texts.items() if text is not None]
    since, until = (literal("time", values.get(name), for_spark=False) for name in ("since", "until"))
    with table_statements(path) as ledger:
        if copies is not None:
            return _passages(ledger, " AND ".join([f"{_MOVES} true", *tests]), copies)
        tests += [f"({since} IS NULL OR seen_after >= {since})"]
        tests += [f"({until} IS NULL OR coalesce(seen_before, seen_after) < {until})"]
        tests += [_RARE_MOVES] if question.name == "resets" else []
        return ledger.table(_MOVES + " AND ".join(tests))


def _passages(ledger: TableStatements, select: str, copies: pa.Table) -> pa.Table:
    """Return the moves by which groups passed the messages `copies`, or went back over them, and the move before each.

    The result also has the moves that are not progress; each group has at least one. `select` is a query of the ledger
    with a condition.
    """
    topics = f"topic IN ({', '.join(map(text_literal, sorted({*copies['topic'].to_pylist(), ''})))})"
    offsets: dict[str, list[int]] = defaultdict(list)
    columns = (copies[name].to_pylist() for name in ("broker", "topic", "queue_id", "queue_offset"))
    for broker, topic, queue_id, offset in zip(*columns, strict=True):
        queue = f"broker = {text_literal(broker)} AND topic = {text_literal(topic)} AND queue_id = {queue_id}"
        offsets[queue].append(offset)
    if len(offsets) > _QUEUES_MAX:
        offsets = {topics: copies["queue_offset"].to_pylist()}
    of_queues = {f"{select} AND move = '{PROGRESS}' AND {queue}": each for queue, each in offsets.items()}
    passed = [
        f"{query} AND offset_before <= {max(each)} AND offset_after > {min(each)}" for query, each in of_queues.items()
    ]
    came_to = f"offset_after IN (SELECT offset_before FROM passages WHERE move = '{PROGRESS}')"  # noqa: S608
    before = [f"{query} AND {came_to}" for query in of_queues]
    passages = " UNION ".join([f"{select} AND {topics} AND {_RARE_MOVES}", *passed])
    return ledger.table(f"WITH passages AS MATERIALIZED ({passages}) {' UNION '.join(['FROM passages', *before])}")


def _seen_until(table: TableLocation) -> dict[str, datetime]:
    """Return until when each broker's groups were watched, by the last move in the ledger; empty without a ledger."""
    latest: dict[str, datetime] = {}
    with suppress(OutputError):
        for file in read_snapshot(consumption_table_path(table)).files():
            time = logged_time(file.bounds.columns.get("seen_after", (None, None))[1])
            for broker in file.bounds.brokers or ():
                if time is not None:
                    latest[broker] = max(time, latest.get(broker, time))
    return latest


def first_seen(table: TableLocation, group: str | None) -> datetime | None:
    """Return when the ledger beside a table first saw an offset, of `group` or of any; None if it saw none."""
    with suppress(OutputError), table_statements(consumption_table_path(table)) as ledger:
        where = "" if group is None else f" WHERE consumer_group = {text_literal(group)}"
        ((found,),) = ledger.rows(f"SELECT epoch_ms(min(seen_after)) FROM messages{where}")  # noqa: S608  a literal
        return None if found is None else time_of(found)
    return None


def broker_of(table: TableLocation, config: PipelineConfig) -> str:
    """Return the broker in the table to which a store belongs: the one in its settings, or the table's only one.

    Raises
    ------
    OptionError
        The table has no rows of the broker that the settings name, or has rows of several and they name none.
    """
    from reput.streaming.config.settings import DEFAULT_BROKER  # noqa: PLC0415  it loads numba

    names = sorted({name for file in read_snapshot(table).files() for name in file.bounds.brokers or ()})
    stated = config.broker.name
    if stated in names or not names:
        return stated
    if stated == DEFAULT_BROKER and len(names) == 1:
        return str(names[0])
    raise OptionError(
        f"the store is of broker {stated}, by its settings, and the table has rows of {', '.join(names)}",
        advice="give --broker, or the store's --broker-conf",
    )
