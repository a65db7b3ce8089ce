"""The Spark data source of a backup: its log, as it was at a restore point, as rows of messages."""

from __future__ import annotations

from reput.sinks.backup.backup_log import log_of_point, restore_point_at
from reput.source.data_source import CommitLogDataSource
from reput.source.errors import OptionError
from reput.source.log.mapped_file_queue import name_log
from reput.source.options import SourceOptions


class BackupDataSource(CommitLogDataSource):
    """The source ``rocketmq-commitlog`` for a `path` that is a backup, or the file of a restore point in one.

    A stream ends where the log of the restore point ends. A stream that is started again with its checkpoint continues
    to the end of the restore point that is the newest then.
    """

    def _with_commit_logs(self, options: SourceOptions) -> SourceOptions:
        """Give the log of the restore point the path of the options as its name, in the process that plans the read."""
        if len(options.path) > 1:
            raise OptionError("path names a backup and something else: a backup is read alone")
        if options.rows == "ranges":
            raise OptionError("rows=ranges names bytes of files, and a backup has no segments: rows=messages wanted")
        (path,) = options.path
        backup, point = restore_point_at(path)
        name_log(log_of_point(backup, point, path))
        return options
