"""A table's memory of rows that were forgotten."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.record_writer import Message, write_store

from reput.sinks.table.forgotten_rows import (
    NONE_FORGOTTEN,
    ForgettingRecord,
    ForgottenRows,
    forgotten_rows,
    no_longer_forgotten,
)
from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.storage import TableStorage, table_storage
from reput.source.errors import LaterFormatError, OutputError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions


@pytest.fixture
def storage(tmp_path: Path) -> TableStorage:
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    return table_storage(tmp_path / "t")


def forget(storage: TableStorage, **offsets: list[int]) -> None:
    record = ForgettingRecord(storage)
    for broker, each in offsets.items():
        record.add([broker] * len(each), each)
    record.put()


def test_rows_are_remembered_by_broker(storage: TableStorage) -> None:
    """Over several times of forgetting; in any order; as many as there are."""
    many = list(range(7, 3_000_000, 30))
    forget(storage, a=many[::-1], b=[2**60, 0])
    forget(storage, a=[5, 7])
    found = forgotten_rows(storage, "a")
    assert found.offsets.tolist() == [5, *many]
    day = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    assert str(found).endswith(f"rows were forgotten on {day}")
    assert forgotten_rows(storage, "b").offsets.tolist() == [0, 2**60]
    assert not len(forgotten_rows(storage, "c").offsets)
    assert (found.between(0, 8), found.between(6, 7), found.between(7, 38)) == (2, 0, 2)


def test_rows_that_are_there_again(storage: TableStorage) -> None:
    """In a range, of one broker; the file goes with its last row."""
    forget(storage, a=[5, 7, 9], b=[5])
    no_longer_forgotten(storage, "a", 7, 9)
    assert forgotten_rows(storage, "a").offsets.tolist() == [5, 9]
    no_longer_forgotten(storage, "a", 0, 100)
    assert forgotten_rows(storage, "b").offsets.tolist() == [5]
    no_longer_forgotten(storage, "b", 0, 100)
    assert storage.files("_forgotten") == []


def test_nothing_is_remembered_of_nothing(storage: TableStorage) -> None:
    """Nor of rows that do not belong to the log of any broker."""
    record = ForgettingRecord(storage)
    record.add([None, "a"], [3, None])
    record.put()
    assert storage.files("_forgotten") == []


def test_a_record_that_cannot_be_read(storage: TableStorage) -> None:
    """It is named; that of a later version is not taken for damaged."""
    forget(storage, a=[5])
    (file,) = storage.files("_forgotten")
    document = json.loads(storage.read(file.name))
    storage.put(file.name, json.dumps(document | {"formatVersion": 2}).encode(), durable=True)
    with pytest.raises(LaterFormatError, match="has format 2"):
        forgotten_rows(storage, "a")
    storage.put(file.name, b"{", durable=True)
    with pytest.raises(OutputError, match=file.name):
        forgotten_rows(storage, "a")


def test_days_in_words() -> None:
    rows = ForgottenRows(np.array([1, 2, 3]), {"2026-11-02": 1, "2026-10-30": 2})
    assert str(rows) == "3 rows were forgotten from 2026-10-30 to 2026-11-02"
    assert str(ForgottenRows(np.array([1]), {"2026-11-02": 1})) == "1 row was forgotten on 2026-11-02"


def test_forgotten_rows_are_not_written(tmp_path: Path, storage: TableStorage) -> None:
    """By whatever makes a file of the table from the log; all others are."""
    write_store(tmp_path / "store", [Message("T", body=b"x" * number) for number in range(20)], 1 << 16)
    log = LogReader(SourceOptions.parse({"path": str(tmp_path / "store" / "commitlog"), "tailGuardMs": "0"}))
    (span,) = log.split(0, log.settled_end(0))

    def offsets(forgotten: ForgottenRows) -> list[int]:
        (row,) = TableFileWriter(storage, "b", 0, log.decode_options, forgotten=forgotten).write(span).to_pylist()
        return (
            [] if row["path"] is None else pq.read_table(storage.location / row["path"])["physical_offset"].to_pylist()
        )

    every = offsets(NONE_FORGOTTEN)
    some = [every[0], every[7], every[19], every[19] + 1]
    forget(storage, b=some)
    assert offsets(forgotten_rows(storage, "b")) == [each for each in every if each not in some]
    forget(storage, b=every)
    assert offsets(forgotten_rows(storage, "b")) == []
