"""Many files are made durable by one sync of their file system, where that says what failed; elsewhere one by one."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.sink_runner import files_below

from reput.sinks.files import durable_file, file_system
from reput.sinks.files.durable_file import DurableFiles
from reput.source.errors import OutputError


@dataclass
class Syncs:
    """The syncs: names of files and directories, and how often a file system was synced."""

    root: Path
    one_by_one: list[str] = field(default_factory=list)
    whole: int = 0
    error: OSError | None = None

    def fsync(self, descriptor: int) -> None:
        self.one_by_one.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def syncfs(self, descriptor: int) -> None:
        assert Path(f"/proc/self/fd/{descriptor}").readlink() == self.root
        self.whole += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DurableFiles]:
    files = DurableFiles(tmp_path / "out", whole=True)
    yield files
    files.close()


@pytest.fixture
def syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """On a file system that is synced whole, from eight files and directories on; six are kept open."""
    syncs = Syncs(tmp_path / "out")
    monkeypatch.setattr(os, "fsync", syncs.fsync)
    monkeypatch.setattr(file_system, "_sync", syncs.syncfs)
    monkeypatch.setattr(file_system, "is_synced_whole", lambda _: True)
    monkeypatch.setattr(durable_file, "_SYNCED_WHOLE_FROM", 8)
    monkeypatch.setattr(durable_file, "_OPEN_FILES_MAX", 6)
    return syncs


def create(files: DurableFiles, count: int) -> None:
    for number in range(count):
        files.create("d", f"{number:02d}", size=1)
        files.write("d", f"{number:02d}", offset=0, data=b"x")


@pytest.mark.parametrize(("count", "whole"), [(4, 0), (5, 1), (6, 1), (7, 1), (60, 1)])
def test_many_files_are_synced_at_once(
    count: int, whole: int, files: DurableFiles, syncs: Syncs, tmp_path: Path
) -> None:
    """As soon as they and their directories are many, or more than stay open; and nothing is synced twice."""
    create(files, count)
    files.sync()
    assert syncs.whole == whole
    names = [f"{number:02d}" for number in range(count)]
    # The root is in none of the directories whose file systems were looked up.
    assert sorted(syncs.one_by_one) == sorted([tmp_path.name, *([] if whole else [*names, "d", "out"])])
    syncs.one_by_one.clear()
    files.sync()
    assert (syncs.whole, syncs.one_by_one) == (whole, [])
    assert files_below(files.root) == {f"d/{number:02d}": b"x" for number in range(count)}
    files.write("d", "00", offset=0, data=b"y")
    files.sync()
    assert (syncs.whole, syncs.one_by_one) == (whole, ["00"])
    assert len(list(Path("/proc/self/fd").iterdir())) < 100


def test_beside_other_writers_only_many_new_names_count(files: DurableFiles, syncs: Syncs) -> None:
    """Unless the caller says otherwise, many files that get more do not wait for what others wrote."""
    beside_others = DurableFiles(files.root)
    create(beside_others, 60)
    beside_others.sync()
    names = {f"{number:02d}" for number in range(60)}
    assert (syncs.whole, names <= set(syncs.one_by_one)) == (0, True)
    for number in range(8):
        beside_others.create(f"new {number}", "00", size=1)
    beside_others.sync()
    beside_others.close()
    assert syncs.whole == 1


def test_what_others_placed_is_synced_at_once(files: DurableFiles, syncs: Syncs, tmp_path: Path) -> None:
    """Also by an object that was closed since."""
    names = [("d", f"{number:02d}") for number in range(20)]
    for name in names:
        files.put_unsynced(*name, data=b"x")
    other = DurableFiles(tmp_path / "out", whole=True)
    for times in (1, 2):
        other.make_durable(names)
        assert (syncs.whole, syncs.one_by_one) == (times, [])


def test_a_file_system_that_cannot_be_synced_is_never_taken_for_synced(files: DurableFiles, syncs: Syncs) -> None:
    """Its next sync would report success for what is lost."""
    create(files, 20)
    syncs.error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match=f"cannot sync {files.root}: No space left on device"):
        files.sync()
    syncs.error = None
    with pytest.raises(OutputError):
        files.sync()


def test_a_directory_on_another_file_system_has_its_files_synced_one_by_one(
    files: DurableFiles, syncs: Syncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were closed before it was seen are on the first one, which is synced whole."""
    create(files, 20)
    files._file_systems.see(files.root, 1)
    monkeypatch.setattr(file_system, "is_synced_whole", lambda device: device != 1)
    files.create("e", size=1)
    assert not files._file_systems.are_synced_whole
    files.sync()
    assert syncs.whole == 1
    assert {"e", "out", "d"} <= set(syncs.one_by_one)
    assert len(syncs.one_by_one) <= 6 + 3
    syncs.one_by_one.clear()
    create(files, 20)
    files.sync()
    assert syncs.whole == 1
    assert {f"{number:02d}" for number in range(20)} <= set(syncs.one_by_one)


def test_what_was_only_removed_has_its_directory_synced(files: DurableFiles, syncs: Syncs, tmp_path: Path) -> None:
    """The file system of a directory from which files were only removed is not known yet."""
    create(files, 20)
    files.sync()
    other = DurableFiles(tmp_path / "out", whole=True)
    other.remove("d", "00")
    for number in range(20):
        other.create("e", f"{number:02d}", size=1)
    syncs.one_by_one.clear()
    other.sync()
    other.close()
    assert (syncs.whole, syncs.one_by_one) == (2, ["d"])


def test_a_real_file_system(files: DurableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own call is made on a descriptor of the root, and its error is raised."""
    monkeypatch.setattr(durable_file, "_SYNCED_WHOLE_FROM", 8)
    monkeypatch.setattr(file_system, "is_synced_whole", lambda _: True)
    create(files, 20)
    files.sync()
    create(files, 20)
    monkeypatch.setattr(files._file_systems, "_descriptors", {0: 1 << 20})
    with pytest.raises(OutputError, match=f"cannot sync {files.root}: Bad file descriptor"):
        files.sync()


@pytest.mark.parametrize(
    ("release", "kind", "device", "expected"),
    [
        ("5.8.0-1-amd64", "ext4", (8, 1), True),
        ("6.18.44-fc", "xfs", (8, 1), True),
        ("5.7.19", "ext4", (8, 1), False),
        ("6.1", "nfs4", (8, 1), False),
        ("6.1", "fuse.s3", (8, 1), False),
        ("6.1", "ext4", (8, 2), False),
        ("unknown", "ext4", (8, 1), False),
    ],
)
def test_where_a_sync_of_the_whole_is_enough(
    release: str, kind: str, device: tuple[int, int], expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel reports what could not be written, and the file system writes all; what is unknown does not."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 0:19 / /proc rw,nosuid - proc proc rw\n"
        f"36 35 8:1 /part\\040one /data rw,noatime master:1 - {kind} /dev/sda1 rw,errors=continue\n"
    )
    monkeypatch.setattr(file_system, "_MOUNTS", mounts)
    monkeypatch.setattr(platform, "release", lambda: release)
    assert file_system.is_synced_whole(os.makedev(*device)) == expected
