"""Columns that a Delta table gets, as an action of its log."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pyspark.sql.types import StructField, StructType

from reput.sinks.table.change import Change
from reput.sinks.table.java_names import JavaNames
from reput.sinks.table.refusal import new_columns


class NothingToAddError(Exception):
    """The table has all its columns."""


def schema_of(snapshot: Any) -> StructType:
    """The columns of a snapshot of Kernel's."""
    return StructType.fromJson(json.loads(snapshot.getSchema().toJson()))


def kernel_schema(kernel: JavaNames, schema: StructType) -> Any:
    """Columns, with their comments, in Kernel's types."""
    return kernel("internal.types.DataTypeJsonSerDe.deserializeStructType")(schema.json())


def adding(wanted: StructType, later: Collection[str]) -> Callable[[Any], Change]:
    """What gives a table those columns of `wanted` named in `later` that a snapshot lacks.

    It raises NothingToAddError if there are none.
    """

    def change(snapshot: Any) -> Change:
        lacking = new_columns(wanted, schema_of(snapshot), later)
        if not lacking:
            raise NothingToAddError
        return Change((), (), None, new_columns=lacking)

    return change


def metadata_action(kernel: JavaNames, snapshot: Any, columns: Sequence[StructField]) -> Any:
    """The action after which the table of `snapshot` has `columns`, too, behind its own.

    Kernel's builder of transactions changes the columns of a table with column mapping only, which reput does not
    write, so the table's metadata is written as Kernel writes it for a new table.
    """
    schema = StructType([*schema_of(snapshot), *columns])
    metadata = snapshot.getMetadata().withNewSchema(kernel_schema(kernel, schema))
    return kernel("internal.actions.SingleAction.createMetadataSingleAction")(metadata.toRow())
