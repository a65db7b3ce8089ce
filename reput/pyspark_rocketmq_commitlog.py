"""Where Spark finds the data source `rocketmq-commitlog` by itself: it looks into installed ``pyspark_*`` modules.

When a session first asks for a data source in Python, Spark imports every top-level module of such a name, and takes
its `DefaultSource` under the name that the class itself gives (``pyspark.sql.worker.lookup_data_sources``). One that
cannot be imported costs the session all the others, so this one imports nothing but Spark until the source is used.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Makes a ``reput.source.data_source.CommitLogDataSource``, or the one that reads a backup."""

    def __new__(cls, options: dict[str, str]) -> DataSource:  # type: ignore[misc]
        """The source itself."""
        from reput.source.data_source import CommitLogDataSource, names_log_of_backup  # noqa: PLC0415

        if not names_log_of_backup(options):
            return CommitLogDataSource(options)
        from reput.sinks.backup.backup_source import BackupDataSource  # noqa: PLC0415

        return BackupDataSource(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rocketmq-commitlog"
