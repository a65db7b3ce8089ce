"""Which rows a report is about, and the view of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from reput.sinks.table.retention import RetentionRule
from reput.source.errors import OptionError, OutputError, UnknownNameError
from reput.source.options import nearest, shown
from reput.streaming.sql.duckdb_query import TableStatements, text_literal

#: The view of the rows that were chosen, and that of every row of the chosen topics.
CHOSEN, OF_TOPICS = "chosen", "of_topics"
#: Whether a row has a place in a queue: beginnings of transactions, and what was rolled back, have none.
IS_QUEUED: Final = "transaction_type IN ('none', 'commit')"

# What the report reads, with DuckDB's types. Tables of earlier versions of reput lack the later ones.
_COLUMNS: Final = {
    "broker": "VARCHAR",
    "topic": "VARCHAR",
    "queue_id": "INTEGER",
    "queue_offset": "BIGINT",
    "msg_size": "INTEGER",
    "body_size": "INTEGER",
    "store_time": "TIMESTAMPTZ",
    "born_time": "TIMESTAMPTZ",
    "sys_flag": "INTEGER",
    "transaction_type": "VARCHAR",
    "reconsume_times": "INTEGER",
    "real_topic": "VARCHAR",
}
_LATER_COLUMNS: Final = {
    "kind": "VARCHAR",
    "consumer_group": "VARCHAR",
    "deliver_time": "TIMESTAMPTZ",
    "uniq_key": "VARCHAR",
    "properties": "MAP(VARCHAR, VARCHAR)",
}

_TIMES: Final = ("store_time", "deliver_time")
# The years 1 to 9999.
_FIRST_MS: Final = -62_135_596_800_000
_END_MS: Final = 253_402_300_800_000


@dataclass(frozen=True)
class Selection:
    """Rows of topics that match `topic`, in which ``*`` stands for any text, stored in ``[since_ms, until_ms)``.

    Times are milliseconds since 1970; None is without bound. A row without a store time is in no period.
    """

    topic: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def __post_init__(self) -> None:
        for time in (self.since_ms, self.until_ms):
            if time is not None and not _FIRST_MS <= time < _END_MS:
                raise OptionError(f"a time of {time} ms is outside the years 1 to 9999")
        if self.since_ms is not None and self.until_ms is not None and self.since_ms >= self.until_ms:
            raise OptionError("--until must be later than --since: no time is between them")

    @property
    def is_all(self) -> bool:
        """Whether every row is meant."""
        return self == Selection()

    def make_views(self, table: TableStatements) -> None:
        """Make the views `CHOSEN` and `OF_TOPICS`, with the columns that a report needs.

        Raises
        ------
        OutputError
            The table is none of reput's.
        UnknownNameError
            No topic of the table matches.
        """
        names = {name.lower() for name in table.files.column_names}
        if missing := [name for name in _COLUMNS if name not in names]:
            raise OutputError(
                f"this is no message table of reput: it has no column {missing[0]}",
                advice="give the directory that 'reput tail --table' made",
                file=table.files.root,
            )
        rows = ", ".join(_column(name, kind, names) for name, kind in (_COLUMNS | _LATER_COLUMNS).items())
        topics = self._topics()
        period = [
            f"messages.store_time {sign} make_timestamptz({1_000 * time})"
            for sign, time in ((">=", self.since_ms), ("<", self.until_ms))
            if time is not None
        ]
        table.run(f"CREATE TEMP VIEW {OF_TOPICS} AS SELECT {rows} FROM messages WHERE {topics}")
        if self.topic is not None and not table.rows(f"SELECT 1 FROM {OF_TOPICS} LIMIT 1"):
            known = [name for (name,) in table.rows("SELECT DISTINCT topic FROM messages WHERE topic IS NOT NULL")]
            if known:
                words = f"nothing found: no topic of the table matches {shown(self.topic)}"
                raise UnknownNameError(words, nearest=nearest(self.topic, known))
        table.run(f"CREATE TEMP VIEW {CHOSEN} AS SELECT {rows} FROM messages WHERE {' AND '.join([topics, *period])}")

    def moves(self) -> tuple[str, str]:
        """Conditions for rows of the ledger: of the chosen topics before the period's end, and after its begin."""
        topics = self._topics()
        if self.until_ms is not None:
            topics += f" AND seen_after < make_timestamptz({1_000 * self.until_ms})"
        return topics, "true" if self.since_ms is None else f"seen_after >= make_timestamptz({1_000 * self.since_ms})"

    def _topics(self) -> str:
        like = None if self.topic is None else RetentionRule(self.topic, None).like()
        return "true" if like is None else f"topic LIKE {text_literal(like)} ESCAPE '!'"


def _column(name: str, kind: str, names: Collection[str]) -> str:
    """A column of the views: NULL where the table, of `names`, has none, and for a time outside the years 1 to 9999."""
    if name not in names:
        return f"CAST(NULL AS {kind}) AS {name}"
    if name not in _TIMES:
        return name
    return f"CASE WHEN epoch_ms({name}) BETWEEN {_FIRST_MS} AND {_END_MS - 1} THEN {name} END AS {name}"
