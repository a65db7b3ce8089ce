"""What a query takes and gives, whichever engine runs it: relations beside the table, and its rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import pyarrow as pa

#: What a statement may read beside the table, by name in lower case: a few rows, in memory.
Relations: TypeAlias = Mapping[str, pa.Table]
NO_RELATIONS: Final[Relations] = MappingProxyType({})


class Result(ABC):
    """The rows of a query, which may be asked for once."""

    names: list[str]

    @abstractmethod
    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows, one by one: NULL is None, times are UTC's, maps and structs are dicts."""

    @abstractmethod
    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows as Arrow has them, with the types that a Parquet file gets."""


class AnsweredResult(Result):
    """The rows of `result`; if there is none, `if_empty` is called before anything is written, and may raise."""

    def __init__(self, result: Result, if_empty: Callable[[], object]) -> None:
        self.names, self._result, self._if_empty = result.names, result, if_empty

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows."""
        rows = self._result.rows()
        first = list(islice(rows, 1))
        if not first:
            self._if_empty()
        return chain(first, rows)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows as Arrow has them."""
        schema, batches = self._result.batches()
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            self._if_empty()
        return schema, batches if first is None else chain([first], batches)


class ListedResult(Result):
    """Rows that are there."""

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.names, self._rows = list(names), rows

    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows."""
        return iter(self._rows)

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows, with the types that Arrow finds for them."""
        columns = [[row[number] for row in self._rows] for number in range(len(self.names))]
        table = pa.table(columns, names=self.names)
        return table.schema, iter(table.to_batches())
