"""`reput backup` and `reput restore`, stopped before any call that changes the disk."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from faults.crash_shapes import NothingKept
from faults.fault_files import Disk, Stopped, stop_at, system
from support.backups import GrowingStore
from support.proof_counts import Proof
from support.sink_runner import files_below, no_fsync
from support.small_disk import mounted

from reput.sinks.table import storage
from reput.source.errors import OutputFullError

KILLS = "G16 backups and restores that were killed"
POWER = "G16 backups and restores whose power was lost"


class Crashes:
    """Stops changes of a directory at one call after the other; with a `loss` the power also fails then.

    Without a loss the process is killed: its writes stay.
    """

    def __init__(self, root: Path, loss: int | None, proof: Proof, *, step: int = 1) -> None:
        self._root, self._loss, self._proof, self._step = root, loss, proof, step
        self.lived = False

    def numbers(self) -> Iterator[int]:
        """The numbers of the calls, until a run has fewer."""
        for number in itertools.count(1, self._step):
            yield number
            self._proof(KILLS if self._loss is None else POWER)
            if self.lived:
                return

    @contextmanager
    def at(self, number: int) -> Iterator[None]:
        """Stop at this call; `lived` tells whether there were fewer."""
        disk = Disk(self._root)
        lock = self._root / "lock"
        self.lived = False
        with suppress(Stopped), system(disk, stop_at(number), number, storage):
            yield
            self.lived = True
        if self._loss is not None:
            kept = (lock.read_bytes(), lock.stat().st_mtime_ns) if lock.exists() else None
            disk.lose_power(Random(1000 * self._loss + number) if self._loss else NothingKept())
            if kept is not None:  # `StoreLock` makes it durable itself
                lock.write_bytes(kept[0])
                os.utime(lock, ns=(kept[1], kept[1]))


# None: killed. 0: nothing is left of what was not synced. Otherwise, a seed of what is left.
LOSSES = [None, 0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))]
POINTS_BEFORE = [3, pytest.param(0, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def fast() -> Iterator[None]:
    with no_fsync():
        yield


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("before", POINTS_BEFORE)
def test_a_backup_stopped_at_every_call(before: int, loss: int | None, tmp_path: Path, proof: Proof) -> None:
    """Every restore point that exists is whole; the next step makes the one that was not made."""
    growing = GrowingStore(tmp_path)
    growing.grow(before)
    kept = shutil.copytree(tmp_path / "backup", tmp_path / "before")
    growing.append(40)
    growing.put_config("topics.json", {"more": 1})
    crashes = Crashes(tmp_path / "backup", loss, proof)
    for number in crashes.numbers():
        shutil.rmtree(tmp_path / "backup")
        shutil.copytree(kept, tmp_path / "backup")
        with crashes.at(number):
            growing.step()
        found = growing.backup.verify()
        assert found.faults == []
        assert found.points in ((before + 1,) if crashes.lived else (before, before + 1))
        growing.backup.prepare()
        made = growing.step()
        assert (made is None) == (found.points == before + 1)
        last = growing.backup.last_point()
        assert last is not None
        assert last.number == before + 1
        assert growing.backup.read_log(last, 0, last.end) == growing.bytes_of_log(0, growing.log.max_offset)
        growing.backup.expire(growing.now_ms, keep_points=None, keep_ms=None, is_alone=True)
        assert growing.backup.verify().faults == []
        left = growing.backup.storage.files(deep=True)
        assert len(left) == before + 1 + growing.backup.verify().files
    assert number > 20


@pytest.mark.parametrize("loss", LOSSES)
def test_an_expiry_stopped_at_every_call(loss: int | None, tmp_path: Path, proof: Proof) -> None:
    """Every restore point that still exists is whole; the next expiry removes the rest."""
    growing = GrowingStore(tmp_path)
    growing.grow(6)
    before = shutil.copytree(tmp_path / "backup", tmp_path / "before")
    crashes = Crashes(tmp_path / "backup", loss, proof)
    for number in crashes.numbers():
        shutil.rmtree(tmp_path / "backup")
        shutil.copytree(before, tmp_path / "backup")
        with crashes.at(number):
            growing.backup.expire(growing.now_ms, keep_points=2, keep_ms=None, is_alone=True)
        assert growing.backup.verify().faults == []
        growing.backup.expire(growing.now_ms, keep_points=2, keep_ms=None, is_alone=True)
        found = growing.backup.verify()
        assert (found.points, found.faults) == (2, [])
        assert len(files_below(tmp_path / "backup")) == 2 + found.files
    assert number > 5


STEPS = [(None, 11), (0, 17), *(pytest.param(loss, 1, marks=pytest.mark.slow) for loss in (None, *range(4)))]


@pytest.mark.parametrize(("loss", "step"), STEPS)
def test_a_restore_stopped_at_calls(loss: int | None, step: int, tmp_path: Path, proof: Proof) -> None:
    """The target has nothing of the store, or an `abort`, until it has everything; the same command finishes it."""
    growing = GrowingStore(tmp_path)
    growing.grow(2)
    whole, target = tmp_path / "whole", tmp_path / "target"
    growing.restore(whole)
    crashes = Crashes(target, loss, proof, step=step)
    for number in crashes.numbers():
        target.mkdir()
        with crashes.at(number):
            growing.restore(target)
        is_marked, is_whole = (target / "abort").exists(), (target / "reput" / "restored.json").exists()
        if not is_marked and not is_whole:
            assert {path.name for path in target.iterdir()} <= {"lock", "reput", ".abort.tmp"}
        if is_marked or not is_whole:
            made = growing.restore(target)
            assert (made.messages, made.target) == (growing.count, str(target))
        for folder in ("commitlog", "config", "consumequeue"):
            assert files_below(target / folder) == files_below(whole / folder)
        assert not (target / "abort").exists()
        assert not (target / "reput" / "rebuild").exists()
        shutil.rmtree(target)
    assert number > 200


def test_a_full_disk(tmp_path: Path) -> None:
    """One error, which names the file; the newest restore point stays whole."""
    growing = GrowingStore(tmp_path)
    (tmp_path / "backup" / "points").rmdir()
    (tmp_path / "backup").rmdir()
    with mounted(tmp_path / "backup", size="64k"):
        growing.backup.prepare()
        growing.grow(2)
        for _ in range(20):
            growing.append(60)
            try:
                growing.step()
            except OutputFullError as error:
                assert str(tmp_path / "backup") in str(error)  # noqa: PT017
                break
        else:
            pytest.fail("the disk was never full")
        found = growing.backup.verify()
        assert found.faults == []
        assert found.points >= 2
        last = growing.backup.last_point()
        assert last is not None
        assert growing.backup.read_log(last, 0, last.end) == growing.bytes_of_log(0, last.end)
