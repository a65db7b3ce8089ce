"""G6, G7: a tail that removes what has expired of its outputs is killed, loses power, or meets an error at any call."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from faults.crash_shapes import EXT_FILE_SIZES, NothingKept
from faults.fault_files import Disk, Stopped, system
from support.model import Settings
from support.proof_counts import Proof
from support.record_writer import Message, write_log
from support.sink_runner import (
    MEMORY,
    LogBatches,
    SinkRun,
    files_below,
    no_fsync,
    record_bounds,
    service_of,
)

from reput.sinks.dispatch.logic_needs import LogicNeeds

SETTINGS = Settings(mapped_file_size_consume_queue=100, max_hash_slot_num=7, max_index_num=10)
SEGMENT_BYTES = 2000
EXPIRED_SEGMENTS = 3
NEEDS = LogicNeeds(ext=True, batch_topics=frozenset({b"B"}))
KINDS = ("consumequeue/", "consumequeue_ext/", "batchconsumequeue/", "index/")


def messages() -> Iterator[Message]:
    """Of a plain topic in two queues, whose entries have ext units, and of a topic of inner batches."""
    for number in range(100):
        inner = {"INNER_NUM": "2", "INNER_BASE": str(2 * (number // 2))} if number % 2 else {}
        properties = {"TAGS": "t", "KEYS": f"k{number % 5}", **inner}
        topic, queue_id = ("B", 0) if inner else ("A", number // 2 % 2)
        yield Message(topic, queue_id, properties=properties, store_timestamp=1_000_000 + 700 * number)


class InStep:
    """Counts the calls of a step, and lets one of them, or each from it on, fail or be the process's end."""

    def __init__(self, number: int, code: int | None = None) -> None:
        self.number, self.code = number, code
        self.calls = 0
        self.is_on = False

    def __call__(self, _: int, __: str) -> None:
        self.calls += self.is_on
        if not self.is_on or self.calls < self.number:
            return
        if self.code is None:
            raise Stopped
        if self.calls == self.number:
            raise OSError(self.code, os.strerror(self.code))


@dataclass
class Case:
    """A log and an output of its first two thirds; three segments have expired, and the rest is to be dispatched."""

    root: Path

    def __post_init__(self) -> None:
        self.log, self.out = self.root / "log", self.root / "out"
        self.bounds = record_bounds(write_log(self.log, messages(), SEGMENT_BYTES))
        self.middle = self.bounds[2 * len(self.bounds) // 3]
        batches = LogBatches(self.log, needs=NEEDS)
        self.rest = batches(self.middle, self.bounds[-1])
        with self.run() as run:
            run.write(batches(0, self.middle))
        for segment in sorted(self.log.iterdir())[:EXPIRED_SEGMENTS]:
            segment.unlink()
        shutil.copytree(self.out, self.root / "before")
        self.before = files_below(self.out)
        with self.run() as run:
            report = service_of(run, self.log).step()
            assert report is not None
            self.removed = report.removed
            run.write(self.rest)
        self.wanted = files_below(self.out)

    def run(self, out: Path | None = None) -> SinkRun:
        """The sinks of the output, or of a copy of it."""
        return SinkRun(out or self.out, SETTINGS, ext_file_size=EXT_FILE_SIZES["ext"], batch_file_size=138)

    def restore(self) -> Disk:
        shutil.rmtree(self.out)
        shutil.copytree(self.root / "before", self.out)
        return Disk(self.out)

    def go_on(self) -> None:
        """The next process removes what is left, and dispatches the rest: all is as if nothing had been."""
        with no_fsync(), self.run() as run:
            assert run.end == self.middle
            service_of(run, self.log).step()
            run.write(self.rest)
        assert files_below(self.out) == self.wanted


@pytest.fixture(scope="module")
def case() -> Iterator[Case]:
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        yield Case(Path(directory))


def test_files_of_each_kind_go(case: Case) -> None:
    """Several of each; what is left is what a run without expiry has, and what the sinks write is not changed by it."""
    assert {f"{kind}/" for kind in case.removed} == set(KINDS)
    assert min(case.removed.values()) >= 2
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        shutil.copytree(case.root / "before", Path(directory), dirs_exist_ok=True)
        with case.run(Path(directory)) as run:
            run.write(case.rest)
        whole = files_below(Path(directory))
    gone = whole.keys() - case.wanted.keys()
    assert case.wanted == {path: data for path, data in whole.items() if path not in gone}
    assert len(gone) == sum(case.removed.values())
    check_only_oldest(gone, case.wanted)


@pytest.mark.parametrize("loss", ["kill", "power", "power, some kept"])
def test_stopped_at_any_call(case: Case, loss: str, proof: Proof) -> None:
    """Killed, or without power, before each call: no queue gets a hole, the next process ends with the same bytes."""
    for number in itertools.count(1):
        disk, fault = case.restore(), InStep(number)
        with system(disk, fault):
            lived = step_in(case, fault)
        if loss != "kill":
            disk.lose_power(NothingKept() if loss == "power" else Random(number))
        check_no_hole(case)
        case.go_on()
        proof("G6 crash points of the removal in reput tail")
        if lived:
            break
    assert number > 20


def step_in(case: Case, fault: InStep) -> bool:
    """Take the step in a process of its own; whether it lived."""
    with case.run() as run:
        service = service_of(run, case.log)
        fault.is_on = True
        try:
            service.step()
        except Stopped:
            return False
        fault.is_on = False
    return True


def check_no_hole(case: Case) -> None:
    found = files_below(case.out)
    check_only_oldest(case.before.keys() - found.keys(), found)


def check_only_oldest(gone: Iterable[str], left: Iterable[str]) -> None:
    """Of each queue, and of the index, only the oldest files are gone."""
    left = list(left)
    for path in gone:
        directory = path.rpartition("/")[0]
        assert all(path < other for other in left if other.rpartition("/")[0] == directory)


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES], ids=["EIO", "EACCES"])
def test_an_error_at_any_call(case: Case, code: int, proof: Proof, caplog: pytest.LogCaptureFixture) -> None:
    """One warning; the run continues with its batches, and the next look removes the rest."""
    for number in itertools.count(1):
        disk, fault = case.restore(), InStep(number, code)
        now = [0.0]
        caplog.clear()
        with system(disk, fault), caplog.at_level(logging.WARNING, "reput"), case.run() as run:
            service = service_of(run, case.log, 10_000, lambda now=now: now[0])
            fault.is_on = True
            report = service.step()
            fault.is_on = False
            failed = fault.calls >= number
            assert report is not None
            assert report.failed == failed
            assert len([text for text in caplog.messages if os.strerror(code) in text]) == failed
            check_no_hole(case)
            run.write(case.rest)
            now[0] += 10
            again = service.step()
            assert (again is not None) == failed
        assert files_below(case.out) == case.wanted
        if failed:
            # Syncs of the second look count, although a sync of the first one failed.
            disk.lose_power(NothingKept())
            assert files_below(case.out) == case.wanted
        proof("G7 errors at a call")
        if not failed:
            break
    assert number > 20


def test_a_disk_that_refuses_for_ever(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """No file can be removed, again and again: one warning, and each batch is written."""

    def no_unlink(_: int, name: str) -> None:
        if name == "unlink":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    now = [0.0]
    with system(case.restore(), no_unlink), case.run() as run, caplog.at_level(logging.WARNING, "reput"):
        service = service_of(run, case.log, 10_000, lambda: now[0])
        for _ in range(3):
            report = service.step()
            assert report is not None
            assert report.removed == {}
            assert report.failed > 3
            now[0] += 10
        run.write(case.rest)
    (warning,) = [text for text in caplog.messages if "expired files stay for now" in text]
    assert "Permission denied; " in warning
    assert f"(and {report.failed - 1} more); trying again every 10 s" in warning
    with no_fsync(), case.run() as run:
        service_of(run, case.log).step()
    assert files_below(case.out) == case.wanted
