"""Everything that the page tells, computed once from one version of the table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from reput.sinks.table.body_schema import BODY_SCHEMA
from reput.sinks.table.location import TableLocation
from reput.streaming.config.run_options import SqlOptions
from reput.streaming.report.contents import Contents, contents_of
from reput.streaming.report.detours import Detours, detours_of
from reput.streaming.report.distribution import Distribution, body_sizes, delays, record_sizes
from reput.streaming.report.left_out import LeftOut, left_out_of
from reput.streaming.report.queue_order import Order, order_of
from reput.streaming.report.selection import Selection
from reput.streaming.report.throughput import Throughput, throughput_of
from reput.streaming.sql.duckdb_query import table_statements
from reput.streaming.status.report import status_of
from reput.streaming.status.status_file import load_status

#: Rows of each table of the page; the others are one row together.
ROWS_SHOWN = 20


@dataclass(frozen=True)
class Figures:
    """What was found in `version` of `table`, at `made_at` (seconds since 1970).

    `status` is the status document of the tail that keeps the output; None without an output or without a document.
    `has_bodies` is whether the table has columns for them.
    `left_out_of` are the places where ranges that were left out of the log were looked up.
    """

    table: str
    version: int
    made_at: float
    selection: Selection
    contents: Contents
    throughput: Throughput | None
    record_sizes: Distribution
    body_sizes: Distribution
    delays: Distribution
    detours: Detours
    order: Order
    left_out: list[LeftOut]
    left_out_of: list[str]
    output: Path | None
    has_bodies: bool
    status: dict[str, Any] | None


def figures_of(
    table: TableLocation,
    selection: Selection,
    *,
    at: int | datetime | None = None,
    output: Path | None = None,
    options: SqlOptions | None = None,
    clock: Callable[[], float] = time.time,
) -> Figures:
    """Compute the figures; `at` and `options` as for ``duckdb_query``, `output` is what a tail keeps.

    Raises
    ------
    OutputError
        The table or the output is not there or cannot be read.
    OptionError
        The table has no such version.
    TransientError
        There is not enough memory.
    """
    left_out, looked_at = left_out_of(table, output, options)
    with table_statements(table, at=at, options=options) as statements:
        selection.make_views(statements)
        contents = contents_of(statements, ROWS_SHOWN)
        return Figures(
            table=str(table),
            version=statements.files.version,
            made_at=clock(),
            selection=selection,
            contents=contents,
            throughput=throughput_of(statements, contents.total),
            record_sizes=record_sizes(statements),
            body_sizes=body_sizes(statements),
            delays=delays(statements),
            detours=detours_of(statements, ROWS_SHOWN),
            order=order_of(statements, ROWS_SHOWN),
            left_out=left_out,
            left_out_of=looked_at,
            output=output,
            has_bodies=set(BODY_SCHEMA.names) <= set(statements.files.column_names),
            status=None if output is None or load_status(output) is None else status_of(output),
        )
