"""G10: what producers and disks may do to a record costs that record: no file outside, no hang, no heap of memory.

This file is also the program that the test of memory runs.
"""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from faults.hostile_records import HOSTILE, SOUND
from support.proof_counts import Proof
from support.record_writer import CommitLogWriter, StoredRecord
from support.sink_runner import MEMORY, SMALL, SinkRun, check_output, files_below, no_fsync, pieces_of
from unit.sinks.files.test_store_path import ACCEPTED, LEGAL, PIECES, is_accepted
from unit.sinks.files.test_store_path import HOSTILE as HOSTILE_NAMES

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.sinks.files.store_path import consume_queue_directory
from reput.source.errors import ReputError, SinkError
from reput.source.log.log_reader import LogReader
from reput.source.log.segment_scan import WINDOW_BYTES
from reput.source.options import SourceOptions

SEGMENT_BYTES = 200_000
MEMORY_BYTES_MAX = 256 << 20
HANG_SECONDS = 10
NEEDS = LogicNeeds(multi_dispatch=MultiDispatch(enable_lmq=True))


class HostileLog:
    """Two sound records, the hostile one, a sound one; with `sealed`, a next segment that has begun."""

    def __init__(self, root: Path, name: str, *, sealed: bool) -> None:
        self.root = root
        with CommitLogWriter(root / "log", SEGMENT_BYTES) as writer:
            writer.append(SOUND)
            writer.append(SOUND)
            self.before: list[StoredRecord] = list(writer.records)
            self.offset = writer.append_raw(HOSTILE[name](writer.max_offset))
            writer.append(SOUND)
            if sealed:
                writer.append(replace(SOUND, body=bytes(SEGMENT_BYTES - 300)))
        (root / "beside").write_bytes(b"beside")

    def dispatch(self) -> str:
        """All that may be read, in one batch; the name of the error that refused it, or how far it went."""
        log = LogReader(SourceOptions.parse({"path": str(self.root / "log"), "tailGuardMs": "0"}))
        run = SinkRun(self.root / "out", SMALL)
        try:
            run.recover()
            end = log.settled_end(0)
            self._write(run, log, 0, end)
        except ReputError as error:
            outcome, said = type(error).__name__, str(error)
        else:
            outcome, said = "waited" if end <= self.offset else "dispatched", ""
        finally:
            run.close()
        assert said.isprintable()
        return outcome

    def check(self) -> None:
        """Nothing was written beside the output; the records before the hostile one have their effect, or get it."""
        names = set(files_below(self.root))
        allowed = ("log/", "out/consumequeue/", "out/index/", "out/reput/progress/", "out/checkpoint", "beside")
        assert not [name for name in names if not name.startswith(allowed)]
        assert not [path for path in self.root.rglob("*") if path.is_symlink()]
        with SinkRun(self.root / "out", SMALL) as run:
            if run.end >= self.offset:
                return
            log = LogReader(SourceOptions.parse({"path": str(self.root / "log"), "tailGuardMs": "0"}))
            self._write(run, log, run.end, self.offset)
        check_output(self.root / "out", self.before, SMALL)

    @staticmethod
    def _write(run: SinkRun, log: LogReader, start: int, end: int) -> None:
        rows = [
            row for span in log.split(start, end) for row in pieces_of(span, NEEDS, WINDOW_BYTES, log.decode_options)
        ]
        if rows:
            run.write(LogicBatch.merge(rows))


def outcomes(*ways: bool) -> Iterator[tuple[str, str]]:
    for name in HOSTILE:
        for sealed in ways:
            with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
                log = HostileLog(Path(directory), name, sealed=sealed)
                signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)  # of processor time; its end ends the process
                found = log.dispatch()
                log.check()
                signal.setitimer(signal.ITIMER_PROF, 0)
                yield name, found


def test_each_hostile_record_costs_itself(proof: Proof) -> None:
    """Through the whole way from the log to queues and index, as the last segment's and as a sealed one's."""
    found = {}
    for name, outcome in outcomes(False, True):
        found.setdefault(name, []).append(outcome)
        proof("G10 hostile records")
    assert len(found) >= 60
    allowed = {"waited", "dispatched", "CorruptRecordError", "SinkError"}
    assert {outcome for pair in found.values() for outcome in pair} <= allowed
    assert found["another's place"] == ["waited", "CorruptRecordError"]
    assert found["the topic '../../../x'"] == ["SinkError", "SinkError"]
    assert found["2,000 further queues"] == ["dispatched", "dispatched"]


def test_no_hostile_record_needs_memory() -> None:
    """The whole corpus in a process that may have no more than 256 MiB beyond what it has when it begins."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == len(HOSTILE)


# --- names -----------------------------------------------------------------------------------------------


def any_name(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.3:
        return b"".join(rng.choices(PIECES, k=rng.randrange(8)))
    if kind < 0.6:
        prefix = rng.choice([b"", b"%RETRY%", b"%DLQ%", b"%LMQ%"])
        return prefix + bytes(rng.choices(sorted(LEGAL), k=rng.choice([1, 5, 120, 127, 128, 248, 255])))
    if kind < 0.9:
        name = bytearray(rng.choice([*HOSTILE_NAMES.values(), *ACCEPTED.values()]))
        if name:
            name[rng.randrange(len(name))] = rng.randrange(256)
        return bytes(name)
    return rng.randbytes(rng.randrange(12))


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_any_name_is_one_directory_or_none(count: int, proof: Proof) -> None:
    """An accepted name is one directory of just that name below the folder of the queues; any other is an error."""
    rng = random.Random(count)
    root = Path("/out")
    accepted = 0
    for _ in range(count):
        name = any_name(rng)
        try:
            parts = consume_queue_directory(name, 7)
        except SinkError:
            assert not is_accepted(name), name
            continue
        accepted += 1
        assert is_accepted(name), name
        assert parts == ("consumequeue", name.decode(), "7")
        path = os.path.normpath(root.joinpath(*parts))
        assert path == f"/out/consumequeue/{name.decode()}/7", name
    proof("G10 names", count)
    assert count // 20 < accepted < count * 19 // 20


def main() -> None:
    logging.disable()
    for _ in zip(outcomes(False), range(4), strict=False):  # what is loaded and compiled once
        pass
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES_MAX, size + MEMORY_BYTES_MAX))
    print(sum(1 for _ in outcomes(False)))


if __name__ == "__main__":
    main()
