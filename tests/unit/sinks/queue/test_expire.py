"""Expiry by the numbers of RocketMQ's own tests: in `reput expire` and a running tail, and the sinks continue."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from support.model import Settings, index_file_contents
from support.outputs import Output, config_of
from support.record_writer import Message, write_log
from support.sink_runner import (
    MEMORY,
    LogBatches,
    SinkRun,
    expected_queue_files,
    files_below,
    index_contents,
    no_fsync,
    record_bounds,
    service_of,
)

from reput.sinks.queue.batch_consume_queue import BATCH_KIND
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_reader import QueueReader, load_queues
from reput.sinks.retention import expire_queue, expired_index_files
from reput.source.errors import SinkError, StoreLockedError, UnexplainedError
from reput.streaming.recover.recover import expire_output, recover_output


def write_queue(root: Path, units: list[tuple[int, int, int]], file_size: int, first: int = 0) -> QueueReader:
    """Files of a queue A-0 that begin at byte `first` and hold `units`."""
    directory = root / "consumequeue" / "A" / "0"
    directory.mkdir(parents=True)
    data = b"".join(struct.pack(">qiq", *unit) for unit in units)
    for at in range(0, max(1, len(data)), file_size):
        (directory / f"{first + at:020d}").write_bytes(data[at : at + file_size].ljust(file_size, b"\0"))
    (disk,) = load_queues(root, KIND, file_size)
    return disk


# --- RocketMQ's own numbers ------------------------------------------------------------------------------


class CleanFiles:
    """``DefaultMessageStoreCleanFilesTest``: 55 messages, one a segment of 128 bytes; 7 entries and 7 keys a file."""

    SETTINGS = Settings(mapped_file_size_consume_queue=128, max_hash_slot_num=100, max_index_num=8)

    def __init__(self, root: Path) -> None:
        self.log, self.out = root / "store" / "commitlog", root / "out"
        properties = {"KEYS": "hello"}
        spare = 128 - 8 - (91 + len("CleanTopic") + len("KEYS\x01hello"))
        self.records = write_log(
            self.log,
            (
                Message("CleanTopic", body=bytes(spare), properties=properties, store_timestamp=1000 * i)
                for i in range(55)
            ),
            128,
        )
        with no_fsync(), SinkRun(self.out, self.SETTINGS) as run:
            run.write(LogBatches(self.log)(0, record_bounds(self.records)[-1]))

    def expire(self, how: str) -> None:
        """As the command does it, or as a tail that runs."""
        with no_fsync():
            if how == "expire":
                expire_output(config_of(self.log.parent, self.SETTINGS), self.out)
                return
            with SinkRun(self.out, self.SETTINGS) as run:
                service_of(run, self.log).step()

    def counts(self) -> tuple[int, int, int]:
        """Segments, queue files, index files."""
        queue = self.out / "consumequeue" / "CleanTopic" / "0"
        return tuple(len(list(path.iterdir())) for path in (self.log, queue, self.out / "index"))


@pytest.fixture
def clean_files() -> Iterator[CleanFiles]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield CleanFiles(Path(directory))


@pytest.mark.parametrize("how", ["expire", "tail"])
@pytest.mark.parametrize("removed", [0, 1, 6, 7, 8, 10, 13, 14, 15, 48, 49, 50, 54])
def test_clean_files(removed: int, how: str, clean_files: CleanFiles) -> None:
    """Of 8 files each, floor(removed / 7) go; the numbers that remain are equal, and so are the bytes that follow."""
    assert clean_files.counts() == (55, 8, 8)
    for segment in sorted(clean_files.log.iterdir())[:removed]:
        segment.unlink()
    clean_files.expire(how)
    assert clean_files.counts() == (55 - removed, 8 - removed // 7, 8 - removed // 7)
    config = config_of(clean_files.log.parent, clean_files.SETTINGS)
    with no_fsync():
        report = expire_output(config, clean_files.out)
    assert report.removed == ()
    (queue,) = report.queues
    assert (queue.min_offset, queue.max_offset) == (removed, 55)
    assert report.min_physic_offset == 128 * removed


@pytest.mark.parametrize("how", ["expire", "tail"])
def test_deleted_in_two_runs(how: str, clean_files: CleanFiles) -> None:
    """10 segments and then 5 more: 7 and 7, then 6 and 6, as the test's two cleanings."""
    for segments, files in ((10, 7), (5, 6)):
        for segment in sorted(clean_files.log.iterdir())[:segments]:
            segment.unlink()
        clean_files.expire(how)
        assert clean_files.counts()[1:] == (files, files)


def test_entries_of_an_unfinished_batch_tell_no_end(clean_files: CleanFiles) -> None:
    """A killed tail left entries that its next start drops: the files in front of them, which it counts, stay."""
    middle, end = clean_files.records[14].physical_offset, record_bounds(clean_files.records)[-1]
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        before = Path(directory)
        with SinkRun(before, clean_files.SETTINGS) as run:
            run.write(LogBatches(clean_files.log)(0, middle))
        shutil.copytree(before / "reput" / "progress", clean_files.out / "reput" / "progress", dirs_exist_ok=True)
    for segment in sorted(clean_files.log.iterdir())[:14]:
        segment.unlink()
    clean_files.expire("expire")
    assert clean_files.counts()[1:] == (7, 7)  # the second file of each has the last record of the report
    with no_fsync(), SinkRun(clean_files.out, clean_files.SETTINGS) as run:
        assert run.end == middle
        run.write(LogBatches(clean_files.log)(middle, end))
    assert clean_files.counts()[1:] == (7, 7)


def test_delete_expired_file_by_offset(tmp_path: Path) -> None:
    """``MappedFileQueueTest``: 2048 units of offsets 0, 1, ... in 8 files, all below 20480: all files but the last."""
    disk = write_queue(tmp_path, [(i, 100, 0) for i in range(2048)], 5120)
    assert len(disk.files) == 8
    found = expire_queue(disk, 20480)
    assert [int(parts[-1]) for parts in found.removed] == [5120 * i for i in range(7)]
    assert (found.min_offset, found.max_offset) == (2048, 2048)


@pytest.mark.parametrize(
    ("least", "min_offset"), [(0, 0), (1, 1), (100, 1), (2000, 20), (999_900, 9999), (999_901, 10_000), (10**6, 10_000)]
)
def test_correct_min_offset(least: int, min_offset: int, tmp_path: Path) -> None:
    """``ConsumeQueueTest#testCorrectMinOffset`` of 5.x: 10,000 records of 100 bytes; after the last one, the end."""
    disk = write_queue(tmp_path, [(100 * i, 100, 0) for i in range(10_000)], 6_000_000)
    found = expire_queue(disk, least)
    assert (found.min_offset, found.max_offset, found.removed) == (min_offset, 10_000, ())


# --- the rules by name -----------------------------------------------------------------------------------

BLANK = (0, 0x7FFFFFFF, 0)


@pytest.mark.parametrize(
    ("units", "least", "removed", "minimum"),
    [
        pytest.param([(0, 9, 0), (10, 9, 0), (20, 9, 0), (30, 9, 0)], 10, [], 1, id="equal is not below"),
        pytest.param([(0, 9, 0), (10, 9, 0), (20, 9, 0), (30, 9, 0)], 11, [0], 2, id="the last unit is below"),
        pytest.param([(0, 9, 0), (10, 9, 0), (20, 9, 0), (30, 9, 0)], 99, [0], 4, id="never the last file"),
        pytest.param([BLANK, (10, 9, 0), (20, 9, 0)], 0, [], 1, id="pre-blank is no entry"),
        pytest.param([BLANK, (10, 9, 0), (20, 9, 0)], 11, [0], 2, id="behind pre-blank"),
        pytest.param([(0, 9, 0), (0, 0, 0), (20, 9, 0)], 15, [], 2, id="a file that is not full is not judged"),
        pytest.param([(0, 9, 0), (10, 9, 0), (0, 0, 0)], 99, [], 2, id="an empty last file tells no end"),
        pytest.param([], 5, [], 0, id="nothing"),
    ],
)
def test_which_queue_files_go(
    units: list[tuple[int, int, int]], least: int, removed: list[int], minimum: int, tmp_path: Path
) -> None:
    """Files of two entries."""
    found = expire_queue(write_queue(tmp_path, units, 40), least)
    assert [int(parts[-1]) for parts in found.removed] == removed
    assert found.min_offset == minimum


@pytest.mark.parametrize(("least", "removed"), [(5, 0), (6, 1), (10, 1), (11, 2), (99, 3)])
def test_which_index_files_go(least: int, removed: int, tmp_path: Path) -> None:
    """Leading files whose end is below, never the last, and none behind one that stays."""
    (tmp_path / "index").mkdir()
    for i, end in enumerate([5, 10, 20, 1]):
        (tmp_path / "index" / f"2023111422132000{i}").write_bytes(struct.pack(">qqqqii", 0, 0, 0, end, 1, 2))
    (tmp_path / "index" / "notes.txt").touch()
    found = expired_index_files(tmp_path, least)
    assert found == [("index", f"2023111422132000{i}") for i in range(removed)]


def test_ext_files_are_cut_by_the_first_entry_left(tmp_path: Path) -> None:
    """``ConsumeQueueExtTest``: truncateByMin(420) of files of 280 bytes takes the first: its end, 280, is below 420."""
    zero = -(2**63)
    disk = write_queue(tmp_path, [(0, 9, zero), (10, 9, zero + 420), (20, 9, zero + 560)], 60)
    directory = tmp_path / "consumequeue_ext" / "A" / "0"
    directory.mkdir(parents=True)
    for file in range(0, 1120, 280):
        (directory / f"{file:020d}").write_bytes(bytes(280))
    assert expire_queue(disk, 0).removed == ()
    assert expire_queue(disk, 10).removed == (("consumequeue_ext", "A", "0", f"{0:020d}"),)
    assert expire_queue(disk, 20).removed == (("consumequeue_ext", "A", "0", f"{0:020d}"),)  # 560 is not below 560
    assert expire_queue(disk, 99).removed == ()  # no entry is left to tell


BATCH_UNIT = struct.Struct(">qiqqqhii")


@pytest.mark.parametrize(
    ("units", "least", "removed", "left"),
    [
        pytest.param([(0, 0, 3), (10, 3, 2), (20, 5, 1), (30, 6, 4)], 0, [], (0, 10), id="nothing"),
        pytest.param([(0, 0, 3), (10, 3, 2), (20, 5, 1), (30, 6, 4)], 1, [], (3, 10), id="inside a file"),
        pytest.param([(0, 0, 3), (10, 3, 2), (20, 5, 1), (30, 6, 4)], 10, [], (3, 10), id="equal is not below"),
        pytest.param([(0, 0, 3), (10, 3, 2), (20, 5, 1), (30, 6, 4)], 11, [0], (5, 10), id="the last unit is below"),
        pytest.param([(0, 0, 3), (10, 3, 2), (20, 7, 1), (30, 9, 4)], 11, [0], (7, 13), id="a file begins anew"),
        pytest.param([(0, 0, 3), (10, 3, 2), (20, 7, 1), (30, 9, 4)], 21, [0], (8, 13), id="behind the unit before"),
        pytest.param([(0, 0, 3), (10, 3, 2), (20, 5, 1)], 99, [0], (6, 6), id="never the last file"),
        pytest.param([(0, 0, 3), (10, 3, 2)], 99, [], (5, 5), id="the only file"),
        pytest.param([], 99, [], (0, 0), id="no unit"),
    ],
)
def test_which_batch_queue_files_go(
    units: list[tuple[int, int, int]], least: int, removed: list[int], left: tuple[int, int], tmp_path: Path
) -> None:
    """``BatchConsumeQueue#deleteExpiredFile``: files of two units; a unit is of several messages."""
    directory = tmp_path / "batchconsumequeue" / "B" / "0"
    directory.mkdir(parents=True)
    data = b"".join(BATCH_UNIT.pack(at, 9, 7, 0, base, size, -1, 0) for at, base, size in units)
    for at in range(0, max(1, len(data)), 92):
        (directory / f"{at:020d}").write_bytes(data[at : at + 92].ljust(92, b"\0"))
    (disk,) = load_queues(tmp_path, BATCH_KIND, 92)
    found = expire_queue(disk, least)
    assert found.removed == tuple(("batchconsumequeue", "B", "0", f"{file:020d}") for file in removed)
    assert (found.min_offset, found.max_offset) == left


# --- the sinks continue -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_what_follows_is_as_if_nothing_had_gone(seed: int) -> None:
    """Expire in the middle of a run, at random: every file that is left has the bytes of a run without it."""
    rng = Random(seed)
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), rng, 150, done=rng.choice([0.5, 0.8, 1.0]))
        whole = output.batches()
        with SinkRun(output.out, output.settings) as run:
            reached = run.end
        removed = rng.randrange(1, reached // 2000 + 1)
        for segment in sorted(output.log.iterdir())[:removed]:
            segment.unlink()
        before = files_below(output.out)
        planned = expire_output(output.config, output.out, dry_run=True)
        assert files_below(output.out) == before
        report = expire_output(output.config, output.out)
        assert report == planned
        assert not expire_output(output.config, output.out).removed
        assert not recover_output(output.config, output.store, output.out).is_changed
        allowed = record_bounds(output.records)
        with SinkRun(output.out, output.settings) as run:
            assert run.end == reached
            start = max(offset for offset in allowed if offset <= reached)
            if start < allowed[-1]:
                run.write(whole(start, allowed[-1]))
        queues = expected_queue_files(output.records, output.settings)
        assert {path: data for path, data in files_below(output.out).items() if path.startswith("consumequeue/")} == {
            path: data for path, data in queues.items() if path not in report.removed
        }
        assert (
            index_contents(output.out)
            == index_file_contents(output.records, output.settings)[len(report.index_files) :]
        )
        for queue in report.queues:
            first = [
                record.message.queue_offset
                for record in output.records
                if (record.message.topic, record.message.queue_id) == (queue.topic, queue.queue_id)
                and record.message.is_queued
                and 2000 * removed <= record.physical_offset < reached
            ]
            assert queue.min_offset == (first[0] if first else queue.max_offset)


# --- refused ---------------------------------------------------------------------------------------------


def test_another_log_is_refused(tmp_path: Path) -> None:
    """A store of other messages tells nothing of what has expired here."""
    output = Output.make(tmp_path, Random(1))
    output.write_log([replace(record.message, body=b"another") for record in output.records])
    before = files_below(output.out)
    with pytest.raises(UnexplainedError, match="or --yes to go by this log all the same"):
        expire_output(output.config, output.out)
    assert files_below(output.out).keys() - {"lock"} == before.keys()


def test_a_log_that_is_gone_is_refused(tmp_path: Path) -> None:
    """Without a segment nothing tells the minimum."""
    output = Output.make(tmp_path, Random(1))
    for segment in output.log.iterdir():
        segment.unlink()
    with pytest.raises(UnexplainedError, match=r"commitlog has no record, .* nothing tells what has expired"):
        expire_output(output.config, output.out)


def test_a_held_lock_is_refused(tmp_path: Path, hold_lock: Callable[[Path], int]) -> None:
    """Also for a dry run: a running tail changes what it would tell."""
    output = Output.make(tmp_path, Random(1))
    (output.out / "lock").write_bytes(b"lock")
    process = hold_lock(output.out / "lock")
    for dry_run in (True, False):
        with pytest.raises(StoreLockedError, match=f"locked by process {process}"):
            expire_output(output.config, output.out, dry_run=dry_run)
        with pytest.raises(StoreLockedError, match=f"locked by process {process}"):
            recover_output(output.config, output.store, output.out, dry_run=dry_run)


@pytest.mark.parametrize("name", ["A/007", "A/\u0663"])
def test_a_hostile_directory_is_refused(name: str, tmp_path: Path) -> None:
    """The error has the name, which no broker makes, and nothing is removed."""
    output = Output.make(tmp_path, Random(1))
    directory = output.out / "consumequeue" / name
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(bytes(100))
    before = files_below(output.out)
    for command in (
        lambda: expire_output(output.config, output.out),
        lambda: recover_output(output.config, output.store, output.out),
    ):
        with pytest.raises(SinkError, match="is not a queue's directory"):
            command()
    assert files_below(output.out).keys() - {"lock"} == before.keys()


@pytest.mark.parametrize("name", ["a\nb/1", "a\u2028b/0"])
def test_a_directory_of_a_name_that_is_not_made_stays(name: str, tmp_path: Path) -> None:
    """It costs only itself: the commands continue, and do not touch it."""
    output = Output.make(tmp_path, Random(1))
    directory = output.out / "consumequeue" / name
    directory.mkdir(parents=True)
    (directory / f"{0:020d}").write_bytes(bytes(100))
    expire_output(output.config, output.out)
    recover_output(output.config, output.store, output.out)
    assert (directory / f"{0:020d}").read_bytes() == bytes(100)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A topic that is a symbolic link is not a part of the output: nothing below it is read or removed."""
    output = Output.make(tmp_path, Random(1))
    outside = write_queue(tmp_path / "outside", [(0, 9, 0)] * 10, 100)
    (output.out / "consumequeue" / "Linked").symlink_to(outside.path(0).parents[1])
    before = files_below(tmp_path / "outside")
    for segment in sorted(output.log.iterdir())[:3]:
        segment.unlink()
    assert expire_output(output.config, output.out).removed
    recover_output(output.config, output.store, output.out)
    assert files_below(tmp_path / "outside") == before
