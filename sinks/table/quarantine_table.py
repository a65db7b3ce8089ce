"""The Delta table ``TABLE-quarantine`` beside the message table: the quarantine's lines as rows, for SQL."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa

from reput.sinks.quarantine import QuarantinedRange
from reput.sinks.table.columns import QUARANTINE_COMMENTS, QUARANTINE_SCHEMA, commented
from reput.sinks.table.data_file import DataFile, bad_files, offsets_of
from reput.sinks.table.delta_table import Change, DeltaTable
from reput.sinks.table.history import TableCommit, commits
from reput.sinks.table.location import TableLocation, quarantine_table_path
from reput.sinks.table.log import Snapshot
from reput.sinks.table.storage import output_errors

_log = logging.getLogger("reput")

_STATISTICS_COLUMNS = ("broker", "physical_offset", "cause")
_COMMENT = "Ranges of RocketMQ's commitlogs that reput could not read and passed over, a row each"


class QuarantineTable:
    """One broker's rows of the table; several brokers may share one."""

    def __init__(self, table: TableLocation, broker: str, *, must_exist: bool = False) -> None:
        """Open or create the table beside the message table `table`.

        `must_exist` and errors are as in ``DeltaTable.open_or_create``.
        """
        self._delta = DeltaTable.open_or_create(
            quarantine_table_path(table),
            commented(QUARANTINE_SCHEMA, QUARANTINE_COMMENTS),
            properties={"delta.dataSkippingStatsColumns": ",".join(_STATISTICS_COLUMNS)},
            comment=_COMMENT,
            must_exist=must_exist,
        )
        self._broker = broker
        self._app_id = f"reput/{broker}/quarantine"

    def repair(self, lines: Sequence[QuarantinedRange]) -> None:
        """Add committed rows that have gone, in one commit; rows that a DELETE removed are not added again.

        `lines` are all lines of the output.
        """
        known = self._delta.last_transaction_version(self._app_id)
        if known is None:
            return
        path, storage = self._delta.path, self._delta.storage
        files = self._delta.files_of(self._broker)
        bad = {file.path: problem for file, problem in bad_files(storage, files)}
        sound = (file for file in files if file.path not in bad)
        with output_errors(f"{path}: cannot read the quarantine's rows", path):
            there = {offset for file in sound for offset in offsets_of(storage, file, self._broker).tolist()}
        missing = [line for line in lines if line.physical_offset < known and line.physical_offset not in there]
        if not (missing or bad):
            return
        taken: list[TableCommit] = []  # since the last repair
        for each in commits(storage, 0, self._delta.version, self._app_id, self._broker):
            if isinstance(each, TableCommit) and each.end_offset is not None:
                taken = [] if each.is_repair else taken
            elif isinstance(each, TableCommit) and each.removes:
                taken.append(each)
        why = "; ".join(
            [*(each.description for each in taken), *(f"{path / name} {problem}" for name, problem in bad.items())]
        )
        if taken and not bad and all(each.is_wanted for each in taken):
            _log.info("%s: %d ranges were removed on purpose (%s); they stay away", path, len(missing), why)
            return
        again = [self._data_file(missing)] if missing else []

        def change(snapshot: Snapshot) -> Change:
            every = self._delta.files(snapshot) if bad else ()
            removed = [file for file in every if file.path in bad]
            return Change(again, removed, (self._app_id, known), is_next=False)

        self._delta.commit(change)
        _log.warning("%s: %d ranges were gone (%s); they were added again", path, len(missing), why)

    def write(self, end: int, lines: Sequence[QuarantinedRange]) -> None:
        """Add the `lines` that the table lacks, in one transaction; its version is `end`, a physical offset."""
        known = self._delta.last_transaction_version(self._app_id)
        new = [line for line in lines if known is None or line.physical_offset >= known]
        if len(new) < len(lines):
            _log.info("the quarantine table has %d of %d ranges already", len(lines) - len(new), len(lines))
        if new and (known is None or end > known):
            self._delta.append([self._data_file(new)], app_id=self._app_id, version=end)

    def _data_file(self, lines: Sequence[QuarantinedRange]) -> DataFile:
        table = pa.Table.from_pylist([asdict(line) for line in lines], QUARANTINE_SCHEMA)
        return DataFile.of_rows(self._delta.storage, table, _STATISTICS_COLUMNS)
