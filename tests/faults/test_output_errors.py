"""G7: an error of the system at every call that changes the disk, once or for ever: nothing lost or half done."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from errno import EDQUOT, EIO, ENOSPC, EROFS
from os import strerror
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from faults.crash_shapes import SETTINGS, SHAPES, Processes, Shape, make_shape
from faults.fault_files import Disk, fail_at, short_at, system
from support.proof_counts import Proof
from support.sink_runner import MEMORY, SinkRun, files_below

from reput.sinks.files.sink_progress import ProgressFile
from reput.source.errors import OutputError


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Iterator[Shape]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield make_shape(request.param, Path(directory))


def check_message(error: BaseException, code: int, shape: Shape) -> None:
    assert isinstance(error, OutputError)
    assert f" {shape.root}" in str(error)
    assert str(error).endswith(f": {strerror(code)}; the output needs a writable directory with room on its disk")


def one_error(shape: Shape, code: int, step: int, proof: Proof, *, for_ever: bool, power_fails: bool) -> None:
    for number in itertools.count(1 + code % step, step):
        processes = Processes(shape)
        error = processes.run(fail_at(number, code, for_ever=for_ever), seed=number)
        if error is not None:
            check_message(error, code, shape)
            if for_ever:
                again = processes.run(fail_at(1, code, for_ever=True), seed=number)
                assert again is not None
                check_message(again, code, shape)
        if power_fails:
            processes.disk.lose_power(Random(number))
        processes.check(other_cuts=number % 2 == 0)
        if power_fails:  # a sync that failed took nothing with it that a later one was to make durable
            processes.promised = dict.fromkeys(processes.promised, shape.last)
            processes.disk.lose_power(Random(number))
            processes.check(other_cuts=False)
        proof("G7 errors at a call")
        if error is None:
            return


@pytest.mark.parametrize(("code", "step"), [(ENOSPC, 3), (EIO, 3), (EROFS, 9), (EDQUOT, 9)])
def test_one_error_at_any_call(shape: Shape, code: int, step: int, proof: Proof) -> None:
    """The error names the path and the reason; the next process continues as if nothing had happened."""
    one_error(shape, code, step, proof, for_ever=False, power_fails=False)


def test_errors_for_ever_from_any_call(shape: Shape, proof: Proof) -> None:
    """A second process fails as cleanly as the first; when the disk is well again, everything is kept."""
    one_error(shape, ENOSPC, 4, proof, for_ever=True, power_fails=False)


def test_power_fails_after_an_error(shape: Shape, proof: Proof) -> None:
    """Data that the system failed to write back, and reported once, is not taken for durable."""
    one_error(shape, EIO, 4, proof, for_ever=False, power_fails=True)


def short_writes(shape: Shape, step: int, proof: Proof, *, for_ever: bool) -> None:
    processes = Processes(shape)
    calls = 0

    def count(number: int, _: str) -> None:
        nonlocal calls
        calls = number

    assert processes.run(count) is None
    for number in range(1, calls + 1, step):
        processes = Processes(shape)
        assert processes.run(short_at(number, for_ever=for_ever)) is None
        assert files_below(shape.root) == shape.states[shape.end]
        processes.disk.lose_power(Random(number))
        processes.check(other_cuts=number % 2 == 0)
        proof("G7 short writes")


@pytest.mark.parametrize("for_ever", [False, True])
def test_short_writes_are_finished(shape: Shape, for_ever: bool, proof: Proof) -> None:
    """A system that writes half of what it is given, once or always, changes no byte and no promise."""
    short_writes(shape, 8, proof, for_ever=for_ever)


@pytest.mark.slow
@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("code", [ENOSPC, EIO, EROFS, EDQUOT])
def test_errors_in_full(shape: Shape, code: int, for_ever: bool, power_fails: bool, proof: Proof) -> None:
    """Every call, every way."""
    one_error(shape, code, 1, proof, for_ever=for_ever, power_fails=power_fails)


@pytest.mark.slow
@pytest.mark.parametrize("for_ever", [False, True])
def test_short_writes_in_full(shape: Shape, for_ever: bool, proof: Proof) -> None:
    """Every write, once and from there on."""
    short_writes(shape, 1, proof, for_ever=for_ever)


def test_an_error_moves_no_end(tmp_path: Path) -> None:
    """After a failed write, `end_offset` tells what the progress record on disk tells."""
    shape = make_shape("middle", tmp_path)
    for number in itertools.count(1):
        shape.restore()
        with system(Disk(shape.root), fail_at(number, EIO)):
            run = shape.new_run()
            try:
                run.recover()
                run.write(shape.batch(shape.start, shape.end))
            except OutputError:
                for sink in (run.queues, run.index):
                    record = ProgressFile(run.files, sink.name).load()
                    assert sink.end_offset <= (record.end_offset if record else 0), f"{sink.name}, call {number}"
            else:
                return
            finally:
                run.close()


def test_no_restart_on_a_failing_disk_leaves_more_files(tmp_path: Path) -> None:
    """No room for a new index file, at every start again: each removes the files of the one before, in time."""
    shape = make_shape("index roll", tmp_path)
    shape.restore()
    disk, clock, counts = Disk(shape.root), itertools.count(1.8e9), []

    def no_room(_: int, name: str) -> None:
        if name == "truncate":
            raise OSError(ENOSPC, strerror(ENOSPC))

    for _ in range(20):
        with system(disk, no_room), closing(SinkRun(shape.root, SETTINGS, clock=lambda: next(clock))) as run:
            run.recover()
            with pytest.raises(OutputError):
                run.write(shape.batch(shape.start, shape.end))
        counts.append(len(files_below(shape.root)))
    assert next(clock) > 1.8e9
    assert set(counts) == {counts[0]}
