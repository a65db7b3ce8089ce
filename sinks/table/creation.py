"""Where a Delta table can be created, and the statement that creates it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql.types import StructType

from reput.sinks.table.refusal import column, literal, output_errors, table_name
from reput.source.errors import OutputError


def is_vacant(path: Path) -> bool:
    """Whether a table can be created at `path`: False where one is; raises OutputError for anything else there."""
    with output_errors(f"cannot look into {path}", path):
        names = ["a file"] if path.exists() else []
        if path.is_dir():
            names = sorted(entry.name for entry in path.iterdir())
        if any((path / "_delta_log").glob("*.json")):
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


def create_sql(path: Path, schema: StructType, properties: Mapping[str, str], comment: str) -> str:
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
