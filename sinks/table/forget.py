"""Rows that are forgotten: no version of the table has them any more, and no file below its directory.

A ``ForgetRequest`` describes the rows. One commit deletes them. Then the log before it is removed, because its
statistics and older versions have them, and every data file that only older versions had. A reader that follows the
table, as ``watch`` does, finds in that commit what it needs of the removed log: the number of rows of each broker. The
proof is ``traces``: it searches every data file and every file of the log below the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.sinks.table.cleaning import TableLog, cleaning_before, hide_removed, is_below
from reput.sinks.table.data_file import DataFile, count_by_broker, rows_at
from reput.sinks.table.delta_table import Change, DeltaTable
from reput.sinks.table.forgotten_rows import ForgettingRecord
from reput.sinks.table.history import FORGOTTEN, TableCommit, commits, log_entries
from reput.sinks.table.log import Snapshot, transaction_id
from reput.sinks.table.message_file import RestOfFiles
from reput.sinks.table.storage import LOG, TableStorage
from reput.source.arrays import Bools
from reput.source.errors import OutputError
from reput.source.record.message_properties import PROPERTY_REAL_TOPIC, PROPERTY_UNIQ_KEY

# ----------------------------------------------------------------------------------------------------------------------
# The rows to forget, and how to find them in a file.

#: The columns that are searched.
COLUMNS = ("broker", "topic", "real_topic", "origin_topic", "keys", "uniq_key", "msg_id", "properties")
# Where clients and brokers keep the topic of a message that is now in another topic: a half or delayed message, one
# that a consumer sent back, a dead letter.
TOPIC_PROPERTIES = (PROPERTY_REAL_TOPIC, "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
# Where they keep the first id of a message that now has another one, and the id of its transaction.
ID_PROPERTIES = (
    PROPERTY_UNIQ_KEY,
    "EXTEND_UNIQ_INFO",
    "ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_MESSAGE_ID",
    "__transactionId__",
)


@dataclass(frozen=True)
class RowsFound:
    """The number of rows of a file to forget, and of other rows with one of the texts in a property."""

    rows: int
    mentions: int


@dataclass(frozen=True)
class ForgetRequest:
    """The messages to forget: those with one of the keys or ids, and with one of the topics; `broker`'s, or all.

    Without keys and ids all messages of the topics are forgotten, without topics the keys and ids of any topic. One of
    the first four is given.
    """

    topics: Sequence[str] = ()
    keys: Sequence[str] = ()
    uniq_keys: Sequence[str] = ()
    msg_ids: Sequence[str] = ()
    broker: str | None = None

    @property
    def kinds(self) -> str:
        """The names of the given options, without their values."""
        given = {"topic": self.topics, "key": self.keys, "uniq-key": self.uniq_keys, "msg-id": self.msg_ids}
        return ", ".join(name for name, values in given.items() if values)

    @property
    def has_ids(self) -> bool:
        """Whether the request names single messages, by key or id."""
        return bool(self.keys or self.uniq_keys or self.msg_ids)

    @property
    def unwanted_texts(self) -> tuple[str, ...]:
        """The texts that no file of the table's log may have afterwards."""
        if self.has_ids:
            return (*self.keys, *self.uniq_keys, *self.msg_ids)
        return tuple(self.topics) if self.broker is None else ()

    def mask(self, rows: pa.RecordBatch) -> Bools:
        """Which of the rows to forget; columns that a file lacks have no value."""
        found = np.ones(rows.num_rows, np.bool_)
        if self.broker is not None:
            found &= _is_in(rows, "broker", [self.broker])
        if self.topics:
            of_topic = _has_property(rows, TOPIC_PROPERTIES, self.topics)
            for name in ("topic", "real_topic", "origin_topic"):
                of_topic |= _is_in(rows, name, self.topics)
            found &= of_topic
        if self.has_ids:
            ids = (*self.uniq_keys, *self.msg_ids)
            of_id = _is_in(rows, "uniq_key", self.uniq_keys) | _is_in(rows, "msg_id", self.msg_ids)
            found &= of_id | _has_key(rows, self.keys) | _has_property(rows, ID_PROPERTIES, ids)
        return found

    def find(self, storage: TableStorage, name: str) -> RowsFound:
        """Search the rows in a data file, including rows that a deletion vector deletes.

        Raises
        ------
        OSError, pa.ArrowException
            The file cannot be read.
        """
        found = mentions = 0
        for rows in rows_at(storage, name, None, COLUMNS):
            mask = self.mask(rows)
            found += int(np.count_nonzero(mask))
            mentioned = _has_property(rows, None, self.unwanted_texts)
            mentions += int(np.count_nonzero(mentioned & ~mask))
        return RowsFound(found, mentions)


def _column(rows: pa.RecordBatch, name: str, is_kind: Callable[[pa.DataType], bool]) -> pa.Array | None:
    """The column; None if the file lacks it, or has another kind of column by that name."""
    if name not in rows.schema.names or not is_kind(rows.schema.field(name).type):
        return None
    return rows[name]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _among(texts: pa.Array, wanted: Sequence[str]) -> Bools:
    found: Bools = pc.is_in(texts.cast(pa.string()), pa.array(wanted, pa.string())).to_numpy(zero_copy_only=False)
    return found


def _is_in(rows: pa.RecordBatch, name: str, wanted: Sequence[str]) -> Bools:
    column = _column(rows, name, _is_text) if wanted else None
    return np.zeros(rows.num_rows, np.bool_) if column is None else _among(column, wanted)


def _has_key(rows: pa.RecordBatch, wanted: Sequence[str]) -> Bools:
    found = np.zeros(rows.num_rows, np.bool_)
    column = _column(rows, "keys", pa.types.is_list) if wanted else None
    if column is not None:
        parents = pc.list_parent_indices(column).to_numpy()
        found[parents[_among(pc.list_flatten(column), wanted)]] = True
    return found


def _has_property(rows: pa.RecordBatch, names: Sequence[str] | None, wanted: Sequence[str]) -> Bools:
    """Which rows have one of the texts as the value of a property of these names; None: of any."""
    found = np.zeros(rows.num_rows, np.bool_)
    column = _column(rows, "properties", pa.types.is_map) if wanted else None
    if column is None:
        return found
    offsets = column.offsets.to_numpy()
    begin, end = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    hits = _among(column.items.slice(begin, end - begin), wanted)
    if names is not None:
        hits &= _among(column.keys.slice(begin, end - begin), names)
    parents = np.repeat(np.arange(rows.num_rows), np.diff(offsets))
    found[parents[hits]] = True
    return found


# Delta cuts longer texts in statistics; reput does not.
_BOUND_LENGTH = 32


@dataclass(frozen=True)
class Traces:
    """The traces of rows below a table.

    Attributes
    ----------
    files
        The number of data files searched.
    rows
        Data files with such rows, by their path relative to the table's root, each with their number; rows that a
        deletion vector deletes and rows of older versions count, too.
    mentions
        Data files in which other rows have one of the texts in a property, each with their number.
    log_files
        Files of the table's log that have one of the texts.
    unreadable
        Files that could not be read.
    """

    files: int
    rows: dict[str, int]
    mentions: dict[str, int]
    log_files: list[str]
    unreadable: list[str]

    @property
    def is_clean(self) -> bool:
        """Whether there are no traces, and no file was unreadable."""
        return not (self.rows or self.log_files or self.unreadable)


@dataclass
class Forgotten:
    """The result of a forgetting.

    Attributes
    ----------
    rows
        The number of rows deleted from the present version.
    files_rewritten
        The number of its files that had such rows.
    files_removed, bytes_removed
        Data files removed from the disk: those, those of older versions, orphans.
    commits_removed
        The number of versions removed from the log.
    version
        The version that deleted the rows; None if there was nothing to do.
    left
        The traces that remain.
    """

    rows: int = 0
    files_rewritten: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    commits_removed: int = 0
    version: int | None = None
    left: Traces = field(default_factory=lambda: Traces(0, {}, {}, [], []))


def traces(storage: TableStorage, request: ForgetRequest, looked_into: dict[str, RowsFound] | None = None) -> Traces:
    """Search the rows in every file below a table's root; `looked_into` gets the result for each data file.

    Raises
    ------
    OSError
        A directory cannot be listed.
    """
    found: dict[str, RowsFound] = {}
    log_files, unreadable = [], []
    for name in sorted(file.name for file in storage.files(deep=True)):
        try:
            if name.startswith(f"{LOG}/"):
                if _has_text(storage, name, request):
                    log_files.append(name)
            elif name.endswith(".parquet"):
                found[name] = request.find(storage, name)
            elif name.endswith(".parquet.tmp"):  # of a writer that is working, or died
                unreadable.append(name)
        except FileNotFoundError:  # a working writer removed it
            continue
        except (OSError, pa.ArrowException):
            unreadable.append(name)
    if looked_into is not None:
        looked_into.update(found)
    return Traces(
        len(found),
        {name: each.rows for name, each in found.items() if each.rows},
        {name: each.mentions for name, each in found.items() if each.mentions},
        log_files,
        [name for name in unreadable if storage.status(name) is not None],
    )


def _has_text(storage: TableStorage, name: str, request: ForgetRequest) -> bool:
    patterns = [_pattern(text) for text in request.unwanted_texts]
    if not patterns:
        return False
    if name.endswith(".parquet"):
        return any(pattern.search(text) for text in _texts_of(storage, name) for pattern in patterns)
    content = storage.read(name).decode("utf-8", errors="replace")
    return any(pattern.search(content) for pattern in patterns)


def _pattern(text: str) -> re.Pattern[str]:
    """The forms of a text in a log: quoted, with JSON's escapes once, or twice as in statistics, perhaps cut."""
    cut = text[:_BOUND_LENGTH]
    spellings = {each for plain in (cut, text) for once in _escaped(plain) for each in (plain, once, *_escaped(once))}
    end = "" if len(text) > _BOUND_LENGTH else r"(?=\\*[\"'])"
    return re.compile(r"(?<=[\"'])(?:" + "|".join(map(re.escape, sorted(spellings))) + ")" + end)


def _escaped(text: str) -> tuple[str, str]:
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def _texts_of(storage: TableStorage, name: str) -> Iterator[str]:
    """All texts of a checkpoint, each in quotes."""
    with storage.parquet(name) as file:
        actions = file.read()
    for column in actions.flatten().flatten().columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            for text in pc.unique(column.drop_null()).to_pylist():
                yield f'"{text}"'


# ----------------------------------------------------------------------------------------------------------------------
# The commit that deletes the rows, and the removals after it.

_POLICY = "delta.checkpointPolicy"


class Forgetting:
    """Forgets rows of one table."""

    def __init__(self, table: DeltaTable, request: ForgetRequest) -> None:
        self._table = table
        self._request = request
        self._rests = RestOfFiles(self._mask)
        self._record = ForgettingRecord(table.storage)
        self._done = Forgotten()
        self._looked_into: dict[str, RowsFound] = {}

    def run(self) -> Forgotten:
        """Delete the rows, remove the files that had them, and search for traces; `forgotten_rows` records the rows.

        After a kill at any moment, the table has either all of these rows or none, and all other rows; another call
        finishes.

        Raises
        ------
        OutputError
            The table or its log cannot be read or written; or its checkpoints are not those that reput writes, or such
            rows are in a file of another table, or the bucket keeps versions, and nothing was changed.
        OSError, ValueError, LookupError, pa.ArrowException
            The log or a file cannot be read.
        TransientError
            Other writers committed first again and again; nothing was changed.
        """
        self._check_policy()
        self._table.storage.check(removes=True)
        self._done.left = traces(self._table.storage, self._request, self._looked_into)
        if self._done.left.rows or self._done.left.log_files or self._is_unfinished():
            self._done.version = version = self._table.commit(self._change)
            assert version is not None
            self._clean(version)
            self._done.left = traces(self._table.storage, self._request)
        return self._done

    def _mask(self, rows: pa.RecordBatch) -> Bools:
        mask = self._request.mask(rows)
        forgotten = rows.filter(pa.array(mask))
        if {"broker", "physical_offset"} <= set(rows.schema.names):
            self._record.add(forgotten["broker"].to_pylist(), forgotten["physical_offset"].to_pylist())
        return mask

    def _is_unfinished(self) -> bool:
        """Whether the log still has commits before a version that deleted rows for good."""
        log = TableLog(self._table.storage)
        first = log.commits[0] if log.commits else 0
        entries = log_entries(self._table.storage, self._table.version, 2**31)
        return any(entry.what == FORGOTTEN and entry.version > first for entry in entries)

    def _check_policy(self) -> None:
        if self._table.properties.get(_POLICY, "classic") != "classic":
            raise OutputError(
                f"{self._table.path}: its checkpoints are in several files ({_POLICY}), of which reput removes none",
                advice=f"ALTER TABLE ... SET TBLPROPERTIES ('{_POLICY}' = 'classic')",
                file=self._table.path,
            )

    def _change(self, snapshot: Snapshot) -> Change:
        removed, added = self._rests.of_all(snapshot, filter(self._has_rows, self._table.files(snapshot)), always=True)
        self._record.put()
        self._done.rows, self._done.files_rewritten = sum(removed.values()), len(removed)
        note = {
            "what": FORGOTTEN,
            "by": self._request.kinds,
            "rows": self._done.rows,
            "before": self._before(snapshot),
        }
        return Change(added, [*removed], None, note=note, deleted=self._done.rows)

    def _has_rows(self, file: DataFile) -> bool:
        """Whether a file has such rows; raises OutputError if it does and belongs to another table."""
        storage = self._table.storage
        if not (self._looked_into.get(file.path) or self._request.find(storage, file.path)).rows:
            return False
        if not is_below(file.path):
            path = storage.location / file.path
            raise OutputError(
                f"{path} has such rows and is another table's, of which {self._table.path} is a shallow clone",
                advice="forget them there first",
                file=path,
            )
        return True

    def _before(self, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
        """The facts about each broker in the log that will be removed; see ``history.RowsBefore``."""
        version, counts = snapshot.version, count_by_broker(self._table.storage, self._table.files(snapshot))
        first = next(iter(TableLog(self._table.storage).commits), version)
        return {
            broker: {
                "rows": rows,
                "end": snapshot.transactions.get(transaction_id(broker)),
                "on_purpose": self._was_on_purpose(first, version, broker),
            }
            for broker, rows in sorted(counts.items())
            if rows
        }

    def _was_on_purpose(self, first: int, last: int, broker: str) -> bool:
        """Whether rows of the broker were deleted, and always on purpose."""
        seen = list(commits(self._table.storage, first, last, transaction_id(broker), broker))
        taking = [each for each in seen if isinstance(each, TableCommit) and each.removes and not each.is_repair]
        return bool(taking) and all(each.is_wanted for each in taking)

    def _clean(self, first: int) -> None:
        """Remove everything from before version `first`."""
        checkpoint = self._table.write_checkpoint()
        hide_removed(self._table.storage, checkpoint)
        found = cleaning_before(self._table.storage, first, checkpoint, self._table.version)
        found.carry_out()
        self._done.commits_removed = found.commits
        self._done.files_removed = len(found.data_files) + len(found.orphans)
        self._done.bytes_removed = found.size_bytes
