"""Records of a window as rows: the table's columns, what the record adds, its properties and its body on request.

Rows are made column by column, from the columns that the message table gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.source.errors import CorruptRecordError, OptionError
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.record.message_body import decompress_body
from reput.source.record.message_format import MAGIC_AT, MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
from reput.source.record.message_sys_flag import flag_names
from reput.source.rows.message_batches import message_batch
from reput.source.rows.message_schema import MESSAGE_SCHEMA

BODY_TEXT: Final = "text"
BODY_HEX: Final = "hex"

_FIRST = ("physical_offset", "msg_size", "verdict", "magic_version")
_TABLE = ("topic", "queue_id", "queue_offset", "store_time", "flags", "body_size", "tags", "keys", "uniq_key", "msg_id")
# The last byte of either magic code tells them apart.
_MAGIC_VERSIONS = {MESSAGE_MAGIC_CODE & 0xFF: 1, MESSAGE_MAGIC_CODE_V2 & 0xFF: 2}
_LAST_BYTE = 3


@dataclass(frozen=True)
class Shown:
    """What is shown of each record beside its columns; of a body at most `body_bytes_max` bytes."""

    properties: bool = False
    body: str | None = None
    body_bytes_max: int = 256

    def __post_init__(self) -> None:
        if self.body not in (None, BODY_TEXT, BODY_HEX):
            raise OptionError(f"--body {self.body}: {BODY_TEXT} or {BODY_HEX} wanted")

    @property
    def table_names(self) -> list[str]:
        """The columns of a table for people."""
        return [*_FIRST, *_TABLE, *self._more()]

    @property
    def json_names(self) -> list[str]:
        """The fields of a line of JSON: those of ``reput query --format json``, and what a record adds."""
        names = list(_FIRST)
        for name in MESSAGE_SCHEMA.names:
            if name not in (*_FIRST, "properties"):
                names.append(name)
                names += [f"{name}stamp"] if name.endswith("_time") else ["flags"] if name == "sys_flag" else []
        return [*names, *self._more()]

    def _more(self) -> Iterator[str]:
        if self.properties:
            yield "properties"
        if self.body is not None:
            yield "body" if self.body == BODY_TEXT else "body_hex"
            yield "body_bytes_left_out"


@dataclass(frozen=True)
class Selection:
    """Which records are shown; None takes all. Store times are `[since, until)`, in milliseconds."""

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    since: int | None = None
    until: int | None = None

    @property
    def is_of_records(self) -> bool:
        """Whether it asks for anything that only a record has."""
        return self != Selection()

    def rows(self, batch: pa.RecordBatch, store_timestamps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """Which rows of a batch of ``MESSAGE_SCHEMA`` are meant, bool[n]; None for all of them."""
        if not self.is_of_records:
            return None
        chosen = np.ones(len(batch), bool)
        if self.topic is not None:
            chosen &= pc.equal(batch["topic"], self.topic).to_numpy(zero_copy_only=False)
        if self.queue_id is not None:
            chosen &= batch["queue_id"].to_numpy() == self.queue_id
        if self.since is not None:
            chosen &= store_timestamps >= self.since
        if self.until is not None:
            chosen &= store_timestamps < self.until
        if self.key is not None:
            chosen &= self._has_key(batch)
        return chosen

    def _has_key(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Whether the key is among KEYS, or is the unique key."""
        keys = batch["keys"]
        same = pc.equal(pc.list_flatten(keys), self.key).to_numpy(zero_copy_only=False)
        is_unique_key = pc.fill_null(pc.equal(batch["uniq_key"], self.key), False)
        found = np.array(is_unique_key.to_numpy(zero_copy_only=False))
        found[pc.list_parent_indices(keys).to_numpy()[same]] = True
        return found


class RecordRows:
    """Some records of a window, by column."""

    def __init__(self, columns: RecordColumns, selection: Selection, shown: Shown, verdict: str) -> None:
        batch, rows = message_batch(columns), np.arange(len(columns))
        chosen = selection.rows(batch, columns.store_timestamp)
        if chosen is not None:
            batch, rows = batch.filter(pa.array(chosen)), rows[chosen]
        self._columns, self._batch, self._rows = columns, batch, rows
        self._shown, self._verdict = shown, verdict

    def __len__(self) -> int:
        return len(self._rows)

    def first(self, count: int) -> None:
        """Keep only the first `count` of them."""
        self._batch, self._rows = self._batch.slice(0, count), self._rows[:count]

    @property
    def msg_bytes(self) -> int:
        """The size of all of them in bytes."""
        return int(self._columns.msg_size[self._rows].sum())

    @property
    def end(self) -> int:
        """The physical offset behind the last of them."""
        return int(self._columns.physical_offset[self._rows[-1]] + self._columns.msg_size[self._rows[-1]])

    def topics(self) -> dict[str, int]:
        """How many there are of each topic."""
        return {each["values"]: each["counts"] for each in pc.value_counts(self._batch["topic"]).to_pylist()}

    def values(self, names: list[str]) -> list[list[Any]]:
        """The columns of these names, as plain values."""
        texts, left_out = self._bodies() if self._shown.body is not None else ([], [])
        more: dict[str, list[Any]] = {"body": texts, "body_hex": texts, "body_bytes_left_out": left_out}
        return [more[name] if name in more else self._column(name) for name in names]

    def _column(self, name: str) -> list[Any]:
        if name == "verdict":
            return [self._verdict] * len(self)
        if name == "magic_version":
            at = self._columns.parts[self._rows, rk.AT] + MAGIC_AT + _LAST_BYTE
            return [_MAGIC_VERSIONS[code] for code in self._columns.data[at].tolist()]
        if name == "flags":
            return [flag_names(flag) for flag in self._batch["sys_flag"].to_pylist()]
        if name == "properties":
            return [dict(pairs) for pairs in self._batch[name].to_pylist()]
        if name == "store_timestamp":
            return list(self._columns.store_timestamp[self._rows].tolist())
        if name == "born_timestamp":
            return list(self._columns.other_fields().born_timestamp[self._rows].tolist())
        if name.endswith("_timestamp"):
            return list(self._milliseconds(name.removesuffix("stamp")).to_pylist())
        if name.endswith("_time"):
            return _time_texts(self._milliseconds(name))
        return list(self._batch[name].to_pylist())

    def _milliseconds(self, name: str) -> pa.Array:
        return pc.divide(self._batch[name].cast(pa.int64()), 1000)

    def _bodies(self) -> tuple[list[str], list[int]]:
        """Each body as far as it is shown, and how many bytes are not; text is that before it was compressed."""
        texts, left_out = [], []
        for row in self._rows.tolist():
            at, size = (int(self._columns.parts[row, part]) for part in (rk.BODY, rk.BODY_SIZE))
            body = self._columns.data[at : at + size].tobytes()
            if self._shown.body == BODY_TEXT:
                with suppress(CorruptRecordError):  # then it is shown as it stands in the log
                    body = decompress_body(body, int(self._columns.sys_flag[row]))
            part = body[: self._shown.body_bytes_max]
            is_text = self._shown.body == BODY_TEXT
            texts.append(part.decode(errors="backslashreplace") if is_text else part.hex())
            left_out.append(len(body) - len(part))
        return texts, left_out


def _time_texts(milliseconds: pa.Array) -> list[str | None]:
    """Times as ``lines.time_text`` writes them, None where there is none."""
    valid = milliseconds.is_valid().to_numpy(zero_copy_only=False)
    times = pc.fill_null(milliseconds, 0).to_numpy().astype("datetime64[ms]")
    texts = np.datetime_as_string(times, unit="ms").tolist()
    return [f"{text}Z" if is_known else None for text, is_known in zip(texts, valid.tolist(), strict=True)]
