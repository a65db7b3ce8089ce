"""Rows and commits of a Delta table as delta-rs reads them, which knows nothing of Spark and asks for no query."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow.compute as pc
from deltalake.exceptions import DeltaProtocolError
from pyspark.sql import SparkSession

from reput.sinks.table.location import TableLocation
from reput.sinks.table.storage import table_storage


def delta_table(table: TableLocation) -> deltalake.DeltaTable:
    """The table as delta-rs opens it, also on S3."""
    storage = table_storage(table)
    return deltalake.DeltaTable(storage.uri, storage_options=storage.deltalake_options)


def offsets(spark: SparkSession | None, table: TableLocation, broker: str | None = None) -> list[int]:
    """The physical offset of each row, of one broker or of all, in ascending order.

    Spark reads a table with features that delta-rs does not know, such as deletion vectors.
    """
    with suppress(DeltaProtocolError):
        rows = delta_table(table).to_pyarrow_dataset()
        which = None if broker is None else pc.field("broker") == broker
        return sorted(rows.to_table(columns=["physical_offset"], filter=which)["physical_offset"].to_pylist())
    assert spark is not None
    frame = spark.read.format("delta").load(str(table))
    frame = frame if broker is None else frame.where(f"broker = '{broker}'")
    return sorted(row.physical_offset for row in frame.select("physical_offset").collect())


def rows(table: Path) -> list[dict[str, Any]]:
    """All rows with all columns, by broker and physical offset."""
    found = deltalake.DeltaTable(str(table)).to_pyarrow_dataset().to_table().to_pylist()
    return sorted(found, key=lambda row: (row["broker"], row["physical_offset"]))


def operations(table: Path) -> list[str]:
    """Return the operation of each commit, in the order of the table's history."""
    return [commit["operation"] for commit in delta_table(table).history()][::-1]
