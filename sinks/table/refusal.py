"""Changes by others that keep reput from writing a table, explained in words, with what undoes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from reput.sinks.table.location import TableLocation
from reput.source.errors import OutputError, ReputError, output_error_of
from reput.source.printable import printable

_CONSTRAINT = "delta.constraints."
_MAPPING = "delta.columnMapping.mode"
# A column's name in the files: the one that it had when the mapping was switched on.
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


def table_name(path: TableLocation) -> str:
    """The table's name in SQL."""
    return "delta." + quoted(str(path))


def quoted(identifier: str) -> str:
    """An identifier, quoted for SQL."""
    return "`" + identifier.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as SQL's literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def column(field: StructField) -> str:
    """A column's declaration in SQL."""
    return f"{quoted(field.name)} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"


def added_columns(wanted: StructType, found: StructType) -> list[str]:
    """The columns that others added and that reput leaves null."""
    return [column(field) for field in found if field.name not in wanted.fieldNames() and field.nullable]


def new_columns(wanted: StructType, found: StructType, later: Collection[str]) -> list[StructField]:
    """The columns of `wanted` named in `later` that the table lacks."""
    there = {ours.name for ours, _ in _named_alike(wanted, found)}
    return [field for field in wanted if field.name in later and field.name not in there]


def _named_alike(wanted: StructType, found: StructType) -> list[tuple[StructField, StructField]]:
    """The columns of both with one name; to Delta, small and capital letters are the same."""
    names = {field.name.lower(): field for field in found}
    return [(field, names[field.name.lower()]) for field in wanted if field.name.lower() in names]


def refusal(
    path: TableLocation,
    version: int,
    wanted: StructType,
    found: StructType,
    partitions: Sequence[str],
    properties: Mapping[str, str],
    later: Collection[str] = (),
    version_with: Callable[[Sequence[str]], int | None] | None = None,
) -> OutputError | None:
    """The error for a table that cannot be written at `version`, with what undoes it; None if it can be written.

    `wanted` are the columns that reput writes, `found` the table's. It may lack those of `wanted` that are named in
    `later`. A column that others added may stay if it is nullable. `version_with` tells the last version that had the
    columns with these names.
    """
    name, alter = table_name(path), f"ALTER TABLE {table_name(path)}"
    columns = {column(field) for field in found}
    other_kind = [
        pair for pair in _named_alike(wanted, found) if pair[0].name in later and column(pair[0]) not in columns
    ]
    lacking = [column(field) for field in wanted if field.name not in later and column(field) not in columns]
    others = [column(field) for field in found if column(field) not in {column(field) for field in wanted}]
    required = [field.name for field in found if field.name not in wanted.fieldNames() and not field.nullable]
    mapping = properties.get(_MAPPING, "none")
    if partitions:
        listed = ", ".join(f"partition column {each}" for each in partitions)
        cause = f"{path}: a Delta table with other columns, {listed}"
        return OutputError(cause, advice="give another path", file=path)
    if lacking:
        names = [field.name for field in wanted if column(field) in lacking]
        renamed = {field.metadata.get(_PHYSICAL_NAME): field.name for field in found if field.name not in names}
        if mapping != "none" and all(each in renamed for each in names):
            renames = (f"{alter} RENAME COLUMN {quoted(renamed[each])} TO {quoted(each)}" for each in names)
            undo = f"columns were renamed, give them their names again: {'; '.join(renames)}"
        else:
            known = None if version_with is None else version_with(names)
            number = "N' with the version before" if known is None else f"{known}'"
            undo = (
                f"'RESTORE TABLE {name} TO VERSION AS OF {number} undoes that columns were dropped or got other types, "
                "and 'reput rebuild --only table' makes the rows again that came since"
            )
        return OutputError(
            f"{path}: a Delta table with other columns at version {version}, lacking {lacking}, not wanted {others}",
            advice=f"{undo}; for a table that is not reput's give another path",
            file=path,
        )
    if other_kind and mapping == "none":
        ours, there = other_kind[0]
        free = quoted(f"{there.name}_before")
        undo = (
            f"{alter} SET TBLPROPERTIES ('{_MAPPING}' = 'name', 'delta.minReaderVersion' = '2', "
            f"'delta.minWriterVersion' = '5'); {alter} RENAME COLUMN {quoted(there.name)} TO {free}; "
            f"{alter} SET TBLPROPERTIES ('{_MAPPING}' = 'none')"
        )
        cause = f"{path}: reput adds the column {column(ours)}, and the table has {column(there)}, which others added"
        return OutputError(cause, advice=f"give theirs another name: {undo}", file=path)
    if required:
        undo = "; ".join(f"{alter} ALTER COLUMN {quoted(each)} DROP NOT NULL" for each in required)
        cause = f"{path}: columns were added that must not be null, not wanted {others}"
        return OutputError(cause, advice=f"undo it: {undo}", file=path)
    if mapping != "none":  # files with the columns' own names would be read as null
        undo = f"{alter} SET TBLPROPERTIES ('{_MAPPING}' = 'none')"
        cause = f"{path}: columns mapped by {mapping}, which reput does not write"
        return OutputError(cause, advice=f"undo it: {undo}", file=path)
    constraints = [key.removeprefix(_CONSTRAINT) for key in properties if key.startswith(_CONSTRAINT)]
    if constraints:
        undo = "; ".join(f"{alter} DROP CONSTRAINT {quoted(each)}" for each in constraints)
        cause = f"{path}: a constraint on its rows, which reput does not check"
        return OutputError(cause, advice=f"undo it: {undo}", file=path)
    return None


@contextmanager
def output_errors(what: str, file: TableLocation, kind: type[ReputError] | None = None) -> Iterator[None]:
    """Raise errors of the system and of Arrow about `file` as `kind`, by default by the error, `what` in front."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise (kind or output_error_of(error))(f"{what}: {first_line(error)}", file=file) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    said = getattr(error, "strerror", None) or error
    return printable(str(said).strip().partition("\n")[0])
