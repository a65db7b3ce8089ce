"""Checks whether a table still has the rows of one broker's transactions after commits of other writers.

A transaction's version proves that the table had its rows, not that it still has them. RESTORE removes rows and leaves
the transactions, and so does an older copy of the table, or a person who removes files. The table's own log shows who
committed what. The broker's rows are counted only if the log has something that may concern them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reput.sinks.table.cleaning import TableLog
from reput.sinks.table.data_file import DataFile, bad_files, count_before
from reput.sinks.table.delta_table import DeltaTable
from reput.sinks.table.history import RowsTaken, TableCommit, commits, rows_before
from reput.sinks.table.log import Snapshot, commit_digest, commit_file
from reput.sinks.table.storage import output_errors
from reput.source.errors import OutputError, RowsLostError, SinkError, TransientError

# ----------------------------------------------------------------------------------------------------------------------
# The number of rows of one broker that a table must have, by physical offset, and the version where that was seen.

# Enough marks to name the range of lost rows to about a thirtieth of the log; few enough for a record with every batch.
MARKS_MAX = 64


@dataclass(frozen=True)
class RowGap:
    """The number of rows of `[start, end)` of the log that a table lacks; negative if it has too many."""

    start: int
    end: int
    missing: int


@dataclass(frozen=True)
class RowLedger:
    """The rows of a table at one of its versions.

    Attributes
    ----------
    version
        The table's version.
    commit
        The version's ``log.commit_digest``: another table, or a copy that got other commits, has a different one.
    marks
        Physical offsets where records begin, ascending, each with the number of rows before it.
    """

    version: int
    commit: str | None
    marks: tuple[tuple[int, int], ...]

    @classmethod
    def from_state(cls, state: dict[str, Any], file: Path | None = None) -> RowLedger | None:
        """The ledger in a progress record's state; None in a record older than ledgers. `file` is the record's.

        Raises
        ------
        SinkError
            The state has something else under the ledger's name.
        """
        known = state.get("ledger")
        if known is None:
            return None
        try:
            marks = tuple((int(offset), int(rows)) for offset, rows in known["marks"])
            return cls(int(known["version"]), known["commit"], marks)
        except (ValueError, TypeError, KeyError) as error:
            raise SinkError(
                f"the message table's progress record has a ledger that cannot be read ({error!r})",
                advice="remove the record",
                file=file,
            ) from error

    def to_state(self) -> dict[str, Any]:
        """The reverse of `from_state`."""
        marks = [list(mark) for mark in self.marks]
        return {"ledger": {"version": self.version, "commit": self.commit, "marks": marks}}

    @property
    def rows(self) -> int:
        """The number of rows before the last mark."""
        return self.marks[-1][1] if self.marks else 0

    @property
    def offsets(self) -> list[int]:
        """The marks' offsets."""
        return [offset for offset, _ in self.marks]

    def with_batch(self, end: int, rows: int) -> RowLedger:
        """The ledger with `rows` more up to `end`; if there are many marks, every other one of the older half goes."""
        marks = [mark for mark in self.marks if mark[0] < end]
        marks.append((end, self.rows + rows))
        if len(marks) > MARKS_MAX:
            half = len(marks) // 2
            marks = [*marks[:half:2], *marks[half:]]
        return replace(self, marks=tuple(marks))

    def without(self, taken: Iterable[RowsTaken]) -> RowLedger:
        """The ledger without some rows; marks between the least and the greatest go, as their counts are unknown."""
        marks, end = list(self.marks), self.offsets[-1] if self.marks else 0
        for rows in taken:
            # A file's bounds include other brokers' rows in it; this broker has no row after the last mark.
            behind = [(offset, count - rows.count) for offset, count in marks if offset > min(rows.greatest, end - 1)]
            marks = [*(mark for mark in marks if mark[0] <= min(rows.least, end - 1)), *behind]
        return replace(self, marks=tuple(marks))

    def seen_at(self, version: int, commit: str | None) -> RowLedger:
        """The ledger as seen at another version of the table."""
        return replace(self, version=version, commit=commit)

    def until(self, end: int) -> RowLedger:
        """The ledger up to `end`: an older copy of the table has no more."""
        return replace(self, marks=tuple(mark for mark in self.marks if mark[0] <= end))

    def with_counts(self, counts: Sequence[int]) -> RowLedger:
        """The ledger's offsets with `counts`, the numbers of rows found before each."""
        return replace(self, marks=tuple(zip(self.offsets, counts, strict=True)))

    def gaps(self, counts: Sequence[int]) -> list[RowGap]:
        """The ranges where `counts`, the numbers of rows found before each mark, are not as expected."""
        gaps: list[RowGap] = []
        start = known = found = 0
        for (offset, rows), count in zip(self.marks, counts, strict=True):
            if (missing := (rows - known) - (count - found)) != 0:
                gaps.append(RowGap(start, offset, missing))
            start, known, found = offset, rows, count
        return gaps


_log = logging.getLogger("reput")

_REPAIR = "'reput rebuild --only table{range}' with the same --store, --output and --table"
# The number of commits checked for a table without a ledger: a month of one every ten minutes.
_FIRST_LOOK = 5000
_LISTED_MAX = 3


class TableWatch:
    """Follows one broker's rows in one table."""

    def __init__(self, table: DeltaTable, app_id: str, broker: str, *, log_begin: int, accepts_loss: bool) -> None:
        """`log_begin` is where the log begins; with `accepts_loss`, lost rows from before that are not an error."""
        self._table = table
        self._app_id = app_id
        self._broker = broker
        self._log_begin = log_begin
        self._accepts_loss = accepts_loss
        # The broker's last transaction before this run.
        self._began_at: int | None = None

    def check_at_start(self, ledger: RowLedger | None, committed: int | None) -> RowLedger:
        """Check the table before anything is written; `committed` is the broker's last transaction version.

        Raises
        ------
        RowsLostError
            Rows are gone that were not removed on purpose.
        OutputError
            The table has rows of the broker, but no transaction.
        """
        version, self._began_at = self._table.version, committed
        files = self._table.files_of(self._broker)
        if bad := bad_files(self._table.storage, files):
            raise self._files_lost_error(bad, committed or 0)
        if committed is None:
            return self._without_transaction(ledger, version, may_have_rows=bool(files))
        if ledger is None:
            self._check_history(version)
            return self.count_at([committed])
        return self._follow(ledger.until(committed), version)

    def bad_files(self) -> list[DataFile]:
        """The files of the table's present version that may have the broker's rows and cannot be read."""
        return [file for file, _ in bad_files(self._table.storage, self._table.files_of(self._broker))]

    def check_before_commit(self, ledger: RowLedger, version: int) -> RowLedger:
        """Check what others committed since `ledger` was seen, up to `version`; raises the errors of `check_at_start`.

        Raises
        ------
        OutputError
            Another reput has committed as this broker: the table would have what both read twice.
        TransientError
            Another writer overwrote one of our commits: the next start brings the rows again.
        """
        if not self._has_seen(ledger, version) and not self._is_cleaned(ledger, version):
            raise TransientError(
                f"{self._table.path}: version {ledger.version} is not the commit that was made: another writer, or "
                "another copy of the table, took its place",
                advice="start again to bring the table up from the log",
                file=self._table.path,
            )
        return ledger if version == ledger.version else self._follow(ledger, version, runs=True)

    def count_at(self, offsets: Sequence[int]) -> RowLedger:
        """The ledger of the table as it is now, counted at `offsets`."""
        version = self._table.version
        counts = self._counts(version, offsets)
        marks = tuple(zip(offsets, counts, strict=True))
        return RowLedger(version, commit_digest(self._table.storage, version), marks)

    def report_lost_rows(self, ledger: RowLedger) -> None:
        """Report the rows of `ledger` that are missing for good, after all others were made again."""
        version = self._table.version
        for each in self._commits(ledger.version + 1, version):
            if isinstance(each, TableCommit) and each.expired is not None:
                ledger = ledger.without(each.expired)
        gaps = ledger.gaps(self._counts(version, ledger.offsets))
        if lost := [gap for gap in gaps if gap.missing > 0 and gap.start < self._log_begin]:
            rows, start, end = sum(gap.missing for gap in lost), lost[0].start, lost[-1].end
            end = min(end, self._log_begin)
            text = "%s: %d rows of broker %r from [%d, %d) of the log are gone for good: the log begins at %d"
            _log.warning(text, self._table.path, rows, self._broker, start, end, self._log_begin)

    def removed_on_purpose(self) -> list[str]:
        """Changes of the broker's rows by others with DELETE, UPDATE or MERGE, as far back as the table's log goes."""
        version = self._table.version
        seen = self._commits(max(0, version - _FIRST_LOOK), version)
        taking = [each for each in seen if isinstance(each, TableCommit) and each.is_wanted and each.removes]
        return [each.description for each in taking if each.expired is None]

    def _without_transaction(self, ledger: RowLedger | None, version: int, *, may_have_rows: bool) -> RowLedger:
        """The ledger of a table without a transaction of ours, which must not have rows of the broker."""
        path = self._table.path
        rows = self._counts(version, [2**63 - 1])[0] if may_have_rows else 0
        if rows:
            raise OutputError(
                f"{path}: {rows} rows of broker {self._broker!r} and no transaction of reput: a copy of another table "
                "does not tell how far it is",
                advice=f"{_REPAIR.format(range='')} compares it with the log and continues from it",
                file=path,
            )
        if ledger is not None and ledger.rows:
            text = "%s is another table than the one that had %d rows of broker %r: what the log has is brought again"
            _log.warning(text, path, ledger.rows, self._broker)
        return RowLedger(version, commit_digest(self._table.storage, version), ())

    def _check_history(self, version: int) -> None:
        """Without a ledger, report rows that others removed, because it is unknown whether they came back."""
        taken: list[TableCommit] | None = None  # since the first of our commits, or the last repair
        for each in self._commits(max(0, version - _FIRST_LOOK), version):
            if not isinstance(each, TableCommit):
                continue
            if each.end_offset is not None:
                taken = [] if taken is None or each.is_repair else taken
            elif taken is not None and each.removes and not (each.is_wanted or each.is_repair):
                taken.append(each)
        if not taken or self._accepts_loss:
            return
        raise RowsLostError(
            f"{self._table.path}: {_describe(taken)} took rows away",
            advice=f"it is not known whether the table has all rows of broker {self._broker!r}: "
            f"{_REPAIR.format(range='')} compares them with the log and makes missing rows again",
            file=self._table.path,
        )

    def _follow(self, ledger: RowLedger, version: int, *, runs: bool = False) -> RowLedger:
        """Bring `ledger` to `version` by the table's log and, if needed, by counting.

        `runs` says that this run itself has seen `ledger`, so that the broker's later commits are another reput's.
        """
        digest = commit_digest(self._table.storage, version)
        foreign: list[TableCommit] = []
        unknown = ""
        is_made_again = False
        seen = ledger
        if not self._has_seen(seen, version):
            if (before := self._follow_removed(seen, version)) is not None:
                if runs:
                    self._check_transaction(seen, f"the log was removed behind version {seen.version}")
                ledger = before
            elif self._is_cleaned(seen, version):
                unknown = f"its log does not tell any more what came behind version {seen.version}"
            else:
                unknown = "the table is another copy than the one that was written"
        for each in self._commits(ledger.version + 1, version) if not unknown else ():
            if not isinstance(each, TableCommit):
                unknown = f"its log does not tell any more what version {each} did"
            elif each.end_offset is not None and not each.is_repair:
                if runs:
                    raise self._second_reput_error(each.end_offset, each.description)
                ledger = ledger.with_batch(each.end_offset, each.rows)
            elif each.end_offset is not None:
                is_made_again = True
            elif each.expired is not None:
                ledger = ledger.without(each.expired)
            elif each.touches:
                foreign.append(each)
        if runs and unknown:
            self._check_transaction(ledger, unknown)
        ledger = ledger.seen_at(version, digest)
        if not (foreign or unknown or is_made_again) or not ledger.marks:
            return ledger
        counts = self._counts(version, ledger.offsets)
        if not is_made_again:
            self._judge_counts(ledger, counts, foreign, unknown)
        return ledger.with_counts(counts)

    def _follow_removed(self, ledger: RowLedger, version: int) -> RowLedger | None:
        """Bring `ledger` to where ``reput table forget`` removed the log; None if nothing says that it did.

        The rows just before that must be those of the ledger, perhaps with a batch that it does not have.
        """
        before = rows_before(self._table.storage, ledger.version, version, self._broker)
        if before is None:
            return None
        end, known = before.end or 0, ledger.offsets[-1] if ledger.marks else 0
        if end < known or (before.rows < ledger.rows and not before.on_purpose):
            return None
        if before.rows < ledger.rows:
            counts = self._counts(version, ledger.offsets)
            text = "%s: %d rows of broker %r were removed on purpose before the log was cut at version %d"
            _log.warning(text, self._table.path, ledger.rows - counts[-1], self._broker, before.version)
            return ledger.with_counts(counts).seen_at(before.version, None)
        if end > known:
            ledger = ledger.with_batch(end, before.rows - ledger.rows)
        return ledger.seen_at(before.version - 1, None) if before.rows == ledger.rows else None

    def _has_seen(self, ledger: RowLedger, version: int) -> bool:
        """Whether the table, now at `version`, has the commit at which the ledger was seen."""
        return ledger.version <= version and commit_digest(self._table.storage, ledger.version) == ledger.commit

    def _is_cleaned(self, ledger: RowLedger, version: int) -> bool:
        """Whether the ledger's commit has gone from the table's log with all older ones, as its cleaning removes them.

        Others may have made thousands of commits since this broker had a message.
        """
        storage = self._table.storage
        if storage.status(commit_file(ledger.version)) is not None:
            return False
        oldest = min(TableLog(storage).commits, default=-1)
        return ledger.version < oldest <= version

    def _judge_counts(self, ledger: RowLedger, counts: Sequence[int], foreign: list[TableCommit], unknown: str) -> None:
        gaps = ledger.gaps(counts)
        lost = [gap for gap in gaps if gap.missing > 0]
        more = -sum(gap.missing for gap in gaps if gap.missing < 0)
        by_whom = "; ".join(filter(None, [unknown, _describe(foreign)]))
        # Another reput's repair keeps our rows, except for those in an unreadable file.
        removing = [each for each in foreign if each.removes and not each.is_repair]
        taken = unknown or not removing or any(not each.is_wanted for each in removing)
        if lost and taken:
            error = self._rows_lost_error(lost, by_whom)
            if not (self._accepts_loss and lost[-1].end <= self._log_begin):
                raise error
            _log.warning("%s; continuing without them", error)
        elif lost or (gaps and unknown) or any(each.changes for each in foreign):
            fewer = sum(gap.missing for gap in lost)
            text = "%s: others changed rows of broker %r (%s): %d rows fewer, %d more; they stay as they are"
            _log.warning(text, self._table.path, self._broker, by_whom, fewer, more)
        elif more:
            text = "%s: others added %d rows of broker %r (%s); %s makes the range as the log has it"
            where = _range(gaps[0].start, gaps[-1].end, self._log_begin)
            _log.warning(text, self._table.path, more, self._broker, by_whom, _REPAIR.format(range=where))

    def _rows_lost_error(self, lost: Sequence[RowGap], by_whom: str) -> RowsLostError:
        rows, start, end = sum(gap.missing for gap in lost), lost[0].start, lost[-1].end
        where = _range(start, end, self._log_begin)
        return self._lost_error(f"{rows} rows", start, end, by_whom, where, ", or failOnDataLoss=false,")

    def _files_lost_error(self, bad: Sequence[tuple[DataFile, str]], end: int) -> RowsLostError:
        rows = sum(file.bounds.rows or 0 for file, _ in bad)
        first = min((file.bounds.least or 0 for file, _ in bad), default=0)
        last = max((end if file.bounds.greatest is None else file.bounds.greatest for file, _ in bad), default=end)
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        problem = f"{self._table.path / bad[0][0].path} {bad[0][1]}{more}"
        return self._lost_error(f"up to {rows} rows", first, last, problem, "", "")

    def _lost_error(self, rows: str, start: int, end: int, by_whom: str, where: str, or_else: str) -> RowsLostError:
        path, command = self._table.path, _REPAIR.format(range=where)
        text = f"{path}: {rows} of broker {self._broker!r} from [{start}, {end}) of the log are gone: {by_whom}"
        if end <= self._log_begin:
            text += f"; the log begins at {self._log_begin}, so they are gone for good"
            advice = f"{command}{or_else} continues without them"
        else:
            expired = f"; what is before {self._log_begin} is gone for good" if start < self._log_begin else ""
            advice = f"{command} makes them again{expired}"
        return RowsLostError(text, advice=advice, file=path, physical_offset=start)

    def _check_transaction(self, ledger: RowLedger, unknown: str) -> None:
        """Check by the last transaction, if the log does not show every commit, whether one was another reput's."""
        committed = self._table.last_transaction_version(self._app_id)
        if committed not in {self._began_at, *ledger.offsets[-1:]}:
            raise self._second_reput_error(committed, unknown)

    def _second_reput_error(self, committed: int | None, description: str) -> OutputError:
        return OutputError(
            f"{self._table.path}: another reput has committed rows of broker {self._broker!r}, up to {committed} of "
            f"the log, while this one runs: {description}",
            advice="let one reput keep the table for a broker, and give each broker its own name (brokerName, or "
            "--option broker=NAME)",
            file=self._table.path,
            physical_offset=committed,
        )

    def _commits(self, first: int, last: int) -> list[TableCommit | int]:
        return list(commits(self._table.storage, first, last, self._app_id, self._broker))

    def _counts(self, version: int, offsets: Sequence[int]) -> list[int]:
        """The number of the broker's rows in a version before each offset."""
        path, storage = self._table.path, self._table.storage

        def count(snapshot: Snapshot) -> list[int]:
            return count_before(storage, self._table.files(snapshot), self._broker, offsets)

        with output_errors(f"{path}: cannot count the rows of broker {self._broker!r}", path):
            return self._table.of_snapshot(count, version) if offsets else []


def _range(start: int, end: int, log_begin: int) -> str:
    return f" --from {max(start, log_begin)} --to {end}" if end > log_begin else ""


def _describe(seen: Sequence[TableCommit]) -> str:
    more = f" and {len(seen) - _LISTED_MAX} more" if len(seen) > _LISTED_MAX else ""
    return "; ".join(each.description for each in seen[:_LISTED_MAX]) + more
