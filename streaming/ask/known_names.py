"""Find out which brokers, topics, queues and groups exist, so that a typo does not look like an empty answer.

This runs only when nothing was found: an answer with rows costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from reput.sinks.table.location import TableLocation, consumption_table_path
from reput.source.errors import OptionError, OutputError, StoreError, UnknownNameError
from reput.source.options import nearest, shown
from reput.source.record.message_origin import group_of
from reput.streaming.ask.store_relations import consume_queues, consumer_offsets, subscription_groups, topic_configs
from reput.streaming.sql.duckdb_query import table_statements

if TYPE_CHECKING:
    from reput.streaming.config.pipeline import PipelineConfig

#: The kinds of names, by the parameters of questions and the options of commands that take them.
BROKER, TOPIC, GROUP, QUEUE = "broker", "topic", "group", "queue_id"
_WORDS: Final = {BROKER: "broker", TOPIC: "topic", GROUP: "consumer group"}
# An error lists all known names if there are at most this many.
_TOLD_MAX: Final = 8
# An error lists at most this many queues or topics.
_LISTED_MAX: Final = 16


@dataclass
class KnownNames:
    """Names by kind, and the places where they were looked for.

    Attributes
    ----------
    names
        Brokers, topics and groups, by kind.
    queues
        The queue ids of each topic.
    places
        Descriptions of what was read, for messages.
    """

    names: dict[str, set[str]] = field(default_factory=lambda: {BROKER: set(), TOPIC: set(), GROUP: set()})
    queues: dict[str, set[int]] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)

    def add_topic(self, topic: str, queue_id: int | None = None) -> None:
        """Add a topic, its queue, and the group if the topic is a retry or dead letter topic."""
        self.names[TOPIC].add(topic)
        if queue_id is not None:
            self.queues.setdefault(topic, set()).add(queue_id)
        if group := group_of(topic):
            self.names[GROUP].add(group)

    def check(self, given: Mapping[str, str | int | None], advice: str | None = None) -> None:
        """Check the names, `given` by `BROKER`, `TOPIC`, `GROUP` and `QUEUE`, of a question whose answer is empty.

        `advice` is for a name that resembles no known one.

        Raises
        ------
        UnknownNameError
            One of them is unknown.
        """
        for what, known in self.names.items():
            name = given.get(what)
            if isinstance(name, str) and name not in known and (known or what == GROUP):
                all_of_few = (
                    f"known are {', '.join(map(shown, sorted(known)))}" if 0 < len(known) <= _TOLD_MAX else None
                )
                words = f"no {_WORDS[what]} is called {shown(name)}"
                raise self._unknown(words, nearest(name, known), advice or all_of_few)
        topic, queue_id = given.get(TOPIC), given.get(QUEUE)
        known_here = self.queues.get(topic, set()) if isinstance(topic, str) else set()
        if isinstance(queue_id, int) and known_here and queue_id not in known_here:
            raise self._unknown(
                f"the topic {shown(str(topic))} has no queue {queue_id}, but {_listed(known_here)}", (), None
            )

    def _unknown(self, what: str, found: Sequence[str], advice: str | None) -> UnknownNameError:
        words = f"nothing found: {what} in {' and '.join(self.places)}"
        return UnknownNameError(words, nearest=found, advice=None if found else advice)


def _listed(queues: set[int]) -> str:
    first, last = min(queues), max(queues)
    if len(queues) > 1 and len(queues) == last - first + 1:
        return f"{first} to {last}"
    return ", ".join(map(str, sorted(queues)[:_LISTED_MAX])) + (", ..." if len(queues) > _LISTED_MAX else "")


def known_names(
    table: TableLocation | None = None,
    config: PipelineConfig | None = None,
    *,
    at: int | datetime | None = None,
    output: Path | None = None,
) -> KnownNames:
    """Collect the names in a table, in a broker's store, and in the queues of an output; skip what cannot be read.

    `at` is the table's version, or a time at which it was the newest.
    """
    known = KnownNames()
    if table is not None:
        _add_table(known, table, at)
    if config is not None:
        _add_store(known, config, output)
    return known


def _add_table(known: KnownNames, table: TableLocation, at: int | datetime | None) -> None:
    with suppress(OutputError, OptionError), table_statements(table, at=at) as statements:
        here = [name for name in ("origin_topic", "consumer_group") if name in statements.version.column_names]
        columns = ", ".join(["broker", "topic", "queue_id", *here])
        rows = statements.rows(f"SELECT DISTINCT {columns} FROM messages")  # noqa: S608  names of columns, not values
        for broker, topic, queue_id, *more in rows:
            named = dict(zip(here, more, strict=True))
            if broker is not None:
                known.names[BROKER].add(broker)
            if topic is not None:
                known.add_topic(topic, queue_id)
            if named.get("origin_topic") is not None:
                known.add_topic(named["origin_topic"])
            if named.get("consumer_group") is not None:
                known.names[GROUP].add(named["consumer_group"])
        known.places.append("the table")


def add_consumption(known: KnownNames, table: TableLocation) -> None:
    """Add the brokers, topics and groups of the ledger of consumption beside `table`, if there is one."""
    with suppress(OutputError, OptionError), table_statements(consumption_table_path(table)) as statements:
        for broker, topic, group in statements.rows("SELECT DISTINCT broker, topic, consumer_group FROM messages"):
            known.names[BROKER].add(broker)
            known.add_topic(topic)
            known.names[GROUP].add(group)
        known.places.append("the ledger of consumption")


def _add_store(known: KnownNames, config: PipelineConfig, output: Path | None) -> None:
    """Add the names in each file and directory of a store that exists."""
    for group, topic, queue_id, _ in _rows(
        partial(consumer_offsets, config.store, enable_lmq=config.broker.enable_lmq)
    ):
        known.names[GROUP].add(group)
        known.add_topic(topic, queue_id)
    for topic, read_queues, write_queues, _ in _rows(partial(topic_configs, config.store)):
        known.add_topic(topic)
        known.queues.setdefault(topic, set()).update(range(min(max(read_queues, write_queues), 1 << 16)))
    known.names[GROUP].update(group for (group,) in _rows(partial(subscription_groups, config.store)))
    for root in dict.fromkeys([config.store, output or config.store]):
        for topic, queue_id, _, _ in _rows(partial(consume_queues, root)):
            known.add_topic(topic, queue_id)
    known.places.append(config.backup or f"{config.store}")


_Row = TypeVar("_Row")


def _rows(read: Callable[[], Iterator[_Row]]) -> Iterator[_Row]:
    with suppress(StoreError):
        yield from read()


def check_offsets(offsets: pa.Table, given: Mapping[str, str | int | None]) -> None:
    """Check that the group of an empty answer has offsets: without any, reput cannot know what it has consumed.

    Raises
    ------
    UnknownNameError
        `offsets`, the relation ``consumer_offsets``, has none of the group, or none of it for the topic.
    """
    group, topic = given.get(GROUP), given.get(TOPIC)
    of_group = sorted({row["topic"] for row in offsets.to_pylist() if row["consumer_group"] == group})
    if group is None or (of_group if topic is None else topic in of_group):
        return
    where = "" if topic is None else f" for the topic {shown(str(topic))}"
    raise UnknownNameError(
        f"nothing found: the consumer group {shown(str(group))} has no offset{where}, so that what it has consumed is "
        "not known",
        advice=f"it has offsets for {', '.join(map(shown, of_group[:_LISTED_MAX]))}" if of_group else None,
        nearest=[] if topic is None else nearest(str(topic), of_group),
    )
