"""Rows that are forgotten: no version of the table has them any more, and no file below its directory.

One commit takes the rows away. Then the log before it goes, whose statistics and older versions have them, and with it
every data file that only older versions had. Whoever follows the table, as ``watch`` does, finds in that commit what
the log before it would have told: how many rows each broker had.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from reput.sinks.table.commit import Change
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.forgotten import ForgetRequest, Forgotten, RowsFound, find, traces
from reput.sinks.table.forgotten_rows import ForgettingRecord
from reput.sinks.table.history import FORGOTTEN, TableCommit, commits, log_entries, transaction_id
from reput.sinks.table.live_rows import count_by_broker
from reput.sinks.table.log_cleanup import TableLog, cleaning_before, hide_removed, is_below
from reput.sinks.table.replace import RestOfFiles
from reput.sinks.table.snapshot import Snapshot
from reput.source.arrays import Bools
from reput.source.errors import OutputError

_POLICY = "delta.checkpointPolicy"


class Forgetting:
    """Forgets rows of one table."""

    def __init__(self, table: DeltaTable, request: ForgetRequest) -> None:
        self._table = table
        self._request = request
        self._rests = RestOfFiles(table, self._mask)
        self._record = ForgettingRecord(table.storage)
        self._done = Forgotten()
        self._looked_into: dict[str, RowsFound] = {}

    def run(self) -> Forgotten:
        """Take the rows away, remove what had them, and look for what is left; `forgotten_rows` tells which they were.

        Killed at any moment, the table has the rows or not, and all others; another call finishes.

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
        self._table.storage.check_removal()
        self._done.left = traces(self._table.storage, self._request, self._looked_into)
        if self._done.left.rows or self._done.left.log_files or self._is_unfinished():
            self._done.version = self._table.commit(self._change)
            self._clean(self._done.version)
            self._done.left = traces(self._table.storage, self._request)
        return self._done

    def _mask(self, rows: pa.RecordBatch) -> Bools:
        mask = self._request.mask(rows)
        forgotten = rows.filter(pa.array(mask))
        if {"broker", "physical_offset"} <= set(rows.schema.names):
            self._record.add(forgotten["broker"].to_pylist(), forgotten["physical_offset"].to_pylist())
        return mask

    def _is_unfinished(self) -> bool:
        """Whether the log still has what is before a version that took rows away for good."""
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
        removed, added, rows = [], [], 0
        for file in self._table.files(snapshot):
            storage = self._table.storage
            name = storage.name_of(file.path)
            if not (self._looked_into.get(name) or find(storage, name, self._request)).rows:
                continue
            if not is_below(name):
                path = storage.location / name
                raise OutputError(
                    f"{path} has such rows and is another table's, of which {self._table.path} is a shallow clone",
                    advice="forget them there first",
                    file=path,
                )
            rest = self._rests.of(file, always=True)
            removed.append(file)
            added += [] if rest.file is None else [rest.file]
            rows += rest.taken
        self._record.put()
        self._done.rows, self._done.files_rewritten = rows, len(removed)
        note = {
            "what": FORGOTTEN,
            "by": self._request.kinds,
            "rows": rows,
            "before": self._before(snapshot),
        }
        return Change(added, removed, None, note=note, deleted=rows)

    def _before(self, snapshot: Snapshot) -> dict[str, dict[str, Any]]:
        """What the log, which is about to go, tells of each broker; see ``history.RowsBefore``."""
        version, counts = snapshot.version, count_by_broker(self._table.storage, self._table.files(snapshot))
        first = next(iter(TableLog(self._table.storage).commits), version)
        return {
            broker: {
                "rows": rows,
                "end": snapshot.transactions.get(transaction_id(broker)),
                "on_purpose": self._was_on_purpose(first, version, broker),
            }
            for broker, rows in sorted(counts.items())
        }

    def _was_on_purpose(self, first: int, last: int, broker: str) -> bool:
        """Whether rows of the broker were taken away, and always on purpose."""
        seen = list(commits(self._table.storage, first, last, transaction_id(broker), broker))
        taking = [each for each in seen if isinstance(each, TableCommit) and each.removes and not each.is_repair]
        return bool(taking) and all(each.is_wanted for each in taking)

    def _clean(self, first: int) -> None:
        """Remove what is from before version `first`."""
        checkpoint = self._table.write_checkpoint()
        hide_removed(self._table.storage, checkpoint)
        found = cleaning_before(self._table.storage, first, checkpoint, self._table.version)
        found.carry_out()
        self._done.commits_removed = found.commits
        self._done.files_removed = len(found.data_files) + len(found.orphans)
        self._done.bytes_removed = found.size_bytes
