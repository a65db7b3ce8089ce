"""Where a Delta table can be created, by one process at a time, and the statement that creates it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from reput.sinks.table.history import commit_file
from reput.sinks.table.location import TableLocation
from reput.sinks.table.refusal import column, literal, output_errors, table_name
from reput.sinks.table.storage import LOG, PROBE, TableStorage, table_storage
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

    Delta's own creation looks for a log and renames over it: two at a time would see half of each other's tables. The
    lock is on the directory above, so it leaves no file, and ends with its process.

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
    names = ["a file"] if path.exists() else []
    return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else names


def create(
    spark: SparkSession, storage: TableStorage, schema: StructType, properties: Mapping[str, str], comment: str
) -> None:
    """Create a table, durably, unless another process was first.

    Raises
    ------
    OutputError
        Something else is at `path`, or Spark refuses.
    TransientError
        Another process does not get done with creating a table beside it.
    """
    path = storage.location
    statement = create_sql(path, schema, properties, comment)
    if not isinstance(path, Path):
        if is_vacant(path):
            _put_first_version(spark, storage, schema, properties, comment)
        return
    with only_creator(path):
        if not is_vacant(path):
            return
        with output_errors(f"cannot create a Delta table at {path}", path):
            spark.sql(statement)
        table_storage(path).sync_new_table()


def _put_first_version(
    spark: Any, storage: TableStorage, schema: StructType, properties: Mapping[str, str], comment: str
) -> None:
    """Have Spark make the table in a directory of this run, and put its first commit where none is.

    Delta's own creation would look for a log and then write.
    """
    scratch = spark._jvm.java.lang.System.getProperty("java.io.tmpdir")  # noqa: SLF001  py4j's gateway has no public name
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        made = Path(name) / "table"
        with output_errors(f"cannot create a Delta table at {storage.location}", storage.location):
            spark.sql(create_sql(made, schema, properties, comment))
            storage.put_if_absent(commit_file(0), (made / commit_file(0)).read_bytes())


def create_sql(path: TableLocation, schema: StructType, properties: Mapping[str, str], comment: str) -> str:
    """The statement CREATE TABLE for `path`; raises OutputError if Spark would replace text in it.

    A column's comment is that of its field.
    """
    columns = ", ".join(f"{column(field)}{_comment(field.metadata.get('comment'))}" for field in schema)
    statement = f"CREATE TABLE {table_name(path)} ({columns}) USING DELTA{_comment(comment)}"
    if properties:
        statement += (
            f" TBLPROPERTIES ({', '.join(f'{literal(key)} = {literal(properties[key])}' for key in properties)})"
        )
    if "${" in statement:
        raise OutputError(f"cannot create a Delta table at {path}: Spark would replace what follows '${{'", file=path)
    return statement


def _comment(text: str | None) -> str:
    return f" COMMENT {literal(text)}" if text else ""
