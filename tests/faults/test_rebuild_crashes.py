"""G6 for `reput rebuild`: stopped at any call, the output has what it had or all that is new, and the next run ends."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from faults.crash_shapes import NothingKept
from faults.fault_files import Disk, Stopped, fail_at, stop_at, system
from support.logs import put_bytes
from support.outputs import config_of, messages_of
from support.rebuild_runner import rebuild
from support.record_writer import write_log
from support.sink_runner import MEMORY, SMALL, dispatch_store, files_below, no_fsync

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.swap import finish_swap
from reput.sinks.quarantine import load_quarantine
from reput.source.errors import OutputError

Tree = dict[str, bytes]
REQUESTS: dict[str, dict[str, Any]] = {
    "whole": {},
    "index": {"only": "index"},
    "queue": {"topic": "A", "queue_id": 0},
    "behind damage": {},
    "on a cluster": {"is_on_cluster": True},
}
#: Files that reput did not make, and never touches: RocksDB's files, a copy, a note at each depth.
OTHERS = (
    "consumequeue/CURRENT",
    "consumequeue/000011.sst",
    "consumequeue/A.old/A/0/00000000000000000000",
    "consumequeue/A/notes.txt",
    "consumequeue/A/1/notes.txt",
    "batchconsumequeue/notes.txt",
    "index/notes.txt",
)


class Case:
    """An output of a shorter log with other sizes, and what a rebuild makes of it."""

    def __init__(
        self, root: Path, request: dict[str, Any], damaged: Sequence[int] = (), others: Sequence[str] = ()
    ) -> None:
        """`damaged` are records that are bad when the output is rebuilt, `others` are files that are not reput's."""
        self.others, self.is_damaged = others, bool(damaged)
        records = write_log(root / "store" / "commitlog", messages_of(Random(3), 40))
        options = ["rebuildMaxBytesPerWave=2500", "rebuildMaxBytesPerPartition=900"]
        options += ["onDamage=quarantine"] if damaged else []
        self.config = config_of(root / "store", SMALL, *options)
        # Entries behind a damaged record move.
        self.request = {**request, "yes": True} if damaged else request
        self.out, self.before = root / "out", root / "before"
        with no_fsync():
            dispatch_store(self.config, self.before)
            for path in (self.before / "consumequeue" / "A" / "0").iterdir():
                path.write_bytes(bytes(60))  # what is to be made again
            for path in (self.before / "index").iterdir():
                path.write_bytes(bytes(path.stat().st_size))
            (self.before / "lock").write_bytes(b"lock")
            (self.before / "reput" / "spark-checkpoint" / "logic").mkdir(parents=True)
            (self.before / "reput" / "spark-checkpoint" / "logic" / "metadata").write_bytes(b"{}")
            for name in others:
                put_other(self.before / name)
            shutil.copytree(self.before, self.out)
            for segment, at in (divmod(records[number].physical_offset, 2000) for number in damaged):
                put_bytes(root / "store" / "commitlog" / f"{segment * 2000:020d}", at + 4, b"\x55")
            rebuild(self.config, self.out, **self.request)
        assert len(load_quarantine(self.out)) == len(damaged)
        self.old, self.new = tree(self.before), tree(self.out)
        assert self.old != self.new

    def restore(self) -> Disk:
        shutil.rmtree(self.out)
        shutil.copytree(self.before, self.out)
        return Disk(self.out)

    def run(self) -> None:
        rebuild(self.config, self.out, **self.request)

    def check(self, *, finish: bool) -> None:
        """Taken by anybody, the output is the old one or the new one; rebuilt again, it is the new one."""
        self.check_others()
        with no_fsync():
            if finish:
                files = DurableFiles(self.out)
                finish_swap(files)
                files.close()
                assert tree(self.out) in (self.old, self.new)
            self.run()
            assert tree(self.out) == self.new
            assert not (self.out / "reput" / "rebuild").exists()
            # A part says nothing of the rest, so what a stopped one left stays for 'reput recover'. Damage that a
            # broker would meet without abort keeps one whose content was lost, as if a broker had left it.
            may_stay = bool(self.request.keys() & {"only", "topic"}) or self.is_damaged
            assert may_stay or not (self.out / "abort").exists()

    def check_others(self) -> None:
        """At every moment the files of others are where they were."""
        for name in self.others:
            assert (self.out / name).read_bytes() == name.encode()


def put_other(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(str(path)[str(path).index("/before/") + len("/before/") :].encode())


def tree(root: Path) -> Tree:
    """All files, but for what a clock says (index files by number); nothing of a rebuild that was stopped."""
    stopped = ("reput/rebuild/", "reput/.rebuild.removed/")
    files = {path: data for path, data in files_below(root).items() if not path.startswith(stopped)}
    for name in ("abort", ".abort.tmp"):
        files.pop(name, None)
    names = [path for path in files if path.startswith("index/")]
    for number, name in enumerate(names):
        files[f"index/{number}"] = files.pop(name)
    lines = files.pop("reput/quarantine.jsonl", b"")
    found = [{**json.loads(line), "found_at": ""} for line in lines.splitlines()]
    record = json.loads(files.pop("reput/progress/index.json"))
    assert record["state"].pop("file") in {Path(name).name for name in names}
    return {**files, "index record": json.dumps(record).encode(), "left out": json.dumps(found).encode()}


@pytest.fixture(scope="module", params=REQUESTS)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with TemporaryDirectory(dir=MEMORY) as directory:
        damaged = (9, 25) if request.param == "behind damage" else ()
        yield Case(Path(directory), REQUESTS[request.param], damaged)


def stop_at_calls(case: Case, loss: str, numbers: Iterator[int]) -> int:
    for number in numbers:
        disk = case.restore()
        with system(disk, stop_at(number)):
            try:
                case.run()
                lived = True
            except Stopped:
                lived = False
        if loss != "kill":
            disk.lose_power(NothingKept() if loss == "power" else Random(number))
        case.check(finish=bool(number // 2 % 2))
        if lived:
            return number
    raise AssertionError


@pytest.mark.parametrize("loss", ["kill", "power", "power, some kept"])
def test_stop_at_calls(case: Case, loss: str, record_property: Callable[[str, object], None]) -> None:
    """Killed, or without power, before calls that change the disk: every 13th, other ones each time."""
    first = ["kill", "power", "power, some kept"].index(loss) * 4 + 1
    last = stop_at_calls(case, loss, itertools.count(first, 13))
    record_property("crash_points", last)
    assert last > 30


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["kill", "power", "power, some kept"])
def test_stop_at_every_call(case: Case, loss: str) -> None:
    """The same at every call."""
    stop_at_calls(case, loss, itertools.count(1))


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_stop_at_calls_of_the_swap(case: Case, step: int) -> None:
    """From the note of the swap on, the new output is what anybody finds who takes it."""
    stop_at_calls_of_the_swap(case, step)


@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_stop_at_calls_of_a_swap_among_others_files(tmp_path: Path, step: int) -> None:
    """The same with files of RocksDB and of others among those that are swapped: they exist at every moment."""
    stop_at_calls_of_the_swap(Case(tmp_path, {}, others=OTHERS), step)


def stop_at_calls_of_the_swap(case: Case, step: int) -> None:
    for number in itertools.count(1, step):
        disk = case.restore()
        swapping = False

        def fault(call: int, name: str, at: int = number) -> None:
            nonlocal swapping, first
            swapping = swapping or (case.out / "reput" / "rebuild" / "swap.json").exists()
            if swapping:
                first = first or call
                if call >= first + at - 1:
                    raise Stopped

        first = 0
        with system(disk, fault):
            try:
                case.run()
                lived = True
            except Stopped:
                lived = False
        if number % 2:
            disk.lose_power(Random(number))
        if (case.out / "reput" / "rebuild" / "swap.json").exists():
            assert (case.out / "abort").exists(), "a broker would believe in old files beside new ones"
        case.check_others()
        with no_fsync():
            files = DurableFiles(case.out)
            finish_swap(files)
            files.close()
        assert tree(case.out) in ((case.old, case.new) if number == 1 else (case.new,))
        if lived:
            break
    assert number > 8


@pytest.mark.parametrize("code", [5, 28], ids=["EIO", "ENOSPC"])
def test_errors_of_the_system(case: Case, code: int) -> None:
    """Calls fail once: one clear error, and the next run heals."""
    for number in itertools.count(1, 29):
        disk = case.restore()
        with system(disk, fail_at(number, code)) as faulty:
            try:
                case.run()
            except OutputError as error:
                assert str(case.out) in str(error)  # noqa: PT017
            done = faulty.calls < number
        case.check(finish=number % 2 == 0)
        if done:
            return
