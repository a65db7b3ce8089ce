"""A Delta table: tasks write its Parquet files, and the driver commits them through Delta Kernel.

delta-spark queries and compacts the table. It is created, and new files are committed, through ``io.delta.kernel``,
whose jars delta-spark brings, because that needs no Spark job. Rows never cross into the JVM.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from reput.sinks.table.change import Change, DataFile, Note, check_files
from reput.sinks.table.creation import create, is_table
from reput.sinks.table.exclusive_commit import ExclusiveCommit
from reput.sinks.table.history import commit_file, version_with_columns
from reput.sinks.table.java_names import JavaNames
from reput.sinks.table.kernel_transaction import ENGINE_INFO, KernelTransactions
from reput.sinks.table.location import TableLocation, table_away
from reput.sinks.table.log_cleanup import checkpoint_file
from reput.sinks.table.log_damage import raise_log_damage
from reput.sinks.table.new_columns import NothingToAddError, adding, schema_of
from reput.sinks.table.refusal import (
    JAVA_ERRORS,
    added_columns,
    explain_refusal,
    first_line,
    kind_of,
    output_errors,
    refusal,
)
from reput.sinks.table.storage import table_storage
from reput.source.errors import SinkError, TransientError

_LOGGER = logging.getLogger(__name__)
# How long another reput is waited for that commits; then this one commits all the same, as it does beside others.
_TURN_S = 10.0
#: Called with the table's version before a commit is made on top of it; raises to stop the commit.
Check = Callable[[int], None]


class TransactionAlreadyCommittedError(SinkError):
    """The table already holds this transaction version of the application id, or a later one."""

    code = "already-committed"


class _FilesGoneError(Exception):
    """Files that were to be replaced are no longer the table's."""


def items_of(values: Any) -> list[Any]:
    """The items of a Java list.

    Where py4j iterates, Java ends with an exception, and pyspark asks the JVM twenty times which one it is.
    """
    return [values.get(number) for number in range(values.size())]


class DeltaTable:
    """One Delta table, made by `open_or_create`.

    Only one thread may use it at a time. Other writers may commit meanwhile: a commit never replaces theirs, but is
    made again on top of them, after `check` was called. Delta's own writers look whether a version exists and then
    rename, so one of them can, within microseconds, overwrite one of our commits; see ``TableWatch``.
    """

    def __init__(
        self, spark: SparkSession, path: TableLocation, schema: StructType, *, later: Collection[str] = frozenset()
    ) -> None:
        """`later` names the columns of `schema` that the table may lack; they are not added."""
        self.spark = spark
        self.path = path
        self.storage = table_storage(path).for_commits(spark)
        self._schema = schema
        self._later = later
        session: Any = spark
        jvm = session._jvm  # noqa: SLF001  py4j's gateway has no public name
        self._java, self._kernel = JavaNames(jvm, "java"), JavaNames(jvm, "io.delta.kernel")
        configuration = session._jsc.hadoopConfiguration()  # noqa: SLF001
        self._engine = self._kernel("defaults.engine.DefaultEngine.create")(configuration)
        self._committer: ExclusiveCommit | None = None
        self._table = self._kernel("Table.forPath")(self._engine, str(path))
        self._transactions = KernelTransactions(self._java, self._kernel, self._engine, path)
        self._snapshot: Any = None
        self._snapshot_commit: tuple[object, ...] = ()
        self._added_columns: list[str] = []

    @classmethod
    def open_or_create(
        cls,
        spark: SparkSession,
        path: TableLocation,
        schema: StructType,
        *,
        properties: Mapping[str, str],
        comment: str = "",
        later: Collection[str] = frozenset(),
        must_exist: bool = False,
    ) -> DeltaTable:
        """Open the Delta table at `path`, or create it if nothing is there, unless it `must_exist`.

        Parameters
        ----------
        spark, path
            A session with Delta's jars, extension and catalog; the table's root.
        schema
            The wanted columns. An existing table must have these, in any order; others must be nullable.
        later
            The names of those columns that an existing table gets if it lacks them; nullable, with their comments.
        properties, comment
            Table properties, and what the table is; like the comments of columns, used only for a new table.

        Raises
        ------
        OutputError
            `path` holds something else (then nothing was created), a table with other columns, or one that Kernel
            cannot write or create.
        OutputAwayError
            It `must_exist`, and there is none.
        TransientError
            Another process does not get done with creating a table beside `path`.
        """
        path = path.resolve()
        table = cls(spark, path, schema, later=later)
        table.storage.check_commits()
        if not is_table(path):
            if must_exist:
                raise table_away(path)
            create(table._transactions, table._exclusive(), table.storage, schema, properties, comment)
        with output_errors(f"{path}: Kernel cannot write this Delta table", path):
            table._load().buildUpdateTableTransaction(ENGINE_INFO, table._kernel("Operation.WRITE"))
        table._add_new_columns()
        return table

    def _add_new_columns(self) -> None:
        """Add the columns that the table lacks, in one commit, unless another writer does."""
        change = adding(self._schema, self._later)
        with suppress(NothingToAddError):
            change(self._latest())
            version = self.commit(change)
            _LOGGER.info("%s: version %d has new columns, null in the rows that are there", self.path, version)

    def last_transaction_version(self, app_id: str) -> int | None:
        """The newest transaction version of `app_id` on disk now, or None.

        Raises
        ------
        OutputError
            The log cannot be read, or the table can no longer be written.
        """
        with output_errors(f"{self.path}: cannot read the Delta log", self.path):
            version = self._load().getLatestTransactionVersion(self._engine, app_id).orElse(None)
        return None if version is None else int(version)

    @property
    def version(self) -> int:
        """The version on disk now; raises what `last_transaction_version` raises."""
        return int(self._latest().getVersion())

    @property
    def schema(self) -> StructType:
        """The present version's columns, including those that others added."""
        return schema_of(self._latest())

    @property
    def properties(self) -> dict[str, str]:
        """The present version's properties."""
        return self._properties_of(self._latest())

    def append(
        self,
        files: Sequence[DataFile],
        *,
        app_id: str,
        version: int,
        check: Check | None = None,
        note: Note | None = None,
    ) -> int:
        """Commit `files`, none or more, with transaction `version` of `app_id`; return the new table version.

        It is a single commit, durable on return. The table must not hold the files or that version yet. `note` is
        what the table's history says of it.

        Raises
        ------
        TransactionAlreadyCommittedError
            The table holds this version of `app_id` or a later one; nothing was written.
        SinkError
            A file is not as described, or Delta cannot read its statistics; nothing was written.
        OutputError
            A file could not be made durable, or the commit failed or is not durable; `last_transaction_version` shows
            whether it took effect.
        TransientError
            Other writers committed first again and again; nothing was written.
        """
        return self.commit(lambda _: Change(files, (), (app_id, version), note=note or {}), check)

    def commit(self, make: Callable[[Any], Change], check: Check | None = None) -> int:
        """Commit what `make` returns for the present snapshot, again if another writer is first; see `append`.

        Reputs commit in turn: of several with many small commits, the slowest would always come second.
        """
        with ExitStack() as stack:
            with suppress(OSError):  # what is wrong with the log is said by what reads it
                stack.enter_context(self.storage.commit_turn(_TURN_S))
            return self._commit_behind_others(make, check)

    def _commit_behind_others(self, make: Callable[[Any], Change], check: Check | None) -> int:
        attempts = self.storage.commit_attempts
        for number in range(attempts):
            if number:
                time.sleep(random.uniform(0, self.storage.commit_pause_s))  # noqa: S311  no secret
            snapshot = self._latest()
            if check is not None:
                check(int(snapshot.getVersion()))
            change = make(snapshot)
            check_files(self.storage, change.files)
            self.storage.make_durable(file.path for file in change.files)
            result = self._commit(snapshot, change)
            if result is not None:
                committed = int(result.getVersion())
                if change.new_columns:  # Kernel's own snapshot and checksum have the old columns
                    self._keep(None)
                    return committed
                self._keep(result.getPostCommitSnapshot().orElse(None))
                self._run_hooks(result, committed)
                return committed
            self._keep(None)
        raise TransientError(
            f"{self.path}: other writers committed {attempts} times in the moment of ours",
            advice="start again",
            file=self.path,
        )

    def rewrite(
        self,
        removed: Collection[str],
        files: Sequence[DataFile],
        start: int,
        end: int,
        note: Note | None = None,
    ) -> bool:
        """Replace files, whose offsets are in `[start, end)`, by `files` with the same rows, in one commit.

        `note` is what the table's history says of it.

        Returns False, and changes nothing, if another writer has removed one of the files, or rows of it by a deletion
        vector. Raises what `append` raises.
        """

        def change(snapshot: Any) -> Change:
            files_now = self.files_between(snapshot, start, end)
            found = {str(file.getPath()): file for file in files_now if not file.getDeletionVector().isPresent()}
            if not set(removed) <= found.keys():
                raise _FilesGoneError
            return Change(files, [found[path] for path in removed], None, note=note or {})

        try:
            self.commit(change)
        except _FilesGoneError:
            return False
        return True

    def files_between(self, snapshot: Any, start: int, end: int) -> Iterator[Any]:
        """Kernel's ``AddFile`` for each file that may have a row with `physical_offset` in `[start, end)`."""
        new_list, predicate = self._java("util.ArrayList"), self._kernel("expressions.Predicate")
        offset, both = self._kernel("expressions.Column")("physical_offset"), new_list()
        for name, bound in ((">=", start), ("<", end)):
            sides = new_list()
            sides.add(offset)
            sides.add(self._kernel("expressions.Literal.ofLong")(bound))
            both.add(predicate(name, sides))
        yield from self._files(snapshot.getScanBuilder().withFilter(predicate("AND", both)).build())

    def files(self, snapshot: Any) -> Iterator[Any]:
        """Kernel's ``AddFile`` for each file of the snapshot."""
        yield from self._files(snapshot.getScanBuilder().build())

    def _files(self, scan: Any) -> Iterator[Any]:
        rows = self._kernel("internal.util.Utils.intoRows")(scan.getScanFiles(self._engine, True))
        try:
            while rows.hasNext():
                yield self._kernel("internal.actions.AddFile")(rows.next().getStruct(0))
        finally:
            rows.close()

    def write_checkpoint(self) -> int:
        """Write a checkpoint of the present version unless it has one, durably; returns the version.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        with output_errors(f"{self.path}: cannot write a checkpoint", self.path):
            snapshot = self._load()
            version = int(snapshot.getVersion())
            if self.storage.status(checkpoint_file(version)) is None:
                snapshot.writeCheckpoint(self._engine)
        self.storage.sync_log(f"{version:020d}.checkpoint.parquet", "_last_checkpoint")
        return version

    def _exclusive(self) -> ExclusiveCommit:
        """What commits are made with; a table that is only read has none."""
        self._committer = self._committer or ExclusiveCommit(self._engine, self._java, self._kernel, self.storage)
        return self._committer

    def _commit(self, snapshot: Any, change: Change) -> Any:
        """Commit once; returns Kernel's result, or None if another writer was first."""
        committer = self._exclusive()
        try:
            try:
                result = self._transactions.commit(committer, snapshot, change)
            except JAVA_ERRORS:
                committer.take_outcome()  # raises the cause; Java only saw that the file is missing
                raise
            return result if committer.take_outcome() else None
        except (*JAVA_ERRORS, OSError) as error:
            self._keep(None)
            what = f"{self.path}: {change}"
            if change.transaction is not None and "ConcurrentTransactionException" in str(error):
                last = self.last_transaction_version(change.transaction[0])
                raise TransactionAlreadyCommittedError(
                    f"{what} is in the table, now at {last}", file=self.path
                ) from error
            cause, undo = explain_refusal(self.path, first_line(error))
            advice = "; ".join(filter(None, [undo, "see the last version before a retry"]))
            raise kind_of(error)(f"{what} failed: {cause}", advice=advice, file=self.path) from error

    def _run_hooks(self, result: Any, committed: int) -> None:
        for hook in items_of(result.getPostCommitHooks()):
            kind = str(hook.getType())
            try:
                if kind == "CHECKPOINT":
                    # Kernel's hook writes the same checkpoint, but from a snapshot by version. Then it keeps the
                    # files older than delta.logRetentionDuration, and the log would grow for ever.
                    self._keep(None)
                    self._table.getLatestSnapshot(self._engine).writeCheckpoint(self._engine)
                    self.storage.sync_log(f"{committed:020d}.checkpoint.parquet", "_last_checkpoint")
                elif kind.startswith("CHECKSUM"):
                    if kind == "CHECKSUM_FULL":
                        # The snapshot of this commit knows no checksum. The next commit on top of it would read every
                        # one since the last checkpoint, and so would all that follow.
                        self._keep(None)
                    self._exclusive().run(hook)
                else:
                    hook.threadSafeInvoke(self._engine)
            except (*JAVA_ERRORS, OSError) as error:
                what = f"{self.path}: version {committed} is committed, but its {kind} failed"
                _LOGGER.warning("%s: %s", what, first_line(error))

    def _latest(self) -> Any:
        # Listing the log costs 15 microseconds a file, and a commit every 10 s adds 34,000 files a day.
        # A table that was removed and created again must not go on at the old one's version.
        known, version = self._snapshot_commit, self._snapshot.getVersion() if self._snapshot else -1
        if known and known == self._identity(version) and self.storage.status(commit_file(version + 1)) is None:
            return self._snapshot
        return self._load()

    def _load(self) -> Any:
        try:
            snapshot = self._table.getLatestSnapshot(self._engine)
            found = schema_of(snapshot)
            partitions = [str(name) for name in items_of(snapshot.getPartitionColumnNames())]
            properties = self._properties_of(snapshot)
        except (*JAVA_ERRORS, OSError) as error:
            raise_log_damage(self.storage, error)
            cause, undo = explain_refusal(self.path, first_line(error))
            message = f"{self.path}: cannot read the Delta log: {cause}"
            raise kind_of(error)(message, advice=undo, file=self.path) from error
        version = int(snapshot.getVersion())

        def version_with(names: Sequence[str]) -> int | None:
            wanted = {name: self._schema[name].dataType.jsonValue() for name in names}
            return version_with_columns(self.storage, version, wanted)

        refused = refusal(self.path, version, self._schema, found, partitions, properties, self._later, version_with)
        if refused is not None:
            raise refused
        added = added_columns(self._schema, found)
        if set(added) - set(self._added_columns):
            _LOGGER.info(
                "%s: the table has the columns %s besides, which stay null in our rows", self.path, ", ".join(added)
            )
        self._added_columns = added
        self._keep(snapshot)
        return snapshot

    def _properties_of(self, snapshot: Any) -> dict[str, str]:
        found = snapshot.getTableProperties()
        return {str(key): str(found.get(key)) for key in items_of(self._java("util.ArrayList")(found.keySet()))}

    def _keep(self, snapshot: Any) -> None:
        self._snapshot = snapshot
        self._snapshot_commit = self._identity(snapshot.getVersion()) if snapshot else ()

    def _identity(self, version: int) -> tuple[object, ...]:
        return self.storage.identity(commit_file(version))
