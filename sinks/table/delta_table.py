"""A Delta table: tasks write its Parquet files, and the driver commits them, in the words of Delta's protocol.

A commit is one file of the table's log, put in place only if no other writer has that version. No JVM is needed for it.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pyspark.sql.types import StructType

from reput.sinks.table.commit import (
    Change,
    Note,
    actions_of,
    added_columns,
    check_files,
    creation,
    new_columns,
    refusal,
    text_of,
    unwritable,
)
from reput.sinks.table.data_file import DataFile, LoggedAdd
from reput.sinks.table.location import TableLocation, table_away
from reput.sinks.table.log import checkpoint_file, commit_file, raise_log_damage, version_with_columns
from reput.sinks.table.snapshot import UNREADABLE, NoTableError, Snapshot, StaleSnapshotError
from reput.sinks.table.storage import (
    LOG,
    PROBE,
    TableStorage,
    first_line,
    is_left_over,
    output_errors,
    table_storage,
    turn,
)
from reput.source.errors import OutputError, ReputError, SinkError, TransientError, output_error_of

# ----------------------------------------------------------------------------------------------------------------------
# Where a Delta table can be created, by one process at a time, and how one is created.

# A creation takes a second or two; several processes may wait for each other.
_WAIT_S = 120.0


def is_table(path: TableLocation) -> bool:
    """Whether a Delta table's log is at `path`; raises OutputError if that cannot be seen."""
    with output_errors(f"cannot look into {path}", path):
        return any(file.name.endswith(".json") for file in table_storage(path).files(LOG))


@contextmanager
def only_creator(path: Path) -> Iterator[None]:
    """Let no other reput create a table beside `path` meanwhile; makes the directory above it.

    While executors are tried there are files of theirs in the directory, which another process would take for someone
    else's. The lock is on the directory above, so it leaves no file, and ends with its process.

    Raises
    ------
    OutputError
        The directory above cannot be made or locked.
    TransientError
        Another process keeps the lock.
    """
    with ExitStack() as stack:
        with output_errors(f"cannot create a Delta table at {path}", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            is_ours = stack.enter_context(turn(path.parent, _WAIT_S))
        if not is_ours:
            raise TransientError(
                f"{path}: another process has had {path.parent} locked for {_WAIT_S:.0f} s, as one does that creates a "
                "table there",
                advice="start again when it is done",
                file=path,
            )
        yield


def is_vacant(path: TableLocation) -> bool:
    """Whether a table can be created at `path`: False where one is; raises OutputError for anything else there."""
    with output_errors(f"cannot look into {path}", path):
        names = _names_at(path)
    if is_table(path):
        return False
    if not names:
        return True
    found = ", ".join(names[:3])
    if any(name.endswith(".parquet") for name in names):
        raise OutputError(
            f"{path} holds data files ({found}) and no log that names them: put its _delta_log back",
            advice="or give an empty or missing directory, to derive from the commitlog what that has",
            file=path,
        )
    raise OutputError(
        f"{path} is no Delta table, it holds {found}", advice="give an empty or missing directory", file=path
    )


def _names_at(path: TableLocation) -> list[str]:
    if not isinstance(path, Path):
        return sorted(file.name for file in table_storage(path).files(deep=True) if PROBE not in file.name)
    if not path.is_dir():
        return ["a file"] if path.exists() else []
    # A creation that was killed leaves the directory of the log, and perhaps what it had written of the commit.
    left = table_storage(path).files(LOG, deep=True)
    is_begun = (path / LOG).is_dir() and all(is_left_over(file.name) for file in left)
    return sorted(entry.name for entry in path.iterdir() if not (is_begun and entry.name == LOG))


def create(storage: TableStorage, schema: StructType, properties: Mapping[str, str], comment: str) -> None:
    """Create a table, durably, unless another process was first.

    Raises
    ------
    OutputError
        Something else is at its location, it cannot be written, or Spark could not name the table.
    TransientError
        Another process does not get done with creating a table beside it.
    """
    path = storage.location
    if "${" in str(path):  # in every statement that names the table
        raise OutputError(f"cannot create a Delta table at {path}: Spark would replace what follows '${{'", file=path)
    with ExitStack() as stack:
        if isinstance(path, Path):
            stack.enter_context(only_creator(path))
        if not is_vacant(path):
            return
        with output_errors(f"cannot create a Delta table at {path}", path):
            if isinstance(path, Path):
                (path / LOG).mkdir(parents=True, exist_ok=True)
            if storage.put_if_absent(commit_file(0), text_of(creation(schema, properties, comment))):
                storage.sync_new_table()


_LOGGER = logging.getLogger(__name__)
# How long another reput is waited for that commits; then this one commits all the same, as it does beside others.
_TURN_S = 10.0
_CHECKPOINT_EVERY = 10
# A snapshot keeps what the commits since its checkpoint did: after so many it begins with a later one.
_FOLLOWED_MAX = 1000
#: Called with the table's version before a commit is made on top of it; raises to stop the commit.
Check = Callable[[int], None]
_Result = TypeVar("_Result")


class TransactionAlreadyCommittedError(SinkError):
    """The table already holds this transaction version of the application id, or a later one."""

    code = "already-committed"


class _FilesGoneError(Exception):
    """Files that were to be replaced are no longer the table's."""


class _NothingToAddError(Exception):
    """The table has all its columns."""


class DeltaTable:
    """One Delta table, made by `open_or_create`.

    Only one thread may use it at a time. Other writers may commit meanwhile: a commit never replaces theirs, but is
    made again on top of them, after `check` was called. Delta's own writers look whether a version exists and then
    rename, so one of them can, within microseconds, overwrite one of our commits; see ``TableWatch``.
    """

    def __init__(
        self,
        path: TableLocation,
        schema: StructType,
        *,
        later: Collection[str] = frozenset(),
    ) -> None:
        """`later` names the columns of `schema` that the table may lack; they are not added."""
        self.path = path
        self.storage = table_storage(path).for_commits()
        self._schema = schema
        self._later = later
        self._snapshot: Snapshot | None = None
        self._snapshot_commit: tuple[object, ...] = ()
        self._loaded_at = 0
        self._has_committed = False
        self._added_columns: list[str] = []

    @classmethod
    def open_or_create(
        cls,
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
        path
            The table's root.
        schema
            The wanted columns. An existing table must have these, in any order; others must be nullable.
        later
            The names of those columns that an existing table gets if it lacks them; nullable, with their comments.
        properties, comment
            Table properties, and what the table is; like the comments of columns, used only for a new table.

        Raises
        ------
        OutputError
            `path` holds something else (then nothing was created), a table with other columns, or one that reput
            cannot write or create.
        OutputAwayError
            It `must_exist`, and there is none.
        TransientError
            Another process does not get done with creating a table beside `path`.
        """
        path = path.resolve()
        table = cls(path, schema, later=later)
        table.storage.check_commits()
        if not is_table(path):
            if must_exist:
                raise table_away(path)
            create(table.storage, schema, properties, comment)
        table._check_writable(table._load())
        table._add_new_columns()
        return table

    def _check_writable(self, snapshot: Snapshot) -> None:
        if (refused := unwritable(self.path, snapshot)) is not None:
            raise refused

    def _add_new_columns(self) -> None:
        """Add the columns that the table lacks, in one commit, unless another writer does."""

        def change(snapshot: Snapshot) -> Change:
            lacking = new_columns(self._schema, snapshot.schema, self._later)
            if not lacking:
                raise _NothingToAddError
            return Change((), (), None, new_columns=lacking)

        with suppress(_NothingToAddError):
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
        return self._latest().transactions.get(app_id)

    @property
    def version(self) -> int:
        """The version on disk now; raises what `last_transaction_version` raises."""
        return self._latest().version

    @property
    def schema(self) -> StructType:
        """The present version's columns, including those that others added."""
        return self._latest().schema

    @property
    def properties(self) -> dict[str, str]:
        """The present version's properties."""
        return self._latest().properties

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
            A file is not as described, or its statistics are not Delta's; nothing was written.
        OutputError
            A file could not be made durable, or the commit failed or is not durable; `last_transaction_version` shows
            whether it took effect.
        TransientError
            Other writers committed first again and again; nothing was written.
        """
        return self.commit(lambda _: Change(files, (), (app_id, version), note=note or {}), check)

    def commit(self, make: Callable[[Snapshot], Change], check: Check | None = None) -> int:
        """Commit what `make` returns for the present snapshot, again if another writer is first; see `append`.

        Reputs commit in turn: of several with many small commits, the slowest would always come second.
        """
        with ExitStack() as stack:
            with suppress(OSError):  # what is wrong with the log is said by what reads it
                stack.enter_context(self.storage.commit_turn(_TURN_S))
            return self._commit_behind_others(make, check)

    def _commit_behind_others(self, make: Callable[[Snapshot], Change], check: Check | None) -> int:
        attempts = self.storage.commit_attempts
        for number in range(attempts):
            if number:
                time.sleep(random.uniform(0, self.storage.commit_pause_s))  # noqa: S311  no secret
            snapshot = self._latest()
            self._check_writable(snapshot)
            if check is not None:
                check(snapshot.version)
            try:
                change = make(snapshot)
            except StaleSnapshotError:
                self._keep(None)
                continue
            check_files(self.storage, change.files)
            self.storage.make_durable(file.path for file in change.files)
            if self._commit(snapshot, change):
                self._after_commit(snapshot.version + 1)
                return snapshot.version + 1
        raise TransientError(
            f"{self.path}: other writers committed {attempts} times in the moment of ours",
            advice="start again",
            file=self.path,
        )

    def _commit(self, snapshot: Snapshot, change: Change) -> bool:
        """Commit once; returns False if another writer was first."""
        what, version = f"{self.path}: {change}", snapshot.version + 1
        if change.transaction is not None and change.is_next:
            app_id, wanted = change.transaction
            if (last := snapshot.transactions.get(app_id)) is not None and last >= wanted:
                raise TransactionAlreadyCommittedError(f"{what} is in the table, now at {last}", file=self.path)
        try:
            actions = actions_of(self.storage, snapshot, change)
        except OutputError as error:
            cause = error.cause.removeprefix(f"{self.path}: ")
            raise OutputError(f"{what} failed: {cause}", advice=error.advice, file=self.path) from error
        if not self._has_committed:
            self.storage.remove_left_over()
            self._has_committed = True
        try:
            is_first = self.storage.put_if_absent(commit_file(version), text_of(actions))
        except OSError as error:
            self._keep(None)
            kind, advice = output_error_of(error), "see the last version before a retry"
            raise kind(f"{what} failed: {first_line(error)}", advice=advice, file=self.path) from error
        if is_first:
            self._keep(snapshot.after(version, actions))
        return is_first

    def _after_commit(self, version: int) -> None:
        """Write a checkpoint behind every so many versions, and remove what the log need not keep."""
        assert self._snapshot is not None
        properties = self._snapshot.properties
        every = properties.get("delta.checkpointInterval", "")
        if version % ((int(every) if every.isdecimal() else 0) or _CHECKPOINT_EVERY):
            return
        self._keep(None)  # what the snapshot knows of the commits before is in the checkpoint
        try:
            self._write_checkpoint(removes_expired=properties.get("delta.enableExpiredLogCleanup") != "false")
        except (ReputError, OSError) as error:
            said = first_line(error)
            _LOGGER.warning("%s: version %d is committed, but its CHECKPOINT failed: %s", self.path, version, said)

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

        def change(snapshot: Snapshot) -> Change:
            files_now = self.files_between(snapshot, start, end)
            found = {file.path: file for file in files_now if not file.has_vector}
            if not set(removed) <= found.keys():
                raise _FilesGoneError
            return Change(files, [found[path] for path in removed], None, note=note or {})

        try:
            self.commit(change)
        except _FilesGoneError:
            return False
        return True

    def files_between(self, snapshot: Snapshot, start: int, end: int) -> Iterator[LoggedAdd]:
        """Each file of a snapshot that may have a row with `physical_offset` in `[start, end)`."""
        return (file for file in self.files(snapshot) if file.bounds.may_reach(start, end))

    def files(self, snapshot: Snapshot) -> Iterator[LoggedAdd]:
        """Each file of a snapshot.

        Raises
        ------
        OutputError
            The log cannot be read.
        StaleSnapshotError
            As ``Snapshot.files``; `commit` heeds it.
        """
        try:
            yield from snapshot.files()
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    def of_snapshot(self, work: Callable[[Snapshot], _Result], version: int | None = None) -> _Result:
        """What `work` returns for a snapshot of the present version, or of `version`; raises what it raises.

        It is called again if the log was cut meanwhile.

        Raises
        ------
        OutputError
            The log cannot be read, or the table can no longer be written.
        """
        snapshot = self._latest()
        if version is not None and snapshot.version != version:
            snapshot = self._load_at(version)
        try:
            return work(snapshot)
        except StaleSnapshotError:
            return work(self._load() if version is None else self._load_at(version))

    def files_of(self, broker: str) -> list[LoggedAdd]:
        """The present version's files that may have rows of the broker, by their paths; errors as `of_snapshot`."""
        found = self.of_snapshot(lambda snapshot: [*self.files(snapshot)])
        return sorted((file for file in found if file.bounds.may_hold(broker)), key=lambda file: file.path)

    def write_checkpoint(self) -> int:
        """Write a checkpoint of the present version unless it has one, durably; returns the version.

        Raises
        ------
        OutputError
            It cannot be written.
        """
        version = self._load().version
        if self.storage.status(checkpoint_file(version)) is None:
            version = self._write_checkpoint(removes_expired=True)
        self._keep(None)
        return version

    def _write_checkpoint(self, *, removes_expired: bool) -> int:
        # deltalake starts threads, and a rebuild forks its processes before it asks.
        from reput.sinks.table.file_list import FileList  # noqa: PLC0415

        with output_errors(f"{self.path}: cannot write a checkpoint", self.path):
            listed = FileList(self.path)
            version = listed.write_checkpoint(removes_expired=removes_expired)
        self.storage.sync_log(checkpoint_file(version).rpartition("/")[2], "_last_checkpoint")
        return version

    def _latest(self) -> Snapshot:
        # Listing the log costs 15 microseconds a file, and a commit every 10 s adds 34,000 files a day.
        # A table that was removed and created again must not go on at the old one's version.
        known = self._snapshot
        if known is None or not self._snapshot_commit or self._snapshot_commit != self._identity(known.version):
            return self._load()
        try:
            if self.storage.status(commit_file(known.version + 1)) is None:
                return known
            if known.version - self._loaded_at >= _FOLLOWED_MAX:
                return self._load()
            snapshot = known.latest()
        except UNREADABLE as error:
            raise self._unreadable(error) from error
        self._check(snapshot)
        return snapshot

    def _load(self) -> Snapshot:
        snapshot = self._load_at(None)
        self._loaded_at = snapshot.version
        self._check(snapshot)
        return snapshot

    def _load_at(self, version: int | None) -> Snapshot:
        try:
            return Snapshot.load(self.storage, version)
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: BaseException) -> OutputError:
        self._keep(None)
        if isinstance(error, NoTableError):
            return table_away(self.path)
        raise_log_damage(self.storage, error)
        said = first_line(error)
        return output_error_of(error)(f"{self.path}: cannot read the Delta log: {said}", file=self.path)

    def _check(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of a table that can be written; raises OutputError for another one."""
        known = self._snapshot
        if known is None or known.metadata is not snapshot.metadata:
            found, version = snapshot.schema, snapshot.version

            def version_with(names: Sequence[str]) -> int | None:
                wanted = {name: self._schema[name].dataType.jsonValue() for name in names}
                return version_with_columns(self.storage, version, wanted)

            refused = refusal(
                *(self.path, version, self._schema, found, snapshot.partitions, snapshot.properties),
                *(self._later, version_with),
            )
            if refused is not None:
                self._keep(None)
                raise refused
            added = added_columns(self._schema, found)
            if set(added) - set(self._added_columns):
                _LOGGER.info(
                    "%s: the table has the columns %s besides, which stay null in our rows", self.path, ", ".join(added)
                )
            self._added_columns = added
        self._keep(snapshot)

    def _keep(self, snapshot: Snapshot | None) -> None:
        self._snapshot = snapshot
        self._snapshot_commit = self._identity(snapshot.version) if snapshot else ()

    def _identity(self, version: int) -> tuple[object, ...]:
        return self.storage.identity(commit_file(version))
