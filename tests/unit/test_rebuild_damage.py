"""`reput rebuild` behind damage: the files, the ranges left out and the counts of `reput tail`, wherever it cuts."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from proof_counts import Proof
from rebuild_runner import LocalTasks, rebuild
from record_writer import CommitLogWriter, Message, StoredRecord, encode
from rich.console import Console
from sink_runner import MEMORY, SMALL, no_fsync
from store_compare import differing_bytes
from unit.logs import put_bytes
from unit.outputs import config_of, messages_of

from reput.sinks import range_entries
from reput.sinks.anomalies import NO_ANOMALIES
from reput.sinks.quarantine import load_quarantine
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source.dispatch_request import RANGE_SCHEMA, OffsetRange
from reput.source.errors import OptionError
from reput.source.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config import PipelineConfig
from reput.streaming.progress import BatchReport, ProgressReporter
from reput.streaming.rebuild import Rebuild
from reput.streaming.rebuild_report import RebuildProgress, RebuildReport
from reput.streaming.rebuild_request import RebuildRequest
from reput.streaming.tail import Tail, TailPaths

SIZE = 1536


@pytest.fixture(autouse=True)
def fast_disk() -> Any:
    with no_fsync():
        yield


# --- `reput tail` without Spark --------------------------------------------------------------------------


class LocalRanges:
    """A micro-batch's ranges, whose tasks run here."""

    def __init__(self, spans: Iterable[OffsetRange]) -> None:
        rows = [(s.start, s.end, s.file.path, s.file.file_from_offset, s.file.size, s.file.frame) for s in spans]
        names = RANGE_SCHEMA.names
        self._rows = [pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True))], RANGE_SCHEMA) for row in rows]
        self._results: list[pa.RecordBatch] = []

    def mapInArrow(self, task: Callable[[Any], Iterator[pa.RecordBatch]], _: str) -> LocalRanges:  # noqa: N802
        self._results = [result for row in self._rows for result in task(iter([row]))]
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.Table.from_batches(self._results)


class Reports(ProgressReporter):
    """Adds up what a run of `tail` told."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO()))
        self.count, self.anomalies = 0, NO_ANOMALIES
        self.quarantined: Counter[str] = Counter()

    def on_batch(self, report: BatchReport) -> None:
        self.count += report.messages
        self.anomalies += report.anomalies
        self.quarantined += report.quarantined


def tail_store(config: PipelineConfig, output: Path, rng: Random) -> Reports:
    """`reput tail --available-now` in batches of random sizes: its own code, without Spark's stream."""
    reports = Reports()
    log = LogReader(SourceOptions.parse(config.source_options(maxBytesPerPartition=rng.randrange(100, 3000))))
    with Tail(config, TailPaths(output, None, None), reports) as tail:
        (dispatch,) = tail._dispatches(None)  # type: ignore[arg-type]  # Spark is for the table
        end = log.settled_end(log.queue().min_offset)
        start = dispatch.end_offset
        while start < end:
            stop = log.limit(start, end, rng.choice([200, 900, 5000, 1 << 20]), None)
            dispatch(LocalRanges(log.split(start, stop)), -1)  # type: ignore[arg-type]
            start = stop
    return reports


# --- damaged logs ----------------------------------------------------------------------------------------


@dataclass
class DamagedLog:
    """A store's log, and where its records were."""

    store: Path
    records: list[StoredRecord]
    rng: Random
    dledger: bool = False

    @property
    def directory(self) -> Path:
        return log_directory(self.store, dledger=self.dledger)

    @property
    def segments(self) -> list[Path]:
        return sorted(self.directory.iterdir())

    def put(self, place: int, data: bytes) -> None:
        """Overwrite bytes of the log, those that its segments have."""
        path = self.directory / f"{place - place % SIZE:020d}"
        if path.exists():
            put_bytes(path, place % SIZE, data[: SIZE - place % SIZE])

    def get(self, place: int, size: int) -> bytes:
        path = self.directory / f"{place - place % SIZE:020d}"
        return path.read_bytes()[place % SIZE : place % SIZE + size] if path.exists() else b""


def log_directory(store: Path, *, dledger: bool) -> Path:
    return store / ("dledger-n0/data" if dledger else "commitlog")


def odd_messages(rng: Random, count: int) -> list[Message]:
    """Messages in queues that repeat or leave out; some that no queue takes."""
    messages, ends = [], Counter[tuple[str, int]]()
    for message in messages_of(rng, count):
        key = message.topic, message.queue_id
        offset = ends[key] + rng.choice([0] * 18 + [-1, 2])
        ends[key] = max(0, offset) + message.is_queued
        message = replace(message, queue_offset=max(0, offset))
        if rng.random() < 0.08:
            odd = [{"topic": "../x"}, {"queue_id": -1}, {"topic": f"Late{rng.randrange(3)}", "queue_offset": -3}]
            odd.append({"topic": f"Late{rng.randrange(3)}", "queue_offset": rng.choice([2, 1 << 60])})
            message = replace(message, **rng.choice(odd))
        messages.append(message)
    return messages


def forged_body(rng: Random, at: int) -> bytes:
    """Records made for exactly the places they have in a body at `at`, before and behind other bytes."""
    body = rng.randbytes(rng.choice([0, 0, 7]))
    for number in range(rng.randrange(1, 4)):
        body += encode(Message("Forged", queue_offset=number, properties={"KEYS": "forged"}), at + len(body))
    return body + rng.randbytes(rng.choice([0, 0, 30]))


def write_log(root: Path, rng: Random, messages: list[Message], *, dledger: bool = False) -> DamagedLog:
    """A sound log with forged records in bodies."""
    with CommitLogWriter(log_directory(root / "store", dledger=dledger), SIZE, dledger=dledger) as writer:
        for message in messages:
            if rng.random() < 0.2:
                last = writer.records[-1] if writer.records else None
                at = last.physical_offset + last.msg_size if last else 0
                message = replace(message, body=forged_body(rng, at + (48 if dledger else 0) + 88))
            writer.append(message)
        return DamagedLog(root / "store", writer.records, rng, dledger)


def flip(log: DamagedLog) -> None:
    """A few bits anywhere in a record."""
    at, _, size = log.rng.choice(log.records)
    for _ in range(log.rng.randrange(1, 4)):
        place = at + log.rng.randrange(size)
        log.put(place, bytes([log.get(place, 1)[0] ^ 1 << log.rng.randrange(8)]))


def spoil_header(log: DamagedLog) -> None:
    """A field that says where things are, often of a record with forged ones in its body."""
    forged = [record for record in log.records if b"Forged" in log.get(record.physical_offset, record.msg_size)]
    record = log.rng.choice(forged if forged and log.rng.random() < 0.7 else log.records)
    at, data = log.rng.choice([(0, 4), (0, 8), (4, 4), (28, 8), (84, 4), (0, 88), (0, 40)])
    log.put(record.physical_offset + at, log.rng.choice([bytes(data), log.rng.randbytes(data), b"\xff" * data]))


def zero(log: DamagedLog) -> None:
    """Zeros over parts of one or many records."""
    at, _, size = log.rng.choice(log.records)
    log.put(at + log.rng.randrange(-20, size) if at > 20 else at, bytes(log.rng.randrange(1, 900)))


def overwrite(log: DamagedLog) -> None:
    """Noise over them."""
    at, _, size = log.rng.choice(log.records)
    log.put(at + log.rng.randrange(size), log.rng.randbytes(log.rng.randrange(1, 400)))


def duplicate(log: DamagedLog) -> None:
    """Bytes of another place: whole records at places that are not theirs."""
    source, target = log.rng.choice(log.records), log.rng.choice(log.records)
    log.put(target.physical_offset, log.get(source.physical_offset, log.rng.randrange(1, 500)))


def cut_out(log: DamagedLog) -> None:
    """The rest of a segment moves forward."""
    at = log.rng.choice(log.records).physical_offset + log.rng.randrange(60)
    log.put(at, log.get(at + log.rng.randrange(1, 300), SIZE - at % SIZE))


def first_or_last(log: DamagedLog) -> None:
    """The first or the last record of a segment, or of the log."""
    edges = [log.records[0], log.records[-1]]
    for before, after in zip(log.records, log.records[1:], strict=False):
        if before.physical_offset // SIZE != after.physical_offset // SIZE:
            edges += [before, after]
    record = log.rng.choice(edges)
    log.put(record.physical_offset, log.rng.randbytes(log.rng.choice([4, 50, record.msg_size])))


def blanks(log: DamagedLog) -> None:
    """A blank where a record was, of any size; or a segment's own blank is another."""
    blank = log.rng.choice([20, 77, SIZE]).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    if log.dledger:
        blank = b"\xff" * 4 + blank[:4]
    at, _, size = log.rng.choice(log.records)
    log.put(at + (size if log.rng.random() < 0.5 else 0) - (48 if log.dledger else 0), blank)


def whole_segment(log: DamagedLog) -> None:
    """Nothing of a segment but the last is left."""
    segment = log.rng.randrange(max(1, len(log.segments) - 1))
    log.put(segment * SIZE, log.rng.choice([bytes(SIZE), log.rng.randbytes(SIZE)]))


HARM = [flip, spoil_header, zero, overwrite, duplicate, cut_out, first_or_last, blanks]


def damaged_log(root: Path, seed: int) -> DamagedLog:
    rng = Random(seed)
    log = write_log(root, rng, odd_messages(rng, rng.randrange(1, 45)), dledger=seed % 6 == 5)
    for _ in range(rng.choice([0, 1, 1, 2, 3, 4])):
        rng.choice(HARM)(log)
    if rng.random() < 0.08:
        whole_segment(log)
    return log


# --- equal to `tail` -------------------------------------------------------------------------------------


def lines_of(output: Path) -> list[dict[str, Any]]:
    """What was left out, in log order, but for when it was found."""
    lines = [{**vars(line), "found_at": ""} for line in load_quarantine(output)]
    return sorted(lines, key=lambda line: line["physical_offset"])


def state_of(output: Path, name: str) -> dict[str, Any]:
    """A progress record, but for a clock's name and how many digits clocks had."""
    record: dict[str, Any] = json.loads((output / "reput" / "progress" / f"{name}.json").read_text())
    for key in ("file", "bytes"):
        record["state"].pop(key, None)
    return record


def check_equal(output: Path, expected: Path) -> None:
    """Queues, index, what was left out, the progress records, the checkpoint's times; and nothing is left over."""
    assert differing_bytes(expected, output) == {}
    assert lines_of(output) == lines_of(expected)
    for name in ("consumequeue", "index", "quarantine"):
        assert state_of(output, name) == state_of(expected, name)
    checkpoints = [root / "checkpoint" for root in (expected, output)]
    assert checkpoints[0].exists() == checkpoints[1].exists()
    if checkpoints[0].exists():
        theirs, ours = (StoreCheckpoint.decode(path.read_bytes()) for path in checkpoints)
        assert replace(theirs, physic_msg_timestamp=0) == replace(ours, physic_msg_timestamp=0)
    assert not (output / "reput" / "rebuild").exists()


def check_report(report: RebuildReport, reports: Reports) -> None:
    """The counts are `tail`'s."""
    assert report.messages == reports.count
    assert report.quarantined == dict(reports.quarantined)
    assert report.anomalies == {name: count for name, count in vars(reports.anomalies).items() if count}


def options_of(rng: Random, *, stops: bool) -> list[str]:
    # After a stop, a unit of ConsumeQueueExt that no entry points to is dropped, as a broker does.
    ext = "false" if stops else rng.choice(["true", "false", "false"])
    policy = rng.choice(["quarantine", "quarantine", "broker"])
    return [
        f"onDamage={policy}",
        f"checkCrc={rng.choice(['tail', 'all']) if policy == 'quarantine' else 'tail'}",
        f"rebuildMaxBytesPerPartition={rng.choice([40, 200, 700, 1500, 4000])}",
        f"rebuildMaxBytesPerWave={rng.choice([1, 700, 2000, 5000, 1 << 20])}",
        f"enableConsumeQueueExt={ext}",
    ]


class StoppedError(Exception):
    """The process dies."""


class StoppingTasks(LocalTasks):
    """Dies when a piece of work begins that is one too many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def run(self, work: Callable[[int], str], count: int) -> list[str]:
        self._most -= count
        if self._most < 0:
            raise StoppedError
        return super().run(work, count)


def stop_and_go_on(config: PipelineConfig, output: Path, most: int) -> RebuildReport:
    """A rebuild that is stopped, if it has so many pieces of work, and begun again."""
    try:
        with Rebuild(config, RebuildRequest(output), RebuildProgress()) as job:
            return job.run(StoppingTasks(most))
    except StoppedError:
        return rebuild(config, output)


def check_seed(root: Path, seed: int, proof: Proof) -> None:
    log = damaged_log(root, seed)
    rng, stops = Random(seed), seed % 3 == 0
    config = config_of(
        log.store,
        SMALL,
        *options_of(rng, stops=stops),
        f"mappedFileSizeCommitLog={SIZE}",
        f"enableDLegerCommitLog={str(log.dledger).lower()}",
    )
    try:
        reports = tail_store(config, root / "tail", rng)
    except OptionError:  # nothing tells any more that this is DLedger's
        assert log.dledger
        with pytest.raises(OptionError):
            rebuild(config, root / "out")
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_entries, "PIECE_BYTES", rng.choice([1, 400, 1 << 20]))
        if stops:
            stop_and_go_on(config, root / "out", rng.randrange(1, 20))
        else:
            check_report(rebuild(config, root / "out"), reports)
    check_equal(root / "out", root / "tail")
    proof("G5 damaged logs, rebuilt as tailed")
    proof("G5 ranges left out, by a rebuild as by tail", len(lines_of(root / "out")))


def check_seeds(seeds: Iterable[int], proof: Proof) -> None:
    for seed in seeds:
        with TemporaryDirectory(dir=MEMORY) as directory:
            print(f"seed {seed}")
            check_seed(Path(directory), seed, proof)


def test_files_and_ranges_are_those_of_tail(proof: Proof) -> None:
    """Flips, zeros, noise, forged records, lost segments; any ranges, waves, pieces; every third one is stopped."""
    check_seeds(range(360), proof)


@pytest.mark.slow
def test_more_files_and_ranges_are_those_of_tail(proof: Proof) -> None:
    """The same for more logs."""
    check_seeds(range(360, 20_000), proof)
