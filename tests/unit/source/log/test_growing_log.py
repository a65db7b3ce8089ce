"""The end of a log while it is written."""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from support.logs import end_of, load_log, varied_messages
from support.proof_counts import Proof
from support.record_writer import CommitLogWriter, Message, encode, write_log
from support.sink_runner import MEMORY

from reput.source.log import reput_end_offset
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.reput_end_offset import ReputEndFinder

SIZE = 8192


@pytest.fixture(autouse=True)
def no_waits() -> None:
    """Here are the real ones."""


class Growing:
    """A finished log, laid down again byte by byte; its clock moves only between records."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.written = 0  # the end of the records whose every byte is written
        self.now = 0.0
        self._rng = random.Random(seed)
        queue, self.records = load_log(directory / "model", varied_messages(150, seed=seed), SIZE)
        self._model = b"".join(Path(file.path).read_bytes() for file in queue.files)
        self.directory = directory / "live"
        self.directory.mkdir()
        self._descriptors: dict[int, int] = {}

    def write(self) -> None:
        """Lay down every record, its bytes in chunks of random order and size, and the blanks."""
        for record, after in zip(self.records, [*self.records[1:], None], strict=True):
            start, end = record.physical_offset, record.physical_offset + record.msg_size
            self._lay(start, end)
            self.written = end
            self.now += 1.0
            if after is not None and after.physical_offset > end:
                self._lay(end, end + 8)
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def _lay(self, start: int, end: int) -> None:
        cuts = sorted({start, end, *(self._rng.randint(start, end) for _ in range(4))})
        chunks = list(zip(cuts, cuts[1:], strict=False))
        self._rng.shuffle(chunks)
        for at, stop in chunks:
            os.pwrite(self._file(start // SIZE), self._model[at:stop], at % SIZE)
            time.sleep(0.00005)

    def _file(self, number: int) -> int:
        if number not in self._descriptors:
            path = self.directory / f"{number * SIZE:020d}"
            self._descriptors[number] = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
            os.ftruncate(self._descriptors[number], SIZE)
        return self._descriptors[number]


def follow(directory: Path, seed: int) -> tuple[int, int]:
    """Look for the end while bytes come in any order; how many records, how many looks. See the test."""
    log = Growing(directory, seed)
    records = {record.physical_offset + record.msg_size for record in log.records} | {0}
    offsets = records | set(range(0, 100 * SIZE, SIZE))
    finder = ReputEndFinder(check_crc=True, tail_guard_ms=500, clock=lambda: log.now)
    writer = threading.Thread(target=log.write)
    writer.start()
    offset, polls = 0, 0
    while writer.is_alive() or polls == 0:
        end = finder.find(MappedFileQueue.load([log.directory]), offset).offset
        written = log.written
        assert end in offsets
        assert offset <= end
        assert end <= written or end == -(-written // SIZE) * SIZE
        offset, polls = end, polls + 1
    writer.join()
    finder.find(MappedFileQueue.load([log.directory]), offset)
    log.now += 1.0
    assert end_of(log.records) == finder.find(MappedFileQueue.load([log.directory]), offset).offset
    return len(log.records), polls


def follow_all(seeds: range, proof: Proof) -> None:
    looks = 0
    for seed in seeds:
        with TemporaryDirectory(dir=MEMORY) as directory:
            records, polls = follow(Path(directory), seed)
        proof("G3 records laid down in any order", records)
        looks += polls
    assert looks > 3 * len(seeds)  # a loaded machine lets a log pass between two looks


def test_a_log_is_found_as_it_grows(proof: Proof) -> None:
    """While bytes come in any order, the end is that of a whole record, never goes back, gets to the last."""
    follow_all(range(3), proof)


@pytest.mark.slow
def test_a_log_is_found_as_it_grows_in_full(proof: Proof) -> None:
    """As above, REPUT_PROOF_RECORDS records."""
    follow_all(range(3, 3 + int(os.environ.get("REPUT_PROOF_RECORDS", "30000")) // 150), proof)


def test_settle_waits_for_the_last_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a real clock: the last record of a log without a writer is waited for, once."""
    records = write_log(tmp_path, varied_messages(20), SIZE)
    finder = ReputEndFinder(check_crc=True, tail_guard_ms=20)
    sleeps: list[float] = []
    # Only its own: threads of other tests may still sleep.
    own = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: sleeps.append(seconds) or time.sleep(seconds))
    monkeypatch.setattr(reput_end_offset, "time", own)
    end = finder.settle(lambda: MappedFileQueue.load([tmp_path]), 0)
    assert (end.offset, end.held_back) == (end_of(records), 0)
    assert end == finder.settle(lambda: MappedFileQueue.load([tmp_path]), 0)
    (slept,) = sleeps
    assert 0.01 < slept <= 0.02


def test_what_is_done_meanwhile_is_part_of_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, varied_messages(20), SIZE)
    now, done = [100.0], list[float]()

    def pass_time(seconds: float) -> None:
        now[0] += seconds
        done.append(seconds)

    monkeypatch.setattr(reput_end_offset, "time", SimpleNamespace(sleep=pass_time))
    finder = ReputEndFinder(check_crc=True, tail_guard_ms=500, clock=lambda: now[0], meanwhile=lambda: pass_time(0.375))
    end = finder.settle(lambda: MappedFileQueue.load([tmp_path]), 0)
    assert (end.held_back, done) == (0, [0.375, 0.125])


def test_settle_does_not_wait_for_an_empty_log(tmp_path: Path) -> None:
    """Nothing is held back, so there is nothing to wait for."""
    finder = ReputEndFinder(check_crc=True, tail_guard_ms=60_000)
    assert finder.settle(lambda: MappedFileQueue.load([tmp_path]), 0).offset == 0


def test_settle_does_not_follow_a_log_for_ever(tmp_path: Path) -> None:
    """A log that grows at every look is given up after two guards, its last record held back."""
    with CommitLogWriter(tmp_path, 1 << 20) as writer:

        def load() -> MappedFileQueue:
            writer.append(Message())
            return MappedFileQueue.load([tmp_path])

        begun = time.monotonic()
        end = ReputEndFinder(check_crc=True, tail_guard_ms=10).settle(load, 0)
        assert time.monotonic() - begun < 5
        assert end.offset == writer.records[-1].physical_offset
        assert end.held_back == writer.records[-1].msg_size


def test_settle_takes_what_came_while_it_waited(tmp_path: Path) -> None:
    """A torn record that is completed during the wait is in."""
    message = Message(properties={"TAGS": "abc"})
    with CommitLogWriter(tmp_path, 4096) as writer:
        torn_at = writer.append_torn(message, len(encode(message, 0)) - 2)
        looks = 0

        def load() -> MappedFileQueue:
            nonlocal looks
            looks += 1
            if looks == 2:
                assert torn_at == writer.append(replace(message))
            return MappedFileQueue.load([tmp_path])

        end = ReputEndFinder(check_crc=True, tail_guard_ms=15).settle(load, 0)
        assert (end.offset, end.held_back) == (writer.max_offset, 0)
        assert looks >= 3
