"""G7: an error of the system at every call that changes the disk, once or for ever: nothing lost or half done."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from errno import EIO, ENOSPC
from os import strerror
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from faults.crash_shapes import SHAPES, Processes, Shape, make_shape
from faults.fault_files import Disk, fail_at, system
from sink_runner import MEMORY

from reput.sinks.sink_progress import ProgressFile
from reput.source.errors import OutputError


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Iterator[Shape]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield make_shape(request.param, Path(directory))


def check_message(error: BaseException, code: int, shape: Shape) -> None:
    assert isinstance(error, OutputError)
    assert f" {shape.root}" in str(error)
    assert str(error).endswith(f": {strerror(code)}; the output needs a writable directory with room on its disk")


def one_error(shape: Shape, code: int, step: int, *, for_ever: bool, power_fails: bool) -> None:
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
        if error is None:
            return


@pytest.mark.parametrize("code", [ENOSPC, EIO])
def test_one_error_at_any_call(shape: Shape, code: int) -> None:
    """The error names the path and the reason; the next process goes on as if nothing had been."""
    one_error(shape, code, 2, for_ever=False, power_fails=False)


def test_errors_for_ever_from_any_call(shape: Shape) -> None:
    """A second process fails as cleanly as the first; when the disk is well again, all is there."""
    one_error(shape, ENOSPC, 3, for_ever=True, power_fails=False)


def test_power_fails_after_an_error(shape: Shape) -> None:
    """What the system gave up to write back, and told once, is not taken for durable."""
    one_error(shape, EIO, 3, for_ever=False, power_fails=True)


@pytest.mark.slow
@pytest.mark.parametrize("power_fails", [False, True])
@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("code", [ENOSPC, EIO])
def test_errors_in_full(shape: Shape, code: int, for_ever: bool, power_fails: bool) -> None:
    """Every call, every way."""
    one_error(shape, code, 1, for_ever=for_ever, power_fails=power_fails)


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
