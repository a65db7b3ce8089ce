"""Columns that a Delta table gets, as an action of its log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql.types import StructField, StructType


def schema_of(snapshot: Any) -> StructType:
    """The columns of a snapshot of Kernel's."""
    return StructType.fromJson(json.loads(snapshot.getSchema().toJson()))


def metadata_action(kernel: Any, snapshot: Any, columns: Sequence[StructField]) -> Any:
    """The action after which the table of `snapshot` has `columns`, too, behind its own.

    Kernel's builder of transactions changes the columns of a table with column mapping only, which reput does not
    write, so the table's metadata is written as Kernel writes it for a new table.
    """
    schema = StructType([*schema_of(snapshot), *columns])
    parsed = kernel.internal.types.DataTypeJsonSerDe.deserializeStructType(json.dumps(schema.jsonValue()))
    metadata = snapshot.getMetadata().withNewSchema(parsed)
    return kernel.internal.actions.SingleAction.createMetadataSingleAction(metadata.toRow())
