"""Segments on disk: names, sizes, holes, and that nothing is ever written."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

import pytest
from support.logs import load_log, varied_messages

from reput.source.errors import SegmentError, StoreError
from reput.source.log.mapped_file_queue import MappedFile, MappedFileQueue, open_for_reading
from reput.source.log.range_reader import (
    DecodeOptions,
    check_begins_record,
    find_timestamp,
    first_store_timestamp,
    limit,
    read_windows,
    split,
)
from reput.source.log.reput_end_offset import ReputEndFinder
from reput.source.log.store_layout import file_name

SIZE = 4096


def make(directory: Path, *offsets: int, size: int = SIZE) -> None:
    """Sparse segments that begin at these offsets."""
    directory.mkdir(parents=True, exist_ok=True)
    for offset in offsets:
        with (directory / f"{offset:020d}").open("wb") as file:
            file.truncate(size)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, "0" * 20), (1_073_741_824, "00000000001073741824"), (2**63 - 1, "09223372036854775807")],
)
def test_file_names_are_20_digits(offset: int, expected: str) -> None:
    """A segment is named by the offset of its first byte."""
    assert expected == file_name(offset)


def test_load_lists_segments_in_order(tmp_path: Path) -> None:
    """Segments come oldest first, with the size they share."""
    make(tmp_path, 8192, 4096, 12288)
    queue = MappedFileQueue.load([tmp_path])
    expected = tuple(MappedFile(at, SIZE, str(tmp_path / f"{at:020d}")) for at in (4096, 8192, 12288))
    assert expected == queue.files
    assert (queue.mapped_file_size, queue.min_offset, queue.end_of_files) == (SIZE, 4096, 16384)
    assert queue == MappedFileQueue.load([tmp_path], SIZE)


def test_an_empty_directory_is_an_empty_log(tmp_path: Path) -> None:
    """A store that was never written to has a directory and no segment."""
    queue = MappedFileQueue.load([tmp_path], SIZE)
    assert (queue.files, queue.mapped_file_size, queue.min_offset, queue.end_of_files) == ((), 0, 0, 0)
    assert (queue.find(0), queue.find(5)) == (None, None)


def test_several_directories_are_one_log(tmp_path: Path) -> None:
    """Segments of all directories form one row, whatever the order of the directories."""
    make(tmp_path / "b", 0, 8192)
    make(tmp_path / "a", 4096, 12288)
    queue = MappedFileQueue.load([tmp_path / "b", tmp_path / "a"])
    assert [(file.file_from_offset, Path(file.path).parent.name) for file in queue.files] == [
        (0, "b"),
        (4096, "a"),
        (8192, "b"),
        (12288, "a"),
    ]
    queue.check_no_hole(0)


@pytest.mark.parametrize(
    "name",
    ["0" * 19, "0" * 21, "0" * 19 + "x", "-" + "0" * 19, "\uff10" * 20, "lock", f"{4096:020d}.tmp", "\u0660" * 20],
)
def test_foreign_names_are_ignored_and_named(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is not a segment does not stop a read, and a warning names it."""
    make(tmp_path, 0)
    (tmp_path / name).write_bytes(b"x")
    with caplog.at_level(logging.WARNING):
        assert [file.file_from_offset for file in MappedFileQueue.load([tmp_path]).files] == [0]
    assert [repr(name) in message for message in caplog.messages] == [True]


def test_a_last_file_of_size_0_is_not_there_yet(tmp_path: Path) -> None:
    """The broker creates a file before it sizes it."""
    make(tmp_path, 0, 4096)
    make(tmp_path, 8192, size=0)
    assert MappedFileQueue.load([tmp_path]).end_of_files == 8192


def test_an_only_file_of_size_0_is_an_empty_log(tmp_path: Path) -> None:
    """The very first segment, without a size yet, does not count as a segment."""
    make(tmp_path, 0, size=0)
    assert MappedFileQueue.load([tmp_path], SIZE).files == ()


# --- errors ----------------------------------------------------------------------------------------------


def load_error(kind: type[StoreError], *paths: Path, size: int | None = None) -> str:
    """The message of the error that loading ends with, exactly of that kind."""
    with pytest.raises(StoreError) as raised:
        MappedFileQueue.load(paths, size)
    assert raised.type is kind
    return str(raised.value)


def test_a_missing_directory(tmp_path: Path) -> None:
    """The error names the directory and what to give instead."""
    missing = tmp_path / "commitlog"
    (tmp_path / "other").mkdir()
    assert load_error(StoreError, tmp_path / "other", missing) == (
        f"no commitlog at {missing}: the directory does not exist; give the store root that holds commitlog/"
    )


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    """A file in the directory's place is named, with what it is."""
    file = tmp_path / "commitlog"
    file.write_bytes(b"")
    assert load_error(StoreError, file) == (
        f"no commitlog at {file}: it is not a directory; give the store root that holds commitlog/"
    )


def test_a_directory_of_other_files(tmp_path: Path) -> None:
    """It is not an empty log: the error does not say that there are no messages."""
    (tmp_path / "lost+found").mkdir()
    assert MappedFileQueue.load([tmp_path]).files == ()  # the root of a new disk
    (tmp_path / "x.txt").write_bytes(b"")
    assert load_error(StoreError, tmp_path) == (
        f"no commitlog at {tmp_path}: the directory holds x.txt, and no file of a commitlog (a name of 20 digits); "
        "give the store root that holds commitlog/"
    )


def test_sizes_that_differ(tmp_path: Path) -> None:
    """Every segment has the first one's size."""
    make(tmp_path, 0, 4096)
    make(tmp_path, 8192, size=4095)
    first, last = (tmp_path / f"{at:020d}" for at in (0, 8192))
    assert load_error(SegmentError, tmp_path) == (
        f"{last} has 4095 bytes where the size of {first} is 4096; every segment must have the same size: "
        "was the copy cut, or does the directory hold two stores?"
    )


def test_a_file_of_size_0_in_the_middle(tmp_path: Path) -> None:
    """Only a last file may be without size."""
    make(tmp_path, 0, 8192)
    make(tmp_path, 4096, size=0)
    assert "has 0 bytes where" in load_error(SegmentError, tmp_path)


@pytest.mark.parametrize("size", [None, SIZE])
@pytest.mark.parametrize("second", [0, SIZE])
def test_a_first_file_of_size_0(size: int | None, second: int, tmp_path: Path) -> None:
    """A first segment without size is named, whether the size is known or to be inferred."""
    make(tmp_path, 0, size=0)
    make(tmp_path, SIZE, size=second)
    assert str(tmp_path / f"{0:020d}") in load_error(SegmentError, tmp_path, size=size)


def test_another_mapped_file_size(tmp_path: Path) -> None:
    """A size that was given wrong is named as such."""
    make(tmp_path, 0)
    assert load_error(SegmentError, tmp_path, size=8192) == (
        f"{tmp_path / f'{0:020d}'} has 4096 bytes where mappedFileSizeCommitLog is 8192; every segment must have the "
        "same size: was the copy cut, or does the directory hold two stores?"
    )


@pytest.mark.parametrize("offset", [4095, 1, 6144])
def test_a_name_that_is_no_multiple(offset: int, tmp_path: Path) -> None:
    """A segment begins at a multiple of the size."""
    make(tmp_path, 0, offset)
    assert load_error(SegmentError, tmp_path) == (
        f"{tmp_path / f'{offset:020d}'} begins at {offset}, which is not a multiple of its size 4096; "
        "was the file renamed or cut?"
    )


def test_the_same_segment_twice(tmp_path: Path) -> None:
    """Two directories may not hold one segment each."""
    make(tmp_path / "a", 0, 4096)
    make(tmp_path / "b", 4096)
    one, two = (tmp_path / name / f"{4096:020d}" for name in "ab")
    expected = f"{one} and {two} are the same segment; remove one of them from the paths"
    assert expected == load_error(SegmentError, tmp_path / "b", tmp_path / "a")


def test_a_hole_is_an_error_only_from_the_start_on(tmp_path: Path) -> None:
    """Segments missing before the offset that is read from do not matter."""
    make(tmp_path, 0, 4096, 16384, 20480)
    queue = MappedFileQueue.load([tmp_path])
    before, after = (tmp_path / f"{at:020d}" for at in (4096, 16384))
    for start in (0, 4095, 4096, 8191, 8192, 16383):
        with pytest.raises(SegmentError) as raised:
            queue.check_no_hole(start)
        assert str(raised.value) == (
            f"hole in the commitlog: {before} ends at 8192, the next file is {after}, 8192 bytes are missing; "
            "restore the missing files, or set failOnDataLoss=false to continue after them"
        )
    for start in (16384, 16385, 24576):
        queue.check_no_hole(start)


# --- look-ups and reads ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (4095, None),
        (4096, 4096),
        (8191, 4096),
        (8192, None),
        (12287, None),
        (12288, 12288),
        (16383, 12288),
        (16384, None),
    ],
)
def test_find_takes_the_segment_that_holds_the_offset(offset: int, expected: int | None, tmp_path: Path) -> None:
    """An offset is in one segment, or in none: before the first, in a hole, at the end."""
    make(tmp_path, 4096, 12288)
    file = MappedFileQueue.load([tmp_path]).find(offset)
    assert expected == (None if file is None else file.file_from_offset)


def test_following_is_the_next_in_the_row(tmp_path: Path) -> None:
    """The segment that begins where another ends; none after a hole or at the end."""
    make(tmp_path, 0, 4096, 12288)
    queue = MappedFileQueue.load([tmp_path])
    assert [queue.following(file) for file in queue.files] == [queue.files[1], None, None]


def test_segments_are_opened_read_only(tmp_path: Path) -> None:
    """The descriptor cannot write, does not survive an exec, and is closed; a file of mode 0444 will do."""
    make(tmp_path, 0)
    path = tmp_path / f"{0:020d}"
    path.chmod(0o444)
    with open_for_reading(str(path)) as descriptor:
        assert fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
        assert not os.get_inheritable(descriptor)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(descriptor, b"x")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_file_of_another_owner_is_opened_without_noatime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system refuses O_NOATIME, the file is opened without."""
    make(tmp_path, 0)
    opened, real_open = [], os.open

    def refuse(path: str, flags: int) -> int:
        opened.append(flags)
        if flags & os.O_NOATIME:
            raise PermissionError
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", refuse)
    with open_for_reading(str(tmp_path / f"{0:020d}")) as descriptor:
        assert os.pread(descriptor, 1, 0) == b"\0"
    assert opened == [os.O_RDONLY | os.O_CLOEXEC | os.O_NOATIME, os.O_RDONLY | os.O_CLOEXEC]


def test_nothing_below_the_log_changes(tmp_path: Path) -> None:
    """Listing, finding the end, splitting, limiting and reading leave content, times and names as they were."""
    _, records = load_log(tmp_path, varied_messages(60))
    for path in tmp_path.iterdir():
        path.chmod(0o444)
        os.utime(path, ns=(10**18, 10**18))

    def state() -> dict[str, tuple[bytes, int, int, int]]:
        found = {}
        for path in sorted(tmp_path.iterdir()):
            status = path.stat()
            found[path.name] = (path.read_bytes(), status.st_mtime_ns, status.st_ctime_ns, status.st_mode)
        return found

    before = state()
    queue = MappedFileQueue.load([tmp_path])
    end = ReputEndFinder(check_crc=True, tail_guard_ms=0).find(queue, 0).offset
    assert limit(queue, 0, end, 700, 3) < end == find_timestamp(queue, end, 2**60)
    check_begins_record(queue, records[3].physical_offset)
    assert all(first_store_timestamp(file) for file in queue.files)
    for span in split(queue, 0, end, 1000):
        assert list(read_windows(span.file, span.start, span.end, DecodeOptions(check_crc=True)))
    assert before == state()
