"""`reput table repair`: another checkpoint in place of one that is damaged or gone, without Spark."""

from __future__ import annotations

from reput.sinks.table.file_list import FileList
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log_damage import log_damage
from reput.sinks.table.storage import table_storage
from reput.source.system_errors import output_error_of
from reput.streaming.output.table_path import check_table
from reput.streaming.table.report import RepairReport


def repair(path: TableLocation) -> RepairReport:
    """Set damaged checkpoints aside, and write one by the commits. Killed at any moment, the same command finishes.

    Raises
    ------
    OutputError
        Commits are missing or damaged, and nothing was changed; or the log cannot be written.
    """
    check_table(path)
    storage = table_storage(path)
    try:
        damage = log_damage(storage)
        if damage is None:
            return RepairReport((), FileList(path).version, written=False)
        if not damage.to_set_aside:
            raise damage.error(storage)
        damage.repair(storage)
    except OSError as error:
        raise output_error_of(error)(f"{path}: the table's log cannot be repaired: {error}", file=path) from error
    return RepairReport(damage.to_set_aside, FileList(path).write_checkpoint(), written=True)
