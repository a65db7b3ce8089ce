"""`reput table vacuum`: by hand, and without Spark, what a `tail` removes beside its work."""

from __future__ import annotations

from reput.sinks.table.file_list import log_errors
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log_cleanup import LOG_KEPT, Cleaning, cleaning
from reput.sinks.table.table_state import TableState
from reput.streaming.output.table_path import check_table
from reput.streaming.table.report import VacuumReport

# Another cleaning of the same table, as a `tail` does, may remove a file while this one looks for what can go.
_ATTEMPTS = 3


def vacuum(path: TableLocation, versions_kept: int, *, dry_run: bool) -> VacuumReport:
    """Remove what the last `versions_kept` versions do not need, and orphans; with `dry_run` only look for it.

    Killed at any moment, every version that is kept can still be read, and the same command does the rest. A `tail` may
    write the table meanwhile.

    Raises
    ------
    OutputError
        The table cannot be read, or a file cannot be removed.
    """
    check_table(path)
    state = TableState(path)
    keeps_log = LOG_KEPT in state.metadata.configuration
    found = _cleaning(state, versions_kept, with_commits=not keeps_log)
    if not dry_run:
        found.carry_out()
    return VacuumReport(found.commits, len(found.data_files), len(found.orphans), found.size_bytes, keeps_log)


def _cleaning(state: TableState, versions_kept: int, *, with_commits: bool) -> Cleaning:
    for attempt in range(_ATTEMPTS):
        with log_errors(state.path):
            try:
                return cleaning(state.storage, state.version, versions_kept, with_commits=with_commits)
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
    raise AssertionError
