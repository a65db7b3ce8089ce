"""The process dies, or the disk is full, at any call to the system inside the table's upkeep."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake
import pytest
from faults.fault_files import Stopped
from pyspark.sql import SparkSession
from support.kept_table import KeptTable
from support.proof_counts import Proof

from reput.sinks.files import durable_file
from reput.sinks.table import cleaning, storage
from reput.sinks.table import upkeep as upkeep_module
from reput.sinks.table.upkeep import TableUpkeep, UpkeepDone

pytestmark = [pytest.mark.spark, pytest.mark.long]

CHANGING = {"link", "unlink", "replace", "fsync", "write", "pwrite"}
LONG = 60.0
Steps = Callable[[TableUpkeep], list[UpkeepDone]]


class Counter:
    """Counts calls; at call number `fatal`, and with `for_ever` also later, `error` is raised instead."""

    def __init__(self, fatal: int, error: Callable[[], BaseException], *, for_ever: bool) -> None:
        self.calls = 0
        self._fatal = fatal
        self._error = error
        self._for_ever = for_ever

    def count(self) -> None:
        self.calls += 1
        if self.calls == self._fatal or (self._for_ever and self.calls > self._fatal):
            raise self._error()


class FaultyOs:
    """The module ``os`` for those that write."""

    def __init__(self, counter: Counter, *, tidies: bool = True) -> None:
        """Without `tidies` a file that was to be removed stays, and nothing is raised: Java waits for an answer."""
        self._counter = counter
        self._tidies = tidies

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CHANGING:
            return real

        def call(*arguments: Any, **named: Any) -> Any:
            if name == "unlink" and not self._tidies:
                return None
            self._counter.count()
            return real(*arguments, **named)

        return call


@contextmanager
def counting(fatal: int, error: Callable[[], BaseException], *, for_ever: bool) -> Iterator[Counter]:
    counter = Counter(fatal, error, for_ever=for_ever)
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(durable_file, "os", FaultyOs(counter)))
        stack.enter_context(mock.patch.object(storage, "os", FaultyOs(counter, tidies=False)))
        yield counter


@pytest.fixture
def kept(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KeptTable:
    """A table with files to merge, and a log and files to remove."""
    monkeypatch.setattr(cleaning, "READ_FOR_S", 0)
    monkeypatch.setattr(upkeep_module, "CLEANED_EVERY", 1)
    kept = KeptTable(spark, tmp_path / "first")
    table = kept.open()
    kept.spark.sql(f"ALTER TABLE {kept.sql} SET TBLPROPERTIES ('delta.checkpointInterval' = '5')")
    kept.fill(table, range(1, 17))
    assert TableUpkeep(table.delta, "b", 10**6).step(LONG).merges == 1
    kept.fill(table, range(17, 33))
    return kept


def copy_of(kept: KeptTable, name: str) -> KeptTable:
    shutil.copytree(kept.root, kept.root.with_name(name))
    other = KeptTable.__new__(KeptTable)
    other.__dict__.update(kept.__dict__)
    other.root = kept.root.with_name(name)
    other.store, other.out, other.path = (other.root / path.name for path in (kept.store, kept.out, kept.path))
    return other


def check(kept: KeptTable, before: list[int]) -> None:
    """A next run finds the table whole, continues, and tidies the rest."""
    table = kept.open()
    assert kept.found() == before
    kept.fill(table, [40])
    TableUpkeep(table.delta, "b", 5).step(LONG)
    assert kept.found() == kept.expected(0, 40)
    log_table = deltalake.DeltaTable(str(kept.path))
    assert {Path(uri).name for uri in log_table.file_uris()} <= {path.name for path in kept.path.glob("*.parquet")}


def itself(upkeep: TableUpkeep) -> list[UpkeepDone]:
    """A step that does everything itself."""
    return [upkeep.step(LONG)]


def beside(upkeep: TableUpkeep) -> list[UpkeepDone]:
    """Two steps, the first of which begins a merge that a thread writes."""
    with ThreadPoolExecutor(1) as pool:
        first = upkeep.step(LONG, beside=pool)
        pool.submit(int).result()  # behind the merge
        return [first, upkeep.step(LONG, beside=pool)]


STEPS = pytest.mark.parametrize("steps", [itself, beside])


def calls_of(kept: KeptTable, steps: Steps) -> int:
    """How many calls undisturbed steps make; they merge and remove."""
    other = copy_of(kept, "counted")
    with counting(-1, Stopped, for_ever=False) as counter:
        done = steps(TableUpkeep(other.open().delta, "b", 5))
    assert sum(each.merges for each in done)
    assert sum(each.commits_removed for each in done)
    return counter.calls


@STEPS
@pytest.mark.parametrize("share", [50, pytest.param(1, marks=pytest.mark.slow)])
def test_it_dies_anywhere(share: int, steps: Steps, kept: KeptTable, proof: Proof) -> None:
    """Each row appears once, however far it came; in short, at every fiftieth call."""
    before, calls = kept.found(), calls_of(kept, steps)
    for number in range(1, calls + 1, share):
        other = copy_of(kept, f"died{number}")
        upkeep = TableUpkeep(other.open().delta, "b", 5)
        with counting(number, Stopped, for_ever=True) as counter, suppress(Stopped):
            steps(upkeep)
            assert counter.calls < number, "it went on"
        check(other, before)
        shutil.rmtree(other.root)
        proof("G1 deaths inside the table's upkeep")


@STEPS
@pytest.mark.parametrize("share", [50, pytest.param(1, marks=pytest.mark.slow)])
def test_the_disk_is_full_anywhere(
    share: int, steps: Steps, kept: KeptTable, proof: Proof, caplog: pytest.LogCaptureFixture
) -> None:
    """The run continues, and with room the same run tidies the table; files that were meant for it do not stay."""
    before, calls = kept.found(), calls_of(kept, steps)
    for number in range(1, calls + 1, share):
        other = copy_of(kept, f"full{number}")
        table = other.open()
        upkeep = TableUpkeep(table.delta, "b", 5)
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with counting(number, lambda full=full: full, for_ever=False), caplog.at_level(logging.WARNING, "reput"):
            steps(upkeep)
        assert other.found() == before
        upkeep.step(LONG)
        other.fill(table, [40])
        assert other.found() == other.expected(0, 40)
        shutil.rmtree(other.root)
        proof("G1 full disks inside the table's upkeep")
