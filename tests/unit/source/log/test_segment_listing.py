"""The row of segments is listed again after a change, and a log that is gone is not an empty log."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from unittest import mock

import pytest
from support.live_log import Clock
from support.logs import varied_messages
from support.record_writer import Message, write_log

from reput.source.errors import SegmentError, StoreError, TransientError
from reput.source.log import mapped_file_queue
from reput.source.log.mapped_file_queue import MappedFileQueue, SegmentListing

SIZE = 4096


class Listed:
    """A listing that counts how often directories are listed; their last change was long ago."""

    def __init__(self, *paths: Path) -> None:
        self.paths = paths
        self.clock = Clock()
        self.listing = SegmentListing(paths, clock=self.clock)
        self.count = 0

    def age(self, seconds: float = 60) -> None:
        """Let every change lie so far back, without changing what a time of change tells."""
        for path in self.paths:
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))

    def load(self) -> MappedFileQueue:
        load = MappedFileQueue.load

        def counted(*given: object, **options: object) -> MappedFileQueue:
            self.count += 1
            return load(*given, **options)  # type: ignore[arg-type]

        with mock.patch.object(mapped_file_queue.MappedFileQueue, "load", counted):
            return self.listing.load()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path / "log", varied_messages(80), SIZE)
    return tmp_path / "log"


def test_what_has_not_changed_is_listed_once(log: Path) -> None:
    """And gives the very same object, until a listing is old whatever the directory says."""
    listed = Listed(log)
    listed.age()
    first = listed.load()
    assert all(listed.load() is first for _ in range(100))
    assert listed.count == 1
    listed.clock.now += mapped_file_queue._LISTED_EVERY_S
    assert listed.load() is first
    assert listed.count == 2


@pytest.mark.parametrize("change", ["a new one", "a new one made elsewhere", "expired", "removed at the end", "anew"])
def test_every_change_is_seen_at_once(change: str, log: Path) -> None:
    """A segment that appeared, disappeared, was renamed into its place or made again."""
    listed = Listed(log)
    listed.age()
    first = listed.load()
    segments = sorted(log.iterdir())
    new = log / f"{first.end_of_files:020d}"
    if change == "a new one":
        new.write_bytes(bytes(SIZE))
    elif change == "a new one made elsewhere":
        other = log.parent / "other"
        other.write_bytes(bytes(SIZE))
        other.rename(new)
    elif change == "expired":
        segments[0].unlink()
    elif change == "removed at the end":
        segments[-1].unlink()
    else:
        segments[-1].unlink()
        segments[-1].write_bytes(bytes(SIZE))
    found = listed.load()
    assert found is not first  # what was noted of the segments before is forgotten
    assert found.files == MappedFileQueue.load([log]).files


def test_the_time_of_day_was_set_back(log: Path) -> None:
    """A change that lies days ahead is an old one: an idle log is not listed at each look until then."""
    listed = Listed(log)
    listed.age(-3 * 86_400)
    first = listed.load()
    assert all(listed.load() is first for _ in range(3))
    assert listed.count == 1


def test_changes_within_the_granularity_of_times(log: Path) -> None:
    """A directory that changed just before may have changed once more at the same time."""
    listed = Listed(log)
    new = log / f"{1 << 20:020d}"
    new.write_bytes(bytes(SIZE))
    before = log.stat()
    assert len(listed.load().files) == len(list(log.iterdir()))
    new.unlink()
    os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))  # within one tick of the file system's clock
    assert len(listed.load().files) == len(list(log.iterdir()))


def test_a_last_file_gets_its_size(log: Path) -> None:
    """The broker makes a file and then gives it its size, which no directory tells."""
    listed = Listed(log)
    new = log / f"{listed.load().end_of_files:020d}"
    new.touch()
    listed.age()
    assert listed.load().unfinished == str(new)
    count = len(listed.load().files)
    new.write_bytes(bytes(SIZE))
    assert len(listed.load().files) == count + 1


def test_a_file_of_another_size_is_waited_for(log: Path) -> None:
    """While it is being copied, say; not for ever, and not by who has seen nothing else."""
    listed = Listed(log)
    first = listed.load()
    new = log / f"{first.end_of_files:020d}"
    new.write_bytes(bytes(700))
    with pytest.raises(SegmentError, match="every segment must have the same size"):
        SegmentListing([log]).load()
    assert listed.load().files == first.files
    listed.clock.now += mapped_file_queue._PATIENCE_S - 0.1
    assert listed.load().files == first.files
    new.write_bytes(bytes(SIZE))
    assert len(listed.load().files) == len(first.files) + 1
    new.write_bytes(bytes(700))
    listed.listing.forget()
    listed.load()
    listed.clock.now += mapped_file_queue._PATIENCE_S
    with pytest.raises(SegmentError):
        listed.load()


def test_a_directory_that_goes_while_it_is_listed(log: Path) -> None:
    """Files that were looked at too late are not taken for expired."""
    listing = SegmentListing([log])
    assert len(listing.load().files) > 3
    listing.forget()
    load = MappedFileQueue.load

    def going(*given: object, **options: object) -> MappedFileQueue:
        found = load(*given, **options)  # type: ignore[arg-type]
        log.rename(log.with_name("elsewhere"))
        return MappedFileQueue(found.files[:2], found.paths)

    with (
        mock.patch.object(mapped_file_queue.MappedFileQueue, "load", going),
        pytest.raises(TransientError, match="went while it was listed"),
    ):
        listing.load()


# --- a log that is gone ----------------------------------------------------------------------------------


def test_an_empty_log_is_none_that_is_gone(tmp_path: Path) -> None:
    """Before its first segment a log is empty for as long as it likes."""
    listed = Listed(tmp_path)
    assert [listed.load().files, listed.load().files] == [(), ()]
    (tmp_path / f"{0:020d}").write_bytes(bytes(SIZE))
    assert len(listed.load().files) == 1


@pytest.mark.parametrize("how", ["emptied", "removed", "another empty directory", "a file"])
def test_a_log_that_had_segments(how: str, log: Path) -> None:
    """A log without segments is then gone, not expired; once it is back, reading continues."""
    listed = Listed(log)
    listed.age()
    first = listed.load()
    shutil.copytree(log, log.parent / "away")
    shutil.rmtree(log)
    if how == "a file":
        log.touch()
        with pytest.raises(StoreError, match="it is not a directory"):
            listed.load()
        log.unlink()
    else:
        if how != "removed":
            log.mkdir()
        for _ in range(3):
            with pytest.raises(TransientError, match="its volume was unmounted") as raised:
                listed.load()
            assert str(log) in str(raised.value)
        shutil.rmtree(log, ignore_errors=True)
    (log.parent / "away").rename(log)
    assert listed.load().files == first.files


def test_one_of_several_directories(tmp_path: Path) -> None:
    """It may be empty after expiry; it is gone if another directory has its place."""
    log, second = tmp_path / "log", tmp_path / "second"
    write_log(log, [Message()] * 80, SIZE)
    second.mkdir()
    oldest = min(log.iterdir())
    oldest.rename(second / oldest.name)
    listed = Listed(log, second)
    count = len(listed.load().files)
    (second / oldest.name).rename(tmp_path / "kept")
    assert len(listed.load().files) == count - 1
    (tmp_path / "kept").rename(second / oldest.name)
    assert len(listed.load().files) == count
    second.rename(tmp_path / "unmounted")
    second.mkdir()
    with pytest.raises(TransientError, match="second holds no segment any more") as raised:
        listed.load()
    assert raised.value.file == str(second)


def test_the_cost_does_not_depend_on_the_number_of_segments(tmp_path: Path) -> None:
    """A thousand looks at a thousand segments take less than ten listings of them."""
    for number in range(1000):
        (tmp_path / f"{number * SIZE:020d}").touch()
        os.truncate(tmp_path / f"{number * SIZE:020d}", SIZE)
    listed = Listed(tmp_path)
    listed.age()
    listed.load()
    began = time.process_time()
    for _ in range(1000):
        listed.listing.load()
    assert listed.count == 1
    looks, began = time.process_time() - began, time.process_time()
    for _ in range(10):
        MappedFileQueue.load([tmp_path])
    assert looks < time.process_time() - began
