"""`reput backup` and `reput restore`, stopped before any call that changes the disk."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.fault_files import Stopped, stopped_at
from support.backups import GrowingStore
from support.proof_counts import Proof
from support.sink_runner import files_below, no_fsync
from support.small_disk import mounted

from reput.sinks.table import storage
from reput.source.errors import OutputFullError

KILLS = "G16 backups and restores that were killed"


@pytest.fixture(autouse=True)
def fast() -> Iterator[None]:
    with no_fsync():
        yield


def test_a_backup_stopped_at_every_call(tmp_path: Path, proof: Proof) -> None:
    """Every restore point that is there is whole; the next step makes the one that was not made."""
    growing = GrowingStore(tmp_path)
    growing.grow(3)
    before = shutil.copytree(tmp_path / "backup", tmp_path / "before")
    growing.append(40)
    growing.put_config("topics.json", {"more": 1})
    for number in itertools.count(1):
        shutil.rmtree(tmp_path / "backup")
        shutil.copytree(before, tmp_path / "backup")
        try:
            with stopped_at(number, storage):
                growing.step()
            lived = True
        except Stopped:
            lived = False
        found = growing.backup.verify()
        assert found.faults == []
        assert found.points in (3, 4)
        made = growing.step()
        assert (made is None) == (found.points == 4)
        last = growing.backup.last_point()
        assert last is not None
        assert last.number == 4
        assert growing.backup.read_log(last, 0, last.end) == growing.bytes_of_log(0, growing.log.max_offset)
        growing.backup.expire(growing.now_ms, keep_points=None, keep_ms=None, is_alone=True)
        assert growing.backup.verify().faults == []
        left = growing.backup.storage.files(deep=True)
        assert len(left) == 4 + growing.backup.verify().files
        proof(KILLS)
        if lived:
            break
    assert number > 20


def test_an_expiry_stopped_at_every_call(tmp_path: Path, proof: Proof) -> None:
    """What is still there is whole; the next expiry removes the rest."""
    growing = GrowingStore(tmp_path)
    growing.grow(6)
    before = shutil.copytree(tmp_path / "backup", tmp_path / "before")
    for number in itertools.count(1):
        shutil.rmtree(tmp_path / "backup")
        shutil.copytree(before, tmp_path / "backup")
        try:
            with stopped_at(number, storage):
                growing.backup.expire(growing.now_ms, keep_points=2, keep_ms=None, is_alone=True)
            lived = True
        except Stopped:
            lived = False
        assert growing.backup.verify().faults == []
        growing.backup.expire(growing.now_ms, keep_points=2, keep_ms=None, is_alone=True)
        found = growing.backup.verify()
        assert (found.points, found.faults) == (2, [])
        assert len(files_below(tmp_path / "backup")) == 2 + found.files
        proof(KILLS)
        if lived:
            break
    assert number > 5


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_restore_stopped_at_calls(step: int, tmp_path: Path, proof: Proof) -> None:
    """The target has nothing of the store, or an `abort`, until all of it is there; the same command finishes it."""
    growing = GrowingStore(tmp_path)
    growing.grow(2)
    whole = tmp_path / "whole"
    growing.restore(whole)
    for number in itertools.count(1, step):
        target = tmp_path / "target"
        try:
            with stopped_at(number, storage):
                growing.restore(target)
            lived = True
        except Stopped:
            lived = False
        is_marked, is_whole = (target / "abort").exists(), (target / "reput" / "restored.json").exists()
        if target.exists() and not is_marked and not is_whole:
            assert {path.name for path in target.iterdir()} <= {"lock", "reput", ".abort.tmp"}
        if is_marked or not is_whole:
            made = growing.restore(target)
            assert (made.messages, made.target) == (growing.count, str(target))
        for folder in ("commitlog", "config", "consumequeue"):
            assert files_below(target / folder) == files_below(whole / folder)
        assert not (target / "abort").exists()
        assert not (target / "reput" / "rebuild").exists()
        shutil.rmtree(target)
        proof(KILLS)
        if lived:
            break
    assert number > 50


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
