"""The rows of a query that Spark runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.types import CalendarIntervalType, DayTimeIntervalType, VariantVal, YearMonthIntervalType

from reput.streaming.sql.result import Result

# The finalizer of the iterator that `toLocalIterator` returns.
_ROWS_GO: Final = "PyLocalIterable.__del__"
# Python has no value for two of these types, so all intervals are shown as Spark's text.
_AS_TEXT: Final = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


class SparkResult(Result):
    """The rows of a DataFrame, of which one partition at a time is held in memory; of Arrow's all are."""

    def __init__(self, rows: DataFrame) -> None:
        self.names = rows.columns
        self._rows = _with_texts(rows)

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows, which need not be read to their end.

        If they are not, pyspark's iterator may find its socket closed when it is finalized, and Python would print it.
        """
        if not isinstance(sys.unraisablehook, _UnreadRows):
            sys.unraisablehook = _UnreadRows(sys.unraisablehook)
        return (tuple(map(_plain, row)) for row in self._rows.toLocalIterator())

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows, all of them at once."""
        table = self._rows.toArrow().rename_columns(self.names)
        return table.schema, iter(table.to_batches())


class _UnreadRows:
    """A hook that ignores failures in finalizing an iterator over rows, and passes all others on to `others`."""

    def __init__(self, others: Callable[[Any], Any]) -> None:
        self._others = others

    def __call__(self, unraisable: Any) -> None:
        name = getattr(unraisable.object, "__qualname__", "")
        if not (name.endswith(_ROWS_GO) and isinstance(unraisable.exc_value, OSError | ValueError)):
            self._others(unraisable)


def _with_texts(result: DataFrame) -> DataFrame:
    if not any(isinstance(field.dataType, _AS_TEXT) for field in result.schema):
        return result
    numbered = result.toDF(*(str(number) for number in range(len(result.columns))))  # names may repeat
    return numbered.select(
        *(
            sql.col(str(number)).cast("string") if isinstance(field.dataType, _AS_TEXT) else sql.col(str(number))
            for number, field in enumerate(result.schema)
        )
    )


def _plain(value: Any) -> Any:
    """A value without types of pyspark's: a struct is a dict."""
    if isinstance(value, Row):
        return {name: _plain(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, VariantVal):
        return _plain(value.toPython())
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value
