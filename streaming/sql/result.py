"""What a query gives, from either engine: its columns' names, and its rows as Python's values or as Arrow's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa


class Result(ABC):
    """The rows of a query, which may be asked for once."""

    names: list[str]

    @abstractmethod
    def rows(self) -> Iterator[Sequence[Any]]:
        """The rows, one by one: NULL is None, times are UTC's, maps and structs are dicts."""

    @abstractmethod
    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows as Arrow has them, with the types that a Parquet file gets."""
