"""Where a Delta table can be created, and the statement that creates it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql.types import StructType

from reput.sinks.table.refusal import column, output_errors, quoted, table_name
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


def create_sql(path: Path, schema: StructType, cluster_by: Sequence[str], properties: dict[str, str]) -> str:
    """The statement CREATE TABLE for `path`; raises OutputError if Spark would replace text in it."""
    escaped = str.maketrans({"\\": r"\\", "'": r"\'"})
    statement = f"CREATE TABLE {table_name(path)} ({', '.join(map(column, schema))}) USING DELTA"
    if cluster_by:
        statement += f" CLUSTER BY ({', '.join(map(quoted, cluster_by))})"
    if properties:
        pairs = (f"'{key.translate(escaped)}' = '{properties[key].translate(escaped)}'" for key in properties)
        statement += f" TBLPROPERTIES ({', '.join(pairs)})"
    if "${" in statement:
        raise OutputError(f"cannot create a Delta table at {path}: Spark would replace what follows '${{'", file=path)
    return statement
