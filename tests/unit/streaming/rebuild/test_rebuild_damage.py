"""`reput rebuild` after damage: the files, the ranges left out and the counts of `reput tail`, wherever it cuts."""

from __future__ import annotations

import contextlib
import functools
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import AccumulatorParam
from rich.console import Console
from support.command_line import invoke
from support.logs import put_bytes
from support.outputs import config_of, messages_of
from support.proof_counts import Proof
from support.rebuild_runner import LocalTasks, rebuild
from support.record_writer import CommitLogWriter, Message, StoredRecord, encode
from support.sink_runner import MEMORY, SMALL, no_fsync
from support.store_compare import differing_bytes

from reput.sinks.anomalies import NO_ANOMALIES
from reput.sinks.dispatch import piece as range_entries
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.sink_progress import ProgressFile
from reput.sinks.quarantine import load_quarantine
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.sinks.queue.queue_sink import LIVES
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.sinks.table.message_file import TableFileWriter
from reput.sinks.table.storage import table_storage
from reput.source.errors import OptionError, SinkError, UnexplainedError
from reput.source.log.log_reader import LogReader
from reput.source.log.offset_range import RANGE_SCHEMA, OffsetRange
from reput.source.log.range_reader import cut_ranges, read_windows
from reput.source.options import SourceOptions
from reput.source.record.damage import DamagedRange
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.effects.effects import IndexWriter, QueueWriter
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.output.paths import OutputPaths
from reput.streaming.rebuild.pipeline import RebuildProgress, RebuildReport, StretchRead
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.status.batch_report import BatchReport
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.tail import Tail
from reput.streaming.tasks.tasks import ProcessTasks

SIZE = 1536


@pytest.fixture(autouse=True)
def fast_disk() -> Any:
    with no_fsync():
        yield


# --- `reput tail` without Spark --------------------------------------------------------------------------


class LocalContext:
    """Spark's context for announcements of tasks in this process: they are delivered at once."""

    def __init__(self) -> None:
        self.sparkContext = self

    def accumulator(self, _: object, param: AccumulatorParam[Any]) -> LocalContext:
        self.add = functools.partial(param.addInPlace, [])
        return self


class LocalRanges:
    """A micro-batch's ranges, whose tasks run here."""

    sparkSession = LocalContext()  # noqa: N815  Spark's name

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
    with Tail(config, OutputPaths(output), reports) as tail:
        opener = tail._new_opener(available_now=True)
        (dispatch,) = opener.first()
        end = log.settled_end(log.queue().min_offset)
        start = dispatch.end_offset
        while start < end:
            stop = log.limit(start, end, rng.choice([200, 900, 5000, 1 << 20]), None)
            dispatch(LocalRanges(log.split(start, stop)), -1)  # type: ignore[arg-type]
            start = stop
        dispatch.settle()
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

    def put(self, physical_offset: int, data: bytes) -> None:
        """Overwrite bytes of the log, those that its segments have."""
        path = self.directory / f"{physical_offset - physical_offset % SIZE:020d}"
        if path.exists():
            put_bytes(path, physical_offset % SIZE, data[: SIZE - physical_offset % SIZE])

    def get(self, physical_offset: int, size: int) -> bytes:
        path = self.directory / f"{physical_offset - physical_offset % SIZE:020d}"
        return path.read_bytes()[physical_offset % SIZE : physical_offset % SIZE + size] if path.exists() else b""


def log_directory(store: Path, *, dledger: bool) -> Path:
    return store / ("dledger-n0/data" if dledger else "commitlog")


def odd_messages(rng: Random, count: int) -> list[Message]:
    """Messages in queues that repeat or leave out; some that no queue takes."""
    messages, ends = [], Counter[tuple[str, int]]()
    for message in messages_of(rng, count):
        key = message.topic, message.queue_id
        offset = max(0, ends[key] + rng.choice([0] * 18 + [-1, 2]))
        ends[key] = offset + message.is_queued
        late = f"Late{rng.randrange(3)}"
        odd: list[dict[str, Any]] = [{"topic": "../x"}, {"queue_id": -1}]
        odd += ({"topic": late, "queue_offset": first} for first in (-3, 2, 1 << 60))
        change = rng.choice(odd) if rng.random() < 0.08 else {}
        messages.append(replace(message, **{"queue_offset": offset, **change}))
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
            last = writer.records[-1] if writer.records else None
            at = (last.physical_offset + last.msg_size if last else 0) + (48 if dledger else 0)
            body = forged_body(rng, at + 88) if rng.random() < 0.2 else message.body
            writer.append(replace(message, body=body))
        return DamagedLog(root / "store", writer.records, rng, dledger)


def flip(log: DamagedLog) -> None:
    """A few bits anywhere in a record."""
    at, _, size = log.rng.choice(log.records)
    for _ in range(log.rng.randrange(1, 4)):
        physical_offset = at + log.rng.randrange(size)
        log.put(physical_offset, bytes([log.get(physical_offset, 1)[0] ^ 1 << log.rng.randrange(8)]))


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
    log = write_log(root, rng, odd_messages(rng, rng.randrange(1, 33)), dledger=seed % 6 == 5)
    for _ in range(rng.choice([0, 1, 1, 2, 3, 4])):
        rng.choice(HARM)(log)
    if rng.random() < 0.08:
        whole_segment(log)
    return log


# --- equal to `tail` -------------------------------------------------------------------------------------


def lines_of(output: Path) -> list[dict[str, Any]]:
    """Return the lines of the ranges that were left out, in log order, without the time when they were found."""
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
        "mappedFileSizeConsumeQueueExt=400",
    ]


class StoppedError(Exception):
    """The process dies."""


def dying(function: Callable[..., Any], most: int) -> Callable[..., Any]:
    """The function, which dies when it was called so often."""
    left = most

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoppedError
        return function(*arguments, **named)

    return call


def stop_and_go_on(config: PipelineConfig, output: Path, rng: Random) -> None:
    """A rebuild that dies, and the same command again; before a sink writes what was left out is put down already."""
    tasks = LocalTasks()
    owner, name = rng.choice([(tasks, "start"), (QueueWriter, "write"), (IndexWriter, "write")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dying(getattr(owner, name), rng.randrange(5)))
        with contextlib.suppress(StoppedError), Rebuild(config, RebuildRequest(output), RebuildProgress()) as job:
            job.run(tasks)
    try:
        rebuild(config, output)
    except UnexplainedError:
        # A log that was cut looks like this, too, so a person must say that it was not.
        assert is_older_behind_damage(config)
        rebuild(config, output, yes=True)


def is_older_behind_damage(config: PipelineConfig) -> bool:
    """Whether a record behind a damaged range was stored before the last one in front of it, in the same segment.

    Records are followed by their heads alone: one with a damaged body counts as in front.
    """
    log = LogReader(SourceOptions.parse(config.source_options()))
    decode = replace(log.decode_options, check_crc=False)
    begin, end = log.queue().min_offset, log.settled_end(log.queue().min_offset)
    for span in log.split(begin, end):
        before, is_behind = -1, False
        for window in read_windows(span.file, span.start, span.end, decode):
            times = window.columns.store_timestamp.tolist()
            if times and is_behind and times[0] < before:
                return True
            before, is_behind = (times[-1], False) if times else (before, True)
    return False


def has_joined_lives(output: Path) -> bool:
    """Whether a queue of the output seems to have both lives of a topic, as a broker's replay joins them."""
    with closing(DurableFiles(output)) as files:
        record = ProgressFile(files, ConsumeQueueSink.name).load()
    return record is not None and any(is_joined for *_, is_joined in record.state.get(LIVES, ()))


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
    if has_joined_lives(root / "tail"):  # damage may look like it
        with pytest.raises(SinkError, match="the topic was deleted and made again"):
            rebuild(config, root / "out", yes=True)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_entries, "PIECE_BYTES", rng.choice([1, 400, 1 << 20]))
        if stops:
            stop_and_go_on(config, root / "out", rng)
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
    # In 1438 two queues start over, and a rebuild meets them in another order than `tail` does. In 3436 damage makes a
    # queue look as if its topic had been made again.
    check_seeds([*range(306), 1438, 3436], proof)


@pytest.mark.slow
def test_more_files_and_ranges_are_those_of_tail(proof: Proof) -> None:
    """The same for more logs."""
    check_seeds(range(306, 20_000), proof)


@pytest.mark.parametrize("part", range(4))
def test_the_table_leaves_out_the_same(part: int, tmp_path: Path, proof: Proof) -> None:
    """Only the table's files are made: with the records that a read after damage gives, and the same ranges."""
    for seed in range(part, 24, 4):
        root = tmp_path / str(seed)
        log = damaged_log(root, seed)
        policy = ("quarantine", "broker")[seed % 2]
        options = {"path": str(log.directory), "tailGuardMs": "0", "onDamage": policy}
        options["enableDLegerCommitLog"] = str(log.dledger).lower()
        reader = LogReader(SourceOptions.parse(options))
        begin, end = reader.queue().min_offset, reader.settled_end(0)
        expected: list[Any] = []
        for span in reader.split(begin, end):
            for window in read_windows(span.file, span.start, span.end, reader.decode_options):
                expected += window.columns.physical_offset.tolist() + ([window.damaged] if window.damaged else [])
        writer = TableFileWriter(table_storage(root), "b", 0, reader.decode_options)
        task = RangeTask(reader.decode_options, None, file_writer=writer)
        found: list[Any] = []
        while begin < end:
            cuts = cut_ranges(reader.queue(), begin, end, 300, 1000)
            told: list[RangeEffects] = []
            ranges = StretchRead(LocalTasks(seed), reader.queue(), cuts, task, 300, told.append).results()
            # Whatever was heard of early, all is handed on, once and in log order.
            assert told == [each for each in ranges if each.start < each.end]
            read = RangeEffects.join(ranges)
            names = [row["path"] for row in read.table_files if row["path"]]
            for name in names:
                found += pq.read_table(root / name, columns=["physical_offset"])["physical_offset"].to_pylist()
            found += read.damaged
            begin = read.end
        assert sorted(found, key=place_of) == sorted(expected, key=place_of)
        proof("G5 damaged logs, a rebuild's rows")


def place_of(record: int | DamagedRange) -> int:
    return record.start if isinstance(record, DamagedRange) else record


# --- parts of an output ----------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> DamagedLog:
    """A log with a damaged record, and records that no queue takes before and after it."""
    rng = Random(3)
    messages = messages_of(rng, 60)
    for number in (5, 50):
        messages[number] = replace(messages[number], topic="../x", sys_flag=0)
    messages[10] = replace(messages[10], topic="Late", queue_offset=-4, sys_flag=0)
    with CommitLogWriter(tmp_path / "store" / "commitlog", SIZE) as writer:
        for message in messages:
            writer.append(message)
        log = DamagedLog(tmp_path / "store", writer.records, rng)
    log.put(log.records[30].physical_offset + 4, b"\x55")
    return log


def config_for(log: DamagedLog, *more: str) -> PipelineConfig:
    sizes = ("rebuildMaxBytesPerPartition=500", "rebuildMaxBytesPerWave=2000", f"mappedFileSizeCommitLog={SIZE}")
    return config_of(log.store, SMALL, "onDamage=quarantine", *sizes, *more)


def causes(output: Path) -> list[str]:
    return [line["cause"] for line in lines_of(output)]


WHOLE = ["HOSTILE_TOPIC", "BAD_QUEUE_OFFSET", "BAD_MAGIC", "HOSTILE_TOPIC"]


def test_a_whole_rebuild_replaces_what_was_left_out(damaged: DamagedLog, tmp_path: Path) -> None:
    """The lines of another log go, under any policy; the report has the new ones, and the command shows them."""
    config, out = config_for(damaged), tmp_path / "out"
    other = write_log(tmp_path / "other", Random(1), messages_of(Random(1), 30))
    other.put(other.records[3].physical_offset, bytes(4))
    tail_store(config_for(other), out, Random(1))
    assert len(lines_of(out)) == 1
    report = rebuild(config, out, yes=True)
    assert causes(out) == WHOLE
    tail_store(config, tmp_path / "tail", Random(2))
    check_equal(out, tmp_path / "tail")
    assert report.quarantined == {"BAD_MAGIC": 1, "BAD_QUEUE_OFFSET": 1, "HOSTILE_TOPIC": 2}
    assert json.loads(report.to_json())["quarantined"] == report.quarantined
    said = "\nquarantined: 1 BAD_MAGIC, 1 BAD_QUEUE_OFFSET, 2 HOSTILE_TOPIC\n3 entries have a smaller number"
    assert said in report.text()
    listed = invoke(["quarantine", "list", "--output", str(out)])
    assert [line.split(":")[0] for line in listed.stdout.splitlines()] == [
        str(line["physical_offset"]) for line in lines_of(out)
    ]
    sound = config_of(write_log(tmp_path / "sound", Random(2), messages_of(Random(2), 9)).store, SMALL)
    rebuild(sound, out, yes=True)
    assert lines_of(out) == []
    assert not (out / "reput" / "progress" / "quarantine.json").exists()


@pytest.mark.parametrize(
    "request_",
    [{"only": "index"}, {"only": "consumequeue"}, {"topic": "A"}, {"topic": "A", "queue_id": 1}],
    ids=["index", "queues", "topic", "queue"],
)
@pytest.mark.parametrize("done", [0.3, 0.7, 1.0])
def test_a_part_of_an_output_keeps_what_was_left_out(
    damaged: DamagedLog, tmp_path: Path, request_: dict[str, Any], done: float
) -> None:
    """Each range once, whatever the output had: also if the output ends earlier, and `tail` continues from there."""
    config, out = config_for(damaged), tmp_path / "out"
    rebuild(config, out, end=damaged.records[int(done * 59)].physical_offset)
    before = lines_of(out)
    rebuild(config, out, **request_)
    after = lines_of(out)
    offsets = [line["physical_offset"] for line in after]
    assert len(set(offsets)) == len(offsets)
    assert all(line in after for line in before)
    assert "topic" in request_ or "BAD_MAGIC" in causes(out)
    tail_store(config, out, Random(2))
    tail_store(config, tmp_path / "tail", Random(2))
    assert lines_of(out) == lines_of(tmp_path / "tail")
    assert differing_bytes(tmp_path / "tail", out) == {}


def test_an_index_for_files_of_nobody(damaged: DamagedLog, tmp_path: Path) -> None:
    """An output without progress records, as a broker's: the lines are those of what was read."""
    rebuild(config_for(damaged), tmp_path / "out", only="index")
    assert causes(tmp_path / "out") == ["BAD_MAGIC"]
    assert state_of(tmp_path / "out", "quarantine")["end_offset"] == state_of(tmp_path / "out", "index")["end_offset"]


def test_a_place_inside_a_damaged_range_is_refused(damaged: DamagedLog, tmp_path: Path) -> None:
    """As one inside a record: the message names both ends."""
    at, _, size = damaged.records[30]
    with pytest.raises(
        OptionError, match=f"--from {at + 9} is inside the record at {at};.* at {at} and at {at + size}$"
    ):
        rebuild(config_for(damaged), tmp_path / "out", start=at + 9)
    report = rebuild(config_for(damaged), tmp_path / "out", start=at, end=at + size)
    assert (report.messages, report.quarantined) == (0, {"BAD_MAGIC": 1})


def test_topics_left_out_are_not_refused(damaged: DamagedLog, tmp_path: Path) -> None:
    """A queue that is not wanted takes no record, and refuses none."""
    rebuild(config_for(damaged), tmp_path / "out", exclude=("../x",))
    assert causes(tmp_path / "out") == ["BAD_QUEUE_OFFSET", "BAD_MAGIC"]


def test_in_processes(damaged: DamagedLog, tmp_path: Path) -> None:
    """The same in processes of this machine, as the command runs it: no Spark."""
    config = config_for(damaged)
    tail_store(config, tmp_path / "tail", Random(1))
    with (
        Rebuild(config, RebuildRequest(tmp_path / "out"), RebuildProgress()) as job,
        ProcessTasks(2) as tasks,
    ):
        job.run(tasks)
    assert causes(tmp_path / "out") == WHOLE
    check_equal(tmp_path / "out", tmp_path / "tail")
