"""The one module that writes: whole or not at all, below the root, durable, with errors that say what to do."""

from __future__ import annotations

import errno
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.model import Settings
from support.record_writer import Message, write_log
from support.sink_runner import SMALL, LogBatches, SinkRun, check_output, files_below, record_bounds
from support.small_disk import mounted

from reput.sinks.files import durable_file, file_system
from reput.sinks.files.durable_file import DurableFiles
from reput.source.errors import OutputAwayError, OutputError, OutputFullError

WHAT_TO_DO = "the output needs a writable directory with room on its disk"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DurableFiles]:
    with closing(DurableFiles(tmp_path / "out")) as opened:
        yield opened


def fail(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def a_byte_at_a_time(call: Callable[..., int]) -> Callable[..., int]:
    return lambda descriptor, data, *at: call(descriptor, data[:1], *at)


def test_short_writes_are_finished(files: DurableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that takes one byte a call gets all of them, each at its place."""
    monkeypatch.setattr(os, "pwrite", a_byte_at_a_time(os.pwrite))
    monkeypatch.setattr(os, "write", a_byte_at_a_time(os.write))
    files.create("a", size=10)
    files.write("a", offset=3, data=memoryview(b"12345"))
    files.replace("b", data=b"whole")
    assert files_below(files.root) == {"a": b"\0\0\x0012345\0\0", "b": b"whole"}


def test_a_time_that_cannot_be_set_is_left_out(files: DurableFiles, tmp_path: Path) -> None:
    """As of a file that has gone; another one is set."""
    files.create("a", size=3)
    files.set_modified("a", time_ms=1_500)
    files.set_modified("gone", time_ms=1_500)
    assert (tmp_path / "out" / "a").stat().st_mtime_ns == 1_500_000_000


def test_create_empties_and_sizes(files: DurableFiles) -> None:
    """A new file has its size and only zeros, whatever file had its name."""
    files.create("d", "a", size=5)
    files.write("d", "a", offset=0, data=b"12345")
    files.create("d", "a", size=3)
    files.remove("d", "missing")
    assert files_below(files.root) == {"d/a": bytes(3)}
    files.remove("d", "a")
    assert files_below(files.root) == {}


NO_NAMES = ["..", ".", "", "a/b", "/a", "../a", "a\0b"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_paths_outside_the_root_are_refused(name: str, files: DurableFiles, tmp_path: Path) -> None:
    """A part that is not one name is an error of every method, before the system is asked for anything."""
    calls: list[Callable[..., object]] = [
        lambda *parts: files.create(*parts, size=1),
        lambda *parts: files.write(*parts, offset=0, data=b"x"),
        lambda *parts: files.replace(*parts, data=b"x"),
        files.remove,
        files.make_directory,
    ]
    for call, parts in itertools.product(calls, [(name,), (name, "a"), ("a", name), ("a", name, "b")]):
        with pytest.raises(OutputError) as caught:
            call(*parts)
        assert str(caught.value) == f"{name!r} is not a name for a file or directory below {tmp_path / 'out'}"
    assert list(tmp_path.iterdir()) == []


def test_links_inside_the_output_are_not_followed(files: DurableFiles, tmp_path: Path) -> None:
    """Neither a directory nor a file that is a symbolic link leads a write out of the root."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_bytes(b"theirs")
    files.make_directory()
    (files.root / "link").symlink_to(tmp_path / "elsewhere")
    (files.root / "a").symlink_to(tmp_path / "elsewhere" / "a")
    calls: list[Callable[[], object]] = [
        lambda: files.create("link", "b", size=1),
        lambda: files.create("link", "c", "b", size=1),
        lambda: files.write("link", "a", offset=0, data=b"x"),
        lambda: files.replace("link", "b", data=b"x"),
        lambda: files.make_directory("link", "c"),
        lambda: files.create("a", size=1),
        lambda: files.write("a", offset=0, data=b"x"),
    ]
    for call in calls:
        with pytest.raises(OutputError, match=r"symbolic link|Too many levels of symbolic links"):
            call()
    files.replace("a", data=b"ours")  # puts a file where the link was
    assert not (files.root / "a").is_symlink()
    assert files_below(tmp_path / "elsewhere") == {"a": b"theirs"}


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_replace_leaves_the_old_content_when_it_fails(
    call: str, files: DurableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call fails, the file is the old one, and the next try puts the new one in place."""
    files.replace("a", data=b"old")

    with monkeypatch.context() as failing:
        failing.setattr(os, call, fail)
        with pytest.raises(OutputError, match=f"cannot replace {files.root}/a: Input/output error; {WHAT_TO_DO}"):
            files.replace("a", data=b"new")
    assert (files.root / "a").read_bytes() == b"old"
    files.replace("a", data=b"new")
    assert files_below(files.root) == {"a": b"new"}


# --- sync ------------------------------------------------------------------------------------------------


def test_sync_syncs_every_file_and_every_changed_directory(
    files: DurableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that was written or made since the last sync, and nothing twice."""
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(tmp_path)))
        real(descriptor)

    files.make_directory()
    files.sync()
    monkeypatch.setattr(os, "fsync", note)
    files.create("d", "e", "a", size=1)
    files.create("b", size=1)
    files.write("b", offset=0, data=b"x")
    files.sync()
    assert sorted(synced) == ["out", "out/b", "out/d", "out/d/e", "out/d/e/a"]
    synced.clear()
    files.write("b", offset=0, data=b"y")
    files.remove("d", "e", "a")
    files.sync()
    files.sync()
    assert sorted(synced) == ["out/b", "out/d/e"]


def test_replace_is_durable_on_return_with_the_directories_above(
    files: DurableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's content before its name, then its directory, and the directories made for it."""
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
    )
    files.make_directory()
    files.sync()
    synced.clear()
    files.replace("d", "e", "a", data=b"x")
    assert synced[0] == ".a.tmp"
    assert set(synced[1:]) == {"e", "d", "out"}


@pytest.mark.parametrize("count", [1, 7])
def test_what_others_placed_is_made_durable(
    count: int, files: DurableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`put_unsynced` waits for no disk; later another object, as in another process, syncs files and names."""
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    files.make_directory()
    files.sync()
    monkeypatch.setattr(os, "fsync", note)
    names = [("d", f"part {number}") for number in range(count)]
    for name in names:
        files.put_unsynced(*name, data=b"rows")
    assert synced == []
    assert files_below(files.root) == {"/".join(name): b"rows" for name in names}
    other = DurableFiles(tmp_path / "out")
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        with pytest.raises(OutputError, match=f"cannot sync {files.root}/d/part 0: Input/output error"):
            other.make_durable(names)
    assert other._descriptors == {}
    third = DurableFiles(tmp_path / "out")
    third.make_durable(names)
    assert sorted(synced[:count]) == sorted(name for _, name in names)
    assert set(synced[count:]) == {"d", "out"}
    synced.clear()
    files.put_unsynced("d", "later", data=b"rows")
    third.make_durable([("d", "later")])
    assert synced == ["later", "d"]
    with pytest.raises(OutputError, match=r"cannot open .*/d/none: No such file"):
        DurableFiles(tmp_path / "out").make_durable([("d", "none")])


def test_a_directory_is_synced_once_for_files_that_are_there(
    files: DurableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that died may have made their names; what is added or removed later is synced again."""
    for name in ("a", "b"):
        files.create("d", name, size=1)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    other = DurableFiles(tmp_path / "out")
    expected = {"a": {"a", "d", "out"}, "b": {"b"}}
    for name, wanted in expected.items():
        other.write("d", name, offset=0, data=b"x")
        other.sync()
        assert set(synced) == wanted
        synced.clear()
    other.create("d", "c", size=1)
    other.sync()
    assert set(synced) == {"c", "d"}
    synced.clear()
    other.remove("d", "c")
    other.sync()
    assert synced == ["d"]
    other.close()


def create_many(files: DurableFiles, count: int) -> None:
    for number in range(count):
        files.create(f"{number:02d}", size=1)


@pytest.mark.parametrize("count", [1, 20])
def test_a_failed_sync_is_never_taken_back(count: int, files: DurableFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system forgets what it could not write: a second try would report success for data that is lost."""
    create_many(files, count)
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        with pytest.raises(OutputError, match=f"cannot sync {files.root}/00: Input/output error; {WHAT_TO_DO}"):
            files.sync()
    with pytest.raises(OutputError):
        files.sync()


def test_a_failed_sync_to_make_room_is_never_taken_back_either(
    files: DurableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files synced early, because too many are open, count like the others."""
    monkeypatch.setattr(file_system, "is_synced_whole", lambda _: False)
    monkeypatch.setattr(durable_file, "_OPEN_FILES_MAX", 4)
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        with pytest.raises(OutputError, match=f" {files.root}/.*: Input/output error; {WHAT_TO_DO}"):
            create_many(files, 20)
    with pytest.raises(OutputError):
        files.sync()


@contextmanager
def soft_limit(kind: int, limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def test_more_files_than_may_be_open(files: DurableFiles) -> None:
    """As many files in one batch as there are queues, with the limit that most systems set."""
    count = 1500
    for number in range(count):
        files.create(f"{number % 10}", f"{number}", size=4)
    files.sync()
    with soft_limit(resource.RLIMIT_NOFILE, 1024):
        for number in range(count):
            files.write(f"{number % 10}", f"{number}", offset=0, data=b"%04d" % number)
        files.sync()
    assert files_below(files.root) == {f"{number % 10}/{number}": b"%04d" % number for number in range(count)}


# --- refusals by the system ------------------------------------------------------------------------------


def test_a_read_only_directory(tmp_path: Path) -> None:
    """The error names the path and what the output needs, from the lock-free start to the first write."""
    with mounted(tmp_path / "out", "ro") as out, closing(DurableFiles(out)) as files:
        calls: list[Callable[[], object]] = [
            lambda: files.replace("a", data=b""),
            lambda: files.create("a", size=1),
            lambda: files.make_directory("a"),
        ]
        for call in calls:
            with pytest.raises(OutputError, match=f" {out}/a: Read-only file system; {WHAT_TO_DO}"):
                call()
        with pytest.raises(OutputError, match=f"cannot replace {out}/reput/progress/consumequeue.json: Read-only"):
            SinkRun(out, SMALL).recover()


def dispatch_all(out: Path, batches: LogBatches, allowed: list[int], settings: Settings) -> None:
    """One run, a batch a record, over the whole log."""
    with SinkRun(out, settings) as run:
        for start, end in itertools.pairwise(allowed):
            run.write(batches(start, end))


@pytest.mark.parametrize("free_kib", range(4, 140, 24))
def test_a_full_disk(free_kib: int, tmp_path: Path) -> None:
    """Wherever the disk is full, that is a clean error, and with room again the next run ends with equal bytes."""
    messages = [Message(f"T{i % 25}", properties={"KEYS": f"a k{i}"}) for i in range(60)]
    records = write_log(tmp_path / "log", messages)
    batches, allowed = LogBatches(tmp_path / "log"), record_bounds(records)
    with mounted(tmp_path / "disk") as disk:
        (disk / "ballast").write_bytes(bytes((512 - free_kib) * 1024))
        with pytest.raises(OutputFullError, match=f"{disk}/out.*: No space left on device; {WHAT_TO_DO}") as told:
            dispatch_all(disk / "out", batches, allowed, SMALL)
        assert told.value.exit_code == 75
        assert told.value.advice == WHAT_TO_DO
        assert str(told.value.file).startswith(f"{disk}/out")
        (disk / "ballast").unlink()
        dispatch_all(disk / "out", batches, allowed, SMALL)
        check_output(disk / "out", records, SMALL)


@pytest.mark.parametrize("limit", [0, 30, 59, 100, 267])
def test_a_limit_on_file_sizes(limit: int, tmp_path: Path) -> None:
    """As a full disk: the error says why, and without the limit the next run ends with equal bytes."""
    records = write_log(tmp_path / "log", [Message(properties={"KEYS": f"a k{i}"}) for i in range(20)])
    batches, allowed = LogBatches(tmp_path / "log"), record_bounds(records)
    too_large = rf": no file may have more than {limit} bytes \(ulimit -f\); allow larger ones"
    with soft_limit(resource.RLIMIT_FSIZE, limit), pytest.raises(OutputError, match=too_large):
        dispatch_all(tmp_path / "out", batches, allowed, SMALL)
    dispatch_all(tmp_path / "out", batches, allowed, SMALL)
    check_output(tmp_path / "out", records, SMALL)


def test_nothing_is_made_in_a_mount_point_whose_disk_has_gone(tmp_path: Path) -> None:
    """No file and no directory in the root that takes the place of the output; the output is unchanged."""
    root = tmp_path / "out"
    files = DurableFiles(root)
    files.replace("checkpoint", data=b"one")
    files.create("queue", "0", size=4)
    root.rename(tmp_path / "elsewhere")
    root.mkdir()
    with pytest.raises(OutputAwayError, match="another directory than before"):
        files.replace("checkpoint", data=b"two")
    with pytest.raises(OutputAwayError, match="another directory than before"):
        files.make_directory("index")
    with pytest.raises(OutputAwayError, match="No such file or directory"):
        files.replace("queue", "1", data=b"two")
    assert list(root.iterdir()) == []
    root.rmdir()
    (tmp_path / "elsewhere").rename(root)
    files.replace("checkpoint", data=b"two")
    assert (root / "checkpoint").read_bytes() == b"two"
    files.close()
