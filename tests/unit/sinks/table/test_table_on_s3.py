"""A message table on S3, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest
from faults.fault_files import Stopped
from support.delta_rows import delta_table
from support.kept_table import KeptTable
from support.s3_server import BUCKET, S3Server, s3_server

from reput.sinks.table import cleaning as cleaning_module
from reput.sinks.table import consumption, message_table
from reput.sinks.table import upkeep as upkeep_module
from reput.sinks.table.cleaning import cleaning
from reput.sinks.table.columns import FIRST_SEEN, PROGRESS
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.sinks.table.forget import ForgetRequest, Forgetting
from reput.sinks.table.location import S3Location
from reput.sinks.table.log import read_snapshot
from reput.sinks.table.lookup import TableLookup
from reput.sinks.table.retention import RowRetention
from reput.sinks.table.storage import S3Storage, table_storage
from reput.sinks.table.upkeep import TableUpkeep
from reput.source.errors import OutputError

LONG = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def kept(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptTable:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return on_s3(KeptTable(None, tmp_path / "kept"), tmp_path.name)


def on_s3(kept: KeptTable, name: str, bucket: str = BUCKET) -> KeptTable:
    anywhere: Any = kept
    anywhere.path = S3Location(bucket, f"tables/{name}")
    return kept


def offsets_by_key(kept: KeptTable, key: str) -> list[int]:
    return sorted(row["physical_offset"] for row in TableLookup(location(kept)).by_key(key, 100).rows)


def location(kept: KeptTable) -> S3Location:
    assert isinstance(kept.path, S3Location)
    return kept.path


def test_rows_are_there_once(kept: KeptTable, tmp_path: Path) -> None:
    """In several commits, over restarts, of two brokers; as others change it beside."""
    table = kept.open()
    kept.fill(table, range(1, 20, 2))
    again = kept.open()
    assert again.end_offset == kept.offsets[19]
    kept.fill(again, [25])
    other = on_s3(KeptTable(None, tmp_path / "other", count=10, broker="c"), tmp_path.name)
    other.fill(other.open(), [4, 10])
    assert kept.found() == kept.expected(0, 25)
    assert other.found() == other.expected(0, 10)
    upkeep = TableUpkeep(again.delta, "b", 10**6)
    assert upkeep.step(LONG).merges > 0
    delta_table(location(kept)).optimize.compact()
    kept.fill(again, [30])
    kept.fill(kept.open(), [60])
    assert kept.found() == kept.expected(0, 60)
    assert other.found() == other.expected(0, 10)
    for number in (0, 7, 29, 59):
        here = [kept.expected()[number], *([other.expected()[number]] if number < 10 else [])]
        assert offsets_by_key(kept, f"k{number}") == sorted(here)


@pytest.mark.slow
def test_writers_race(kept: KeptTable, tmp_path: Path) -> None:
    """Each commit has a version of its own, and none is lost."""
    kept.open()
    brokers = [on_s3(KeptTable(None, tmp_path / name, count=8, broker=name), tmp_path.name) for name in "xyz"]
    tables = [each.open() for each in brokers]
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            brokers[number].fill(tables[number], range(1, 9))
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [each.found() for each in brokers] == [each.expected() for each in brokers]
    assert delta_table(location(kept)).version() == 3 * 8


def dying(fatal: int, calls: list[str]) -> Callable[[Any], Any]:
    """Let the process die before change number `fatal` of the table's objects."""

    def wrap(real: Any) -> Any:
        def change(storage: S3Storage, name: str, *arguments: Any, **named: Any) -> Any:
            calls.append(name)
            if len(calls) == fatal:
                raise Stopped
            return real(storage, name, *arguments, **named)

        return change

    return wrap


@pytest.mark.slow
def test_upkeep_dies_anywhere(kept: KeptTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each put and removal of a merge, a key filter or the clean-up; the next run has all rows and finishes."""
    monkeypatch.setattr(cleaning_module, "READ_FOR_S", 0)
    monkeypatch.setitem(message_table._PROPERTIES, "delta.checkpointInterval", "5")
    monkeypatch.setattr(upkeep_module, "CLEANED_EVERY", 1)
    kept = on_s3(KeptTable(None, tmp_path / "kept", count=600), tmp_path.name)
    table = kept.open()
    filled, deaths, done = 0, 0, False
    while not done:
        kept.fill(table, range(filled + 1, filled + 10))
        filled += 9
        calls: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            for name in ("put", "_put", "_remove"):
                patch.setattr(S3Storage, name, dying(deaths + 1, calls)(getattr(S3Storage, name)))
            with suppress(Stopped):
                TableUpkeep(table.delta, "b", 5).step(LONG)
        done = len(calls) <= deaths
        deaths += not done
        table = kept.open()
        TableUpkeep(table.delta, "b", 5).step(LONG)
        assert kept.found() == kept.expected(0, filled)
    assert deaths > 10
    storage = table_storage(location(kept))
    there = {file.name for file in storage.files()}
    assert set(delta_table(location(kept)).file_uris()) <= {f"{storage.uri}/{name}" for name in there}


@pytest.mark.slow
def test_rows_expire_and_the_log_is_cut(kept: KeptTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning_module, "READ_FOR_S", 0)
    monkeypatch.setitem(message_table._PROPERTIES, "delta.checkpointInterval", "5")
    table = kept.open()
    kept.fill(table, range(1, 13))
    taken = TableUpkeep(table.delta, "b", 0, RowRetention.parse("A=1d")).expire_to_the_end()
    assert taken.rows == 6
    assert kept.found() == kept.expected(0, 12)[1::2]
    found = cleaning(table.delta.storage, table.delta.version, 2)
    assert found.commits > 0
    found.carry_out()
    assert kept.open().end_offset == kept.offsets[12]
    assert kept.found() == kept.expected(0, 12)[1::2]


@pytest.mark.slow
def test_rows_are_made_again(kept: KeptTable) -> None:
    kept.fill(kept.open(), [10, 20, 60])
    delta_table(location(kept)).delete(f"physical_offset < {kept.offsets[15]}")
    kept.repair()
    assert kept.found() == kept.expected()


def test_rows_are_forgotten(kept: KeptTable, server: S3Server) -> None:
    """Not in a bucket that keeps versions: nothing is changed there."""
    table = kept.open()
    kept.fill(table, [10, 20])
    done = Forgetting(table.delta, ForgetRequest(keys=["k7"])).run()
    assert (done.rows, done.left.is_clean) == (1, True)
    assert kept.found() == [*kept.expected(0, 7), *kept.expected(8, 20)]
    client = boto3.client("s3", endpoint_url=server.url)
    client.create_bucket(Bucket="versions")
    client.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    versioned = on_s3(KeptTable(None, kept.root.with_name("v"), count=5), "v", "versions")
    table = versioned.open()
    versioned.fill(table, [5])
    with pytest.raises(OutputError, match="the bucket versions keeps versions of objects"):
        Forgetting(table.delta, ForgetRequest(keys=["k3"])).run()
    assert versioned.found() == versioned.expected()


def test_the_second_creator_takes_the_first_ones_table(kept: KeptTable) -> None:
    """Both saw that there was none."""
    with mock.patch("reput.sinks.table.delta_table.is_vacant", return_value=True):
        kept.fill(kept.open(), [5])
        with mock.patch("reput.sinks.table.delta_table.is_table", return_value=False):
            kept.fill(kept.open(), [9])
    assert kept.found() == kept.expected(0, 9)


def test_something_else_is_there(kept: KeptTable) -> None:
    table_storage(location(kept)).put("mine.txt", b"mine", durable=True)
    with pytest.raises(OutputError, match=r"is not a Delta table, it holds mine\.txt"):
        kept.open()


def test_the_ledger_of_consumption_is_beside_the_table(kept: KeptTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are committed and merged, and the next start continues after them."""
    monkeypatch.setattr(consumption, "_MERGED_AT", 2)
    for number in range(4):
        ledger = ConsumptionTable(location(kept), "broker-a", 1000)
        before, kind = (None, FIRST_SEEN) if number == 0 else (number - 1, PROGRESS)
        ledger.append(
            [Move("billing", "orders", 0, before, number, None if before is None else number, number + 1, kind)], number
        )
        ledger.tidy()
    assert ledger.version == 3
    assert ledger.state() == ({("billing", "orders"): {0: 3}}, 3)
    assert len(list(read_snapshot(ledger.path).files())) < 4
