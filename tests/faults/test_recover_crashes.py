"""G6 for `reput recover` and `reput expire`: stopped at any call, they are run again and come to the same bytes."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from faults.crash_shapes import NothingKept
from faults.fault_files import Disk, Stopped, fail_at, stop_at, system
from support.outputs import (
    Output,
    bogus_queue,
    damaged_index,
    lost_index_file,
    lost_queue,
    lost_records,
    rewind_log,
    short_last_file,
    stale_units,
)
from support.proof_counts import Proof
from support.sink_runner import MEMORY, files_below, no_fsync

from reput.source.errors import OutputError, ReputError
from reput.streaming.recover.recover import expire_output, recover_output


def recover(output: Output) -> None:
    recover_output(output.config, output.store, output.out)


def expire(output: Output) -> None:
    expire_output(output.config, output.out)


def rewound(output: Output, rng: Random) -> None:
    """Everything at once: another tail of the log, stale and lost files, a Spark checkpoint far ahead."""
    stale_units(output, rng)
    rewind_log(output, rng)
    bogus_queue(output, rng)
    spark_checkpoint(output, 10**9)


def lost_files(output: Output, rng: Random) -> None:
    lost_queue(output, rng)
    lost_index_file(output, rng)
    damaged_index(output, rng)


def brokers_own(output: Output, rng: Random) -> None:
    """No progress records, and the last writes torn."""
    short_last_file(output, rng)
    lost_records(output, rng)
    lost_records(output, rng)
    damaged_index(output, rng)


def expired(output: Output, rng: Random) -> None:
    for segment in sorted(output.log.iterdir())[:3]:
        segment.unlink()


def spark_checkpoint(output: Output, offset: int) -> None:
    directory = output.out / "reput" / "spark-checkpoint" / "logic"
    for folder, text in (("commits", "v1\n{}"), ("offsets", "v1\n{}\n" + json.dumps({"physicOffset": offset}))):
        (directory / folder).mkdir(parents=True)
        (directory / folder / "0").write_text(text)


CASES: dict[str, tuple[Callable[[Output, Random], None], Callable[[Output], None]]] = {
    "rewound log": (rewound, recover),
    "lost files": (lost_files, recover),
    "a broker's own files": (brokers_own, recover),
    "expired segments": (expired, expire),
}


class Case:
    """A spoiled output, which can be put back, and what the command makes of it when nothing stops it."""

    def __init__(self, name: str, root: Path) -> None:
        spoil, self.command = CASES[name]
        with no_fsync():
            self.output = Output.make(root, Random(name), 70)
            spoil(self.output, Random(name))
            shutil.copytree(self.output.out, root / "spoiled")
            self.spoiled = root / "spoiled"
            self.command(self.output)
            self.wanted = files_below(self.output.out)
            assert self.wanted != files_below(self.spoiled)

    def restore(self) -> Disk:
        shutil.rmtree(self.output.out)
        shutil.copytree(self.spoiled, self.output.out)
        return Disk(self.output.out)

    def check(self) -> None:
        """Run again, it ends with the bytes of a run that nothing stopped; so does what follows."""
        with no_fsync():
            self.command(self.output)
            if self.command is expire:
                assert kept(files_below(self.output.out)) == kept(self.wanted)
                return
            assert not recover_output(self.output.config, self.output.store, self.output.out).is_changed
            self.output.go_on()
            self.output.check()


def kept(tree: dict[str, bytes]) -> dict[str, bytes]:
    """Without the lock, which the faulty disk does not know."""
    return {path: data for path, data in tree.items() if path != "lock"}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield Case(request.param, Path(directory))


LOSSES = ["kill", "power", "power, some kept"]


@pytest.mark.parametrize("loss", LOSSES)
def test_stop_at_any_call(case: Case, loss: str, proof: Proof) -> None:
    """Killed, or without power, before calls that change the disk: each call once, in one of the ways."""
    stop_at_calls(case, loss, proof, first=1 + LOSSES.index(loss), step=len(LOSSES))


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_stop_at_any_call_in_full(case: Case, loss: str, proof: Proof) -> None:
    """Each call in each way."""
    stop_at_calls(case, loss, proof, first=1, step=1)


def stop_at_calls(case: Case, loss: str, proof: Proof, first: int, step: int) -> None:
    for number in itertools.count(first, step):
        disk = case.restore()
        with system(disk, stop_at(number)):
            try:
                case.command(case.output)
                lived = True
            except Stopped:
                lived = False
        if loss != "kill":
            disk.lose_power(NothingKept() if loss == "power" else Random(number))
        if number % 2 and case.command is recover:
            with suppress(ReputError), no_fsync():  # a tail in between is refused, or continues as it should
                case.output.go_on()
        case.check()
        proof(f"G6 crash points of reput {case.command.__name__}")
        if lived:
            break
    assert number > 5


@pytest.mark.parametrize("code", [5, 28], ids=["EIO", "ENOSPC"])
def test_errors_of_the_system(case: Case, code: int, proof: Proof) -> None:
    """A call fails once: one clear error, and the next run heals."""
    fail_at_calls(case, code, proof, step=4)


@pytest.mark.slow
@pytest.mark.parametrize("code", [5, 28, 30, 122], ids=["EIO", "ENOSPC", "EROFS", "EDQUOT"])
def test_errors_of_the_system_in_full(case: Case, code: int, proof: Proof) -> None:
    """At every call."""
    fail_at_calls(case, code, proof, step=1)


def fail_at_calls(case: Case, code: int, proof: Proof, step: int) -> None:
    for number in itertools.count(1 + code % step, step):
        disk = case.restore()
        with system(disk, fail_at(number, code)) as faulty:
            try:
                case.command(case.output)
            except OutputError as error:
                assert str(case.output.out) in str(error)  # noqa: PT017
            done = faulty.calls < number
        case.check()
        proof("G7 errors at a call")
        if done:
            return
