"""Where a Delta table can be created, by one process at a time, and how one is created."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql.types import StructType

from reput.sinks.table.commit import creation, text_of
from reput.sinks.table.history import commit_file
from reput.sinks.table.location import TableLocation
from reput.sinks.table.refusal import output_errors
from reput.sinks.table.storage import LOG, PROBE, TableStorage, is_left_over, table_storage
from reput.sinks.table.turns import turn
from reput.source.errors import OutputError, TransientError

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
