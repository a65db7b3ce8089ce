"""`reput sql` by DuckDB, which runs in this process and needs no Java.

The table's log says which files have its rows, and only these are opened: DuckDB gets a view of them that is called
`messages`. It may open these very files and no others, and it can neither load anything nor change a setting.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, TypeVar

import duckdb
import numpy.typing as npt
import pyarrow as pa

from reput.sinks.table.data_file import DataFile, KeyProbe, deleted_rows
from reput.sinks.table.location import TableLocation
from reput.sinks.table.log import Snapshot, check_readable, read_snapshot
from reput.sinks.table.lookup import as_python
from reput.source.errors import OptionError, OutputError, ReputError, TransientError
from reput.source.printable import printable
from reput.streaming.config.run_options import SqlOptions
from reput.streaming.output.paths import check_table
from reput.streaming.sql.duckdb_check import MACROS, VIEW, check_query
from reput.streaming.sql.output import NO_RELATIONS, Relations, Result

# ----------------------------------------------------------------------------------------------------------------------
# Calls into compiled code that a signal can interrupt: they run in a thread, for which the caller's thread waits.

_Result = TypeVar("_Result")


class Background:
    """A thread that runs calls, for a ``with`` block.

    Python handles a signal only between two steps of its main thread. While the main thread waits here, it is between
    them.
    """

    def __init__(self, interrupt: Callable[[], object]) -> None:
        """`interrupt` has the running call fail soon; it is called if the wait for the call is interrupted."""
        self._interrupt = interrupt
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._ends: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._calls.put(None)
        self._thread.join()

    def run(self, call: Callable[[], _Result]) -> _Result:
        """The result of `call`; raises what it raises."""
        self._calls.put(call)
        try:
            result, error = self._ends.get()
        except BaseException:
            self._interrupt()
            raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._ends.put((call(), None))
            except BaseException as error:  # noqa: BLE001  the caller's to raise
                self._ends.put((None, error))


# ----------------------------------------------------------------------------------------------------------------------
# Why DuckDB did not run a query, in one line and with a fitting exit code.

# DuckDB's name of the kind of an error, and where in the statement it was.
_KIND: Final = re.compile(r"^([A-Z][A-Za-z ]*) Error: ")
_POSITION: Final = re.compile(r"^LINE (\d+): ", re.MULTILINE)
# Kinds whose cause is the table. It is also the cause of errors that name one of its files.
_TABLE_KINDS: Final = frozenset({"IO", "HTTP"})
_MEMORY_KIND: Final = "Out of Memory"
_FILE: Final = re.compile(r"[^\"' ]+?\.parquet\b")
# DuckDB may not look for a missing file of the table elsewhere, so it reports a refusal.
_NOT_THERE: Final = "Permission"
# Advice on settings that `reput sql` does not have.
_NOISE: Final = re.compile(r"\s*(Database is launched in in-memory|Possible solutions|Use SET ).*", re.DOTALL)
# DuckDB's list of the functions of a name; some names have forty.
_FUNCTIONS: Final = re.compile(
    r"\.?( You might need to add explicit type casts\.)?\s*Candidate functions:\s*(.*)", re.DOTALL
)
_FUNCTIONS_SHOWN: Final = 3
# Texts of an error on one line may be as long as a statement.
_LENGTH_MAX: Final = 500


@contextmanager
def duckdb_failures_as_errors(table: TableLocation) -> Iterator[None]:
    """Convert DuckDB's exceptions into errors of reput; `table` is being read.

    Raises
    ------
    OptionError
        The statement cannot be run, or one of its values cannot be computed or shown.
    OutputError
        The table cannot be read.
    TransientError
        There is not enough memory.
    """
    try:
        yield
    except (duckdb.Error, MemoryError) as error:
        raise _as_error(table, error) from error
    except (ValueError, OverflowError) as error:
        raise OptionError(f"a value of the result cannot be shown: {printable(str(error))}") from error
    except RecursionError as error:
        raise OptionError("the statement is nested too deeply") from error


def _as_error(table: TableLocation, error: Exception) -> ReputError:
    message = str(error).strip()
    kind = found.group(1) if (found := _KIND.match(message)) else ""
    if kind == _MEMORY_KIND or isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return TransientError(
            "the query needs more memory than it may take",
            advice="ask for fewer rows or columns, or give it more with -o sqlMaxMemory=8g",
        )
    line = _line(message)
    file = _FILE.search(message)
    if kind == _NOT_THERE and file is not None:
        line = f"{printable(file.group())} is missing, or cannot be opened"
    if kind in _TABLE_KINDS or file is not None:
        return OutputError(f"cannot read the table {printable(str(table))}: {line}", file=table)
    return OptionError(f"cannot run the query: {line}{_position(message)}")


def _line(message: str) -> str:
    """Return the message on one line, without its kind, the statement's text and advice."""
    text = _NOISE.sub("", _KIND.sub("", message.split("\n\nLINE ", 1)[0].strip()))
    text = _FUNCTIONS.sub(_functions, text)
    line = printable(" ".join(line.strip() for line in text.splitlines() if line.strip()))
    return line if len(line) <= _LENGTH_MAX else f"{line[: _LENGTH_MAX - 3]}..."


def _functions(found: re.Match[str]) -> str:
    """Return the first functions of a name, for a message that none takes the given types."""
    functions = [line.strip() for line in found[2].splitlines() if line.strip()]
    more = f" and {len(functions) - _FUNCTIONS_SHOWN} more" if len(functions) > _FUNCTIONS_SHOWN else ""
    return f"; there are {', '.join(functions[:_FUNCTIONS_SHOWN])}{more}"


def _position(message: str) -> str:
    found = _POSITION.search(message)
    return f" (line {found.group(1)})" if found else ""


# The rows of one batch.
_BATCH_ROWS = 16 * 1024
_REMOVED, _ON_S3 = "reput_removed", "reput_files"
# DuckDB loads and fetches nothing, does not take Python's variables for tables, and writes nothing to a disk.
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    # As Spark has it.
    "default_null_order": "nulls_first_on_asc_last_on_desc",
}
# Types, by the beginning of DuckDB's names, that Python or Parquet has no values for; they are shown as texts.
_AS_TEXT: Final = ("INTERVAL", "BIT", "TIME WITH TIME ZONE", "TIMESTAMP_NS", "UNION", "VARIANT", "GEOMETRY", "BIGNUM")
_BIG_NUMBERS: Final = ("HUGEINT", "UHUGEINT")
_SIMPLE_TYPES: Final = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}


@contextmanager
def duckdb_query(
    table: TableLocation,
    statement: str,
    *,
    at: int | datetime | None = None,
    limit: int | None = None,
    options: SqlOptions | None = None,
    relations: Relations = NO_RELATIONS,
) -> Iterator[Result]:
    """Return the result of `statement`, in which `messages` is the table; `limit` is the number of its first rows.

    `at` is the version to read, or a time at which it was the newest; None: the newest. The statement may also read
    `relations`.

    Raises
    ------
    OutputError
        There is no Delta table at `table`, or it cannot be read.
    OptionError
        The statement contains something that is not known to only read, or DuckDB does not understand it; or the table
        has no such version.
    TransientError
        There is not enough memory.
    """
    version = _version(table, at)
    with _connected(table, options) as (con, background):

        def prepare() -> Any:
            query = check_query(con, statement, relations)
            _make_view(con, version, _files(version, query.keys), relations)
            return con.sql(query.text)

        rows = background.run(prepare)
        yield _DuckDbResult(rows if limit is None else rows.limit(limit), background)


class TableStatements:
    """reput's own statements over one version of a table, which is called `messages` in them.

    They may make temporary tables and views, which later statements see.
    """

    def __init__(self, version: Snapshot, con: Any, background: Background) -> None:
        #: The version that they read.
        self.version = version
        self._con, self._background = con, background

    def run(self, text: str, *values: object) -> None:
        """Run a statement without a result; each ``?`` in it is one of `values`."""
        self._background.run(lambda: self._con.execute(text, values))

    def rows(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self._background.run(lambda: self._con.execute(text, values).fetchall())

    def table(self, text: str) -> pa.Table:
        """Return all rows of a query as an Arrow table."""
        return self._background.run(lambda: self._con.sql(text).to_arrow_table())

    def arrays(self, text: str, *values: object) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a query whose values are numbers and never NULL."""
        return self._background.run(lambda: self._con.execute(text, values).fetchnumpy())


@contextmanager
def table_statements(
    table: TableLocation, *, at: int | datetime | None = None, options: SqlOptions | None = None
) -> Iterator[TableStatements]:
    """Yield reput's own statements, which are not checked; arguments and errors are those of `duckdb_query`."""
    version = _version(table, at)
    with _connected(table, options) as (con, background):
        background.run(lambda: _make_view(con, version, _files(version, None)))
        yield TableStatements(version, con, background)


def _version(table: TableLocation, at: int | datetime | None) -> Snapshot:
    check_table(table)
    version = read_snapshot(table, at)
    check_readable(version)
    return version


@contextmanager
def _connected(table: TableLocation, options: SqlOptions | None) -> Iterator[tuple[Any, Background]]:
    """Yield a new database in memory, and the thread that uses it; its errors become reput's."""
    config = {**_CONFIG, "memory_limit": f"{(options or SqlOptions()).max_memory}B"}
    with (
        duckdb_failures_as_errors(table),
        duckdb.connect(":memory:", config=config) as con,
        Background(con.interrupt) as background,
    ):
        # Read each file's footer once, not again for its columns and for each part of a statement.
        background.run(lambda: con.execute("SET TimeZone = 'UTC'; SET parquet_metadata_cache = true"))
        yield con, background


def table_columns(table: TableLocation, at: int | datetime | None = None) -> list[tuple[str, str, str]]:
    """Return name, DuckDB's type and comment of each of the table's columns; errors as those of `duckdb_query`."""
    check_table(table)
    return [
        (each["name"], _type(each["type"]), str(each["metadata"].get("comment", "")))
        for each in read_snapshot(table, at).columns
    ]


class _DuckDbResult(Result):
    def __init__(self, rows: Any, background: Background) -> None:
        self.names = list(rows.columns)
        self._rows, self._background = rows, background
        self._types = [str(each) for each in rows.types]

    def rows(self) -> Iterator[Sequence[Any]]:
        numbers = [number for number, kind in enumerate(self._types) if kind in _BIG_NUMBERS]
        for batch in self._batches(self._with_casts({}))[1]:
            columns = [as_python(column) for column in batch.columns]
            for number in numbers:  # Arrow has them as decimals
                columns[number] = [None if value is None else int(value) for value in columns[number]]
            yield from zip(*columns, strict=True)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows; sums of whole numbers are 64 bits wide, as Spark's are."""
        return self._batches(self._with_casts(dict.fromkeys(_BIG_NUMBERS, "BIGINT")))

    def _with_casts(self, casts: Mapping[str, str]) -> Any:
        """Return the rows with `casts` of types, and as texts where they cannot be shown otherwise."""
        wanted = [casts.get(kind, "VARCHAR" if kind.startswith(_AS_TEXT) else kind) for kind in self._types]
        if wanted == self._types:
            return self._rows
        shown = [
            f"#{number}" if new == old else f"CAST(#{number} AS {new})"
            for number, (old, new) in enumerate(zip(self._types, wanted, strict=True), 1)
        ]
        return self._rows.project(", ".join(shown))

    def _batches(self, rows: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        reader = self._background.run(lambda: rows.to_arrow_reader(_BATCH_ROWS))
        schema = pa.schema([pa.field(name, kind.type) for name, kind in zip(self.names, reader.schema, strict=True)])

        def next_batch() -> pa.RecordBatch | None:
            try:
                return next(reader, None)
            except (pa.ArrowException, OSError) as error:  # Arrow passes on DuckDB's words
                raise duckdb.Error(str(error)) from error

        def one_by_one() -> Iterator[pa.RecordBatch]:
            while (batch := self._background.run(next_batch)) is not None:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

        return schema, one_by_one()


def _files(version: Snapshot, keys: frozenset[str] | None) -> list[DataFile]:
    """Return the files that may have a row with one of `keys`; None means all."""
    if keys is None:
        return list(version.files())
    probes = [KeyProbe(key) for key in keys]
    return [
        file
        for file in version.files()
        if any(probe.may_be_in(version.storage, file.path) is not False for probe in probes)
    ]


def _make_view(con: Any, version: Snapshot, files: Sequence[DataFile], relations: Relations = NO_RELATIONS) -> None:
    """Make the view `messages` of these files, and have DuckDB open no other, load nothing and keep its settings."""
    for head, body in MACROS.items():
        con.execute(f"CREATE MACRO {head} AS {body}")
    columns = {each["name"]: _type(each["type"]) for each in version.columns}
    if isinstance(table := version.storage.location, Path):
        paths = {os.path.join(table, file.path): file for file in files}  # noqa: PTH118  may be whole
        con.execute(f"SET allowed_paths = {_list(list(paths))}")
        con.execute("SET enable_external_access = false")
        con.execute(f"CREATE VIEW {VIEW} AS {_of_local_files(con, version, paths, columns)}")
    else:
        con.execute("SET enable_external_access = false")
        con.register(_ON_S3, _dataset(version, files))
        con.execute(f"CREATE VIEW {VIEW} AS {_select(columns, columns, _ON_S3)}")
    for name, rows in relations.items():
        con.register(name, rows)
    con.execute("SET lock_configuration = true")


def _of_local_files(con: Any, version: Snapshot, paths: Mapping[str, DataFile], columns: Mapping[str, str]) -> str:
    """Return a query of the files' rows without those that deletion vectors remove."""
    if not paths:
        nulls = ", ".join(f"CAST(NULL AS {kind}) AS {_quoted(name)}" for name, kind in columns.items())
        return f"SELECT {nulls} WHERE false"
    source = f"read_parquet({_list(list(paths))}, union_by_name = true, hive_partitioning = false"
    removed = [
        (path, row) for path, file in paths.items() for row in deleted_rows(version.storage, file.vector).tolist()
    ]
    if removed:
        con.execute(f"CREATE TABLE {_REMOVED} (file VARCHAR, row BIGINT)")
        gone = pa.table({"file": [path for path, _ in removed], "row": [row for _, row in removed]})
        con.register("gone", gone)
        con.execute(f"INSERT INTO {_REMOVED} FROM gone")
        con.unregister("gone")
        source += ", filename = 'reput file', file_row_number = true"
    there = {name: str(kind) for name, kind, *_ in con.execute(f"DESCRIBE FROM {source})").fetchall()}
    joined = f' ANTI JOIN {_REMOVED} AS r ON r.file = "reput file" AND r.row = file_row_number' if removed else ""
    return _select(columns, there, f"{source}){joined}")


def _select(columns: Mapping[str, str], there: Mapping[str, str], source: str) -> str:
    """Return a query of the table's columns, of which `there` are in the source, each with its type there."""
    folded = {name.lower(): kind for name, kind in there.items()}
    shown = []
    for name, kind in columns.items():
        found = folded.get(name.lower())
        value = "NULL" if found is None else _quoted(name)
        shown.append(value if found == kind else f"CAST({value} AS {kind}) AS {_quoted(name)}")
    return f"FROM {source} SELECT {', '.join(shown)}"


def _dataset(version: Snapshot, files: Sequence[DataFile]) -> Any:
    """Return the rows of files on S3, which Arrow reads for DuckDB."""
    from deltalake import Schema  # noqa: PLC0415  most tables are on local disks

    from reput.sinks.table.storage import S3Storage  # noqa: PLC0415

    storage = version.storage
    assert isinstance(storage, S3Storage)
    if any(file.vector is not None for file in files):
        raise OutputError(
            f"{storage.location}: deletion vectors on S3 are not read without Spark",
            advice="ask 'reput sql --engine spark'",
            file=storage.location,
        )
    schema: Any = Schema.from_json(version.metadata["schemaString"])
    return storage.dataset((file.path for file in files), pa.schema(schema.to_arrow()))


def _type(kind: Any) -> str:
    """Return DuckDB's name of a type in the table's log."""
    if isinstance(kind, str):
        return _SIMPLE_TYPES.get(kind) or kind.upper().replace(" ", "")  # a decimal
    if kind["type"] == "array":
        return f"{_type(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({_type(kind['keyType'])}, {_type(kind['valueType'])})"
    fields = [f"{_quoted(each['name'])} {_type(each['type'])}" for each in kind["fields"]]
    return f"STRUCT({', '.join(fields)})"


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(text_literal(text) for text in texts)}]"


def text_literal(text: str) -> str:
    """Return a text as a literal of DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
