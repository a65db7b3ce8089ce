"""Read tables or Parquet files with a library of Python, and print every row as a line of JSON.

    python by_python.py READER PATH...

It runs in the reader's own environment, so it imports nothing of the project. Before the rows of a path, the path is
printed as a JSON text. Of values: a time is its microseconds since 1970, bytes are hexadecimal digits, a map is a list
of pairs, everything else is as the library returns it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

Rows = Iterable[Mapping[str, Any]]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def pyarrow(path: str) -> Rows:
    from pyarrow.parquet import ParquetFile

    return rows_of(ParquetFile(path).iter_batches())


def deltalake(path: str) -> Rows:
    """delta-rs reads the files by itself (Rust)."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    tables = QueryBuilder().register("messages", DeltaTable(path))
    return rows_of(map(pa.record_batch, tables.execute("SELECT * FROM messages")))


def deltalake_dataset(path: str) -> Rows:
    """Pyarrow reads the files that the Delta log names."""
    from deltalake import DeltaTable

    return rows_of(DeltaTable(path).to_pyarrow_dataset().to_batches())


def polars(path: str) -> Rows:
    import polars as pl

    return pl.scan_delta(path).collect().iter_rows(named=True)


def duckdb(path: str) -> Rows:
    import duckdb as db

    return by_dbapi(db.connect(), f"SELECT * FROM read_parquet('{path}')")


def duckdb_delta(path: str) -> Rows:
    """DuckDB's own extension, out of a package of PyPI."""
    import duckdb as db
    import duckdb_extension_delta as package

    (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
    connection = db.connect()
    connection.load_extension(str(extension))
    return by_dbapi(connection, f"SELECT * FROM delta_scan('{path}')")


def by_dbapi(connection: Any, statement: str) -> Rows:
    cursor = connection.execute(statement)
    names = [column[0] for column in cursor.description]
    while rows := cursor.fetchmany(10_000):
        for row in rows:
            yield dict(zip(names, row, strict=True))


def daft(path: str) -> Rows:
    import daft as df

    return rows_of(df.read_deltalake(path).to_arrow_iter())


def datafusion(path: str) -> Rows:
    from datafusion import SessionContext

    return rows_of(SessionContext().read_parquet(path).to_arrow_table().to_batches())


def chdb(path: str) -> Rows:
    return by_clickhouse(f"file('{path}', Parquet)")


def chdb_delta(path: str) -> Rows:
    """ClickHouse reads such a table only below the working directory."""
    os.chdir("/")
    return by_clickhouse(f"deltaLakeLocal('{path}')")


def by_clickhouse(source: str) -> Rows:
    """Its type String has texts and bytes, which its Arrow takes for texts."""
    import chdb as db

    has_bytes = "body_bytes" in str(db.query(f"DESCRIBE TABLE {source}"))
    as_digits = "REPLACE (lower(hex(body_bytes)) AS body_bytes)" if has_bytes else ""
    return rows_of(db.query(f"SELECT * {as_digits} FROM {source}", "ArrowTable").to_batches())


def pyiceberg(path: str) -> Rows:
    """A table of Iceberg's that takes the file as it is."""
    from pyarrow.parquet import read_schema
    from pyiceberg.catalog.sql import SqlCatalog

    with TemporaryDirectory() as home:
        catalog = SqlCatalog("readers", uri="sqlite:///:memory:", warehouse=f"file://{home}")
        catalog.create_namespace("readers")
        table = catalog.create_table("readers.messages", read_schema(path))
        table.add_files([path])
        yield from rows_of(table.scan().to_arrow_batch_reader())


def spark(path: str) -> Rows:
    return by_spark(path, vectorized=True)


def spark_by_row(path: str) -> Rows:
    return by_spark(path, vectorized=False)


def by_spark(path: str, *, vectorized: bool) -> Rows:
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in (
        ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        ("spark.sql.parquet.enableVectorizedReader", str(vectorized).lower()),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.databricks.delta.snapshotPartitions", "2"),
        ("spark.ui.enabled", "false"),
    ):
        builder = builder.config(name, value)
    frame = configure_spark_with_delta_pip(builder).getOrCreate().read.format("delta").load(path)
    assert vectorized == ("Batched: true" in frame._jdf.queryExecution().toString())
    return rows_of(frame.toArrow().to_batches())


def sail(path: str) -> Rows:
    return rows_of(sail_session().read.format("delta").load(path).toArrow().to_batches())


@cache
def sail_session() -> Any:
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.server = server  # as long as the session
    return session


def fastparquet(path: str) -> Rows:
    from fastparquet import ParquetFile

    return ParquetFile(path).to_pandas().to_dict("records")


def rows_of(batches: Iterable[Any]) -> Rows:
    return (row for batch in batches for row in batch.to_pylist())


def plain(value: Any) -> Any:
    """A value for JSON."""
    if isinstance(value, datetime):
        return (value - EPOCH if value.tzinfo else value.replace(tzinfo=timezone.utc) - EPOCH) // timedelta(
            microseconds=1
        )
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return [list(pair) for pair in value.items()]
    if isinstance(value, list | tuple):
        return [list(each.values()) if isinstance(each, Mapping) else plain(each) for each in value]
    return value


READERS: dict[str, Callable[[str], Rows]] = {
    each.__name__: each
    for each in (
        pyarrow,
        deltalake,
        deltalake_dataset,
        polars,
        duckdb,
        duckdb_delta,
        daft,
        datafusion,
        chdb,
        chdb_delta,
        pyiceberg,
        spark,
        spark_by_row,
        sail,
        fastparquet,
    )
}

if __name__ == "__main__":
    # A library that gives times without a zone means those of the process.
    os.environ["TZ"] = "UTC"
    time.tzset()
    # The output of libraries goes elsewhere.
    out, sys.stdout = sys.stdout, sys.stderr
    for path in sys.argv[2:]:
        out.write(json.dumps(path) + "\n")
        for row in READERS[sys.argv[1]](str(Path(path))):
            out.write(json.dumps({name: plain(value) for name, value in row.items() if value is not None}) + "\n")
    out.flush()
