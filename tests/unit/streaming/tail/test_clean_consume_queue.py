"""A tail that runs removes what has expired of its own outputs: when, what, and that all else agrees with it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from support.model import index_file_contents
from support.outputs import SEGMENT_BYTES, Output, config_of
from support.rebuild_runner import rebuild
from support.sink_runner import (
    MEMORY,
    SinkRun,
    dispatch_store,
    expected_queue_files,
    files_below,
    index_contents,
    no_fsync,
    queue_files,
    record_bounds,
    service_of,
)

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.findings import Difference
from reput.sinks.index.index_reader import index_file_names
from reput.sinks.queue.batch_consume_queue import BATCH_KIND
from reput.sinks.queue.consume_queue import KIND
from reput.sinks.queue.queue_reader import load_queues
from reput.sinks.queue.queue_sink import QueueSink
from reput.source.errors import OutputError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.output.logic_sinks import LogicSinks, recover_sinks
from reput.streaming.recover.recover import expire_output, recover_output
from reput.streaming.tail.micro_batch import Dispatch
from reput.streaming.tail.query import BatchGate
from reput.streaming.tail.upkeep import CleanConsumeQueueService, CleanReport
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification

if TYPE_CHECKING:
    from conftest import BrokerStore


@dataclass
class Running:
    """A tail without Spark: its sinks are open, its service looks at the log by a clock that does not move."""

    output: Output
    run: SinkRun
    now: float = 100.0
    service: CleanConsumeQueueService = field(init=False)

    def __post_init__(self) -> None:
        self.service = service_of(self.run, self.output.log, 10_000, lambda: self.now)

    def expire(self, segments: int) -> int:
        """The oldest segments go; where the log begins then."""
        for path in sorted(self.output.log.iterdir())[:segments]:
            path.unlink()
        return int(min(path.name for path in self.output.log.iterdir()))

    def later(self) -> CleanReport | None:
        """The interval passes."""
        self.now += 10
        return self.service.step()

    def dispatch(self, start: int, end: int) -> None:
        self.run.write(self.output.batches()(start, end))


@pytest.fixture
def running() -> Iterator[Running]:
    """150 records in about 9 segments, all dispatched; queue files of 5 entries, index files of 9 keys."""
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), Random(1), 150)
        with SinkRun(output.out, output.settings) as run:
            yield Running(output, run)


def tree(output: Output) -> set[str]:
    """The files of queues and index."""
    return {path for path in files_below(output.out) if path.startswith(("consumequeue/", "index/"))}


# --- when ------------------------------------------------------------------------------------------------


def test_it_does_what_the_command_does(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The same files, counted by kind, and told in one line."""
    begin = running.expire(4)
    planned = expire_output(running.output.config, running.output.out, dry_run=True)
    before = tree(running.output)
    with caplog.at_level(logging.INFO, "reput"):
        report = running.service.step()
    assert before - tree(running.output) == set(planned.removed)
    queues = len(planned.removed) - len(planned.index_files)
    assert queues >= 4 <= len(planned.index_files)
    assert report == CleanReport(begin, {"consumequeue": queues, "index": len(planned.index_files)}, 0)
    assert caplog.messages == [
        f"expired: {queues} queue files, {len(planned.index_files)} index files, log begins at {begin}"
    ]


def test_only_after_the_interval_and_only_when_the_log_moved(running: Running) -> None:
    """Once after the start; then a look at the log an interval, and nothing else before its begin has moved."""
    running.expire(1)
    assert running.service.step() is not None
    running.expire(1)
    with mock.patch.object(LogReader, "queue", autospec=True, side_effect=LogReader.queue) as looks:
        assert running.service.step() is None
        assert looks.call_count == 0
        assert running.later() is not None
        looks.reset_mock()
        with (
            mock.patch.object(QueueSink, "reader", side_effect=AssertionError),
            mock.patch("reput.streaming.tail.upkeep.expired_index_files", side_effect=AssertionError),
        ):
            for _ in range(3):
                assert running.later() is None
        assert looks.call_count == 3


def test_never_with_0(running: Running) -> None:
    """It leaves everything to the command, whatever goes."""
    running.expire(4)
    before = tree(running.output)
    assert service_of(running.run, running.output.log, 0).step() is None
    assert tree(running.output) == before


def test_a_log_from_its_first_byte_on_is_not_looked_through(running: Running) -> None:
    """Nothing can have expired."""
    with mock.patch.object(QueueSink, "reader", side_effect=AssertionError):
        assert running.service.step() is None


def test_a_long_run_goes_on_at_the_next_step() -> None:
    """A step that has no time does one queue; batches come between; the report comes with the last step."""
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), Random(1), 150, done=0.7)
        left = record_bounds(output.records)
        with SinkRun(output.out, output.settings) as run:
            running = Running(output, run)
            begin = running.expire(4)
            planned = expire_output(output.config, output.out, dry_run=True)
            left = [at for at in left if at > run.end]
            steps = 1
            while (report := running.service.step(0)) is None:
                running.dispatch(run.end, left.pop(0))
                steps += 1
            running.dispatch(run.end, left[-1])
        assert steps >= 4
        assert report.min_physic_offset == begin
        assert sum(report.removed.values()) == len(planned.removed)
        check(output, report)


def check(output: Output, report: CleanReport) -> None:
    """The remaining files have the bytes of a run from which nothing expired, and only leading files are gone."""
    expected = expected_queue_files(output.records, output.settings)
    found = queue_files(output.out)
    assert found == {path: expected[path] for path in found}
    gone = expected.keys() - found.keys()
    assert len(gone) == report.removed.get("consumequeue", 0)
    for path in gone:
        directory = path.rpartition("/")[0]
        assert all(path < other for other in found if other.rpartition("/")[0] == directory)
    index = index_file_contents(output.records, output.settings)
    assert index_contents(output.out) == index[report.removed.get("index", 0) :]


# --- what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_all_else_agrees_with_it(seed: int) -> None:
    """Segments go in the middle of a run, twice: batches, replays, a restart and all commands continue."""
    rng = Random(seed)
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), rng, 150, done=rng.choice([0.5, 0.8]))
        bounds = record_bounds(output.records)
        removed = {"consumequeue": 0, "index": 0}
        batches = output.batches()
        with SinkRun(output.out, output.settings) as run:
            running = Running(output, run)
            for _ in range(2):
                running.expire(rng.randrange(1, 3))
                report = running.later()
                assert report is not None
                removed = {kind: removed[kind] + report.removed.get(kind, 0) for kind in removed}
                start, end = run.end, rng.choice([at for at in bounds if at >= run.end])
                if start < end:
                    batch = batches(start, end)
                    run.write(batch)
                    run.write(batch)
            least, reached = running.expire(0), run.end
        whole = replace(report, removed=removed)
        known = [record for record in output.records if record.physical_offset < reached]
        check(replaced(output, known), whole)
        # The next run finds nothing to do, and nothing wrong.
        before = files_below(output.out)
        assert not expire_output(output.config, output.out).removed
        assert not recover_output(output.config, output.store, output.out).is_changed
        assert differences(output.config, output.out) == []
        with SinkRun(output.out, output.settings) as run:
            assert run.end == reached
            assert service_of(run, output.log).step() in (None, CleanReport(least, {}, 0))
            same = {path: data for path, data in files_below(output.out).items() if path != "lock"}
            assert same == {path: data for path, data in before.items() if path != "lock"}
            if reached < bounds[-1]:
                run.write(batches(reached, bounds[-1]))
        check(output, whole)
        check_rebuilt(output, least)


def replaced(output: Output, records: list[Any]) -> Output:
    """The output, for the records that were dispatched."""
    return Output(output.root, records, output.settings)


def check_rebuilt(output: Output, least: int) -> None:
    """A rebuild of the remaining log has the same entries for the same queue offsets."""
    rebuild(output.config, output.root / "fresh")
    size = output.settings.consume_queue_file_bytes
    left = {(disk.topic, disk.queue_id): disk for disk in load_queues(output.out, KIND, size)}
    for disk in load_queues(output.root / "fresh", KIND, size):
        mine = left[disk.topic, disk.queue_id]
        end = max(mine.files[-1], disk.files[-1]) // 20 + size // 20
        begin = disk.min_offset(least, end)
        assert mine.min_offset(least, end) == begin
        assert (mine.read(begin, end - begin) == disk.read(begin, end - begin)).all()


STORES = {
    "v5-batchcq": {"consumequeue", "batchconsumequeue", "index"},
    "v4-sql92": {"consumequeue", "consumequeue_ext", "index"},
    "v4-lmq": {"consumequeue", "index"},
}


@pytest.mark.parametrize("name", STORES)
def test_all_kinds_of_queues(name: str, broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """Of logs of real brokers: the command agrees, verify and recover find nothing, a rebuild ends as the queues do."""
    store, out = broker_store(name), tmp_path / "out"
    shutil.copytree(store.root / "config", tmp_path / "store" / "config")
    shutil.copytree(store.root / "commitlog", tmp_path / "store" / "commitlog")
    sizes = ["mappedFileSizeConsumeQueue=400", "mapperFileSizeBatchConsumeQueue=460", "maxIndexNum=200"]
    config = load_config(tmp_path / "store", broker_conf=store.broker_conf, overrides=["tailGuardMs=0", *sizes])
    with no_fsync():
        dispatch_store(config, out)
        segments = sorted((tmp_path / "store" / "commitlog").iterdir())
        for segment in segments[: len(segments) // 2]:
            segment.unlink()
        planned = expire_output(config, out, dry_run=True)
        before = files_below(out)
        report = one_step(config, out)
    assert report is not None
    assert report.removed.keys() == STORES[name]
    after = files_below(out)
    assert before.keys() - after.keys() == set(planned.removed)
    assert after == {path: data for path, data in before.items() if path in after}
    assert expire_output(config, out).removed == ()
    assert differences(config, out) == []
    if name != "v4-sql92":  # recover compares no ConsumeQueueExt
        assert not recover_output(config, tmp_path / "store", out).is_changed
    assert one_step(config, out) == CleanReport(report.min_physic_offset, {}, 0)
    rebuild(config, tmp_path / "fresh")
    fresh = entries_of(tmp_path / "fresh", config.queue.mapper_file_size_batch_consume_queue)
    left = entries_of(out, config.queue.mapper_file_size_batch_consume_queue)
    assert bool(fresh) == (name == "v5-batchcq")
    for queue, entries in fresh.items():
        assert left[queue].endswith(entries)
        assert len(left[queue]) - len(entries) < 460 + 46


def one_step(config: PipelineConfig, out: Path) -> CleanReport | None:
    """Do the first step of a tail after its start, without a new record."""
    log = LogReader(SourceOptions.parse(config.source_options()))
    files = DurableFiles(out)
    logic = LogicSinks.open(config, files)
    recover_sinks(logic.sinks, log, fail_on_data_loss=True)
    try:
        return CleanConsumeQueueService(logic.sinks, log, config.logic.clean_resource_interval).step(60)
    finally:
        files.close()


def differences(config: PipelineConfig, out: Path) -> list[Difference]:
    """Return the differences that `reput verify` finds."""
    sections = StoreVerification(config, out).run(SerialTasks())
    return [difference for section in sections for difference in section.findings.first]


def entries_of(root: Path, file_size: int) -> dict[tuple[bytes, int], bytes]:
    """The entries of each BatchConsumeQueue, in a row."""
    found = {}
    for disk in load_queues(root, BATCH_KIND, file_size):
        units = np.concatenate([disk.units(file) for file in disk.files])
        found[disk.topic, disk.queue_id] = units[units["msg_size"] > 0].tobytes()
    return found


def test_a_queue_that_has_expired_keeps_its_last_file(running: Running) -> None:
    """So do its directory and the index; a queue with one file is never looked at."""
    segments = len(list(running.output.log.iterdir()))
    running.expire(segments - 1)
    report = running.service.step()
    assert report is not None
    assert len(index_file_names(running.output.out)) >= 1
    expected = sorted(expected_queue_files(running.output.records, running.output.settings))
    last = {path.rpartition("/")[0]: path for path in expected}
    assert set(last.values()) <= set(queue_files(running.output.out))
    with mock.patch.object(QueueSink, "reader", side_effect=AssertionError):
        service_of(running.run, running.output.log).step()


def test_what_the_sinks_hold_is_what_is_on_disk() -> None:
    """Their lists of files, and no file that is gone is kept open, which would keep its room on the disk."""
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), Random(2), 150, done=0)
        with SinkRun(output.out, output.settings) as run:
            running = Running(output, run)
            running.dispatch(0, record_bounds(output.records)[-1])
            before = [name for name in open_files() if name.startswith(str(output.out))]
            running.expire(5)
            report = running.service.step()
            assert report is not None
            for (topic, queue_id), queue in run.queues._queues.items():
                assert queue.files == run.queues.reader(topic, queue_id).files
            after = [name for name in open_files() if name.startswith(str(output.out))]
            assert not [name for name in after if "(deleted)" in name]
            assert len(before) - len(after) == sum(report.removed.values()) > 10


def open_files() -> list[str]:
    """Return the open files of this process."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            found.append(str(path.readlink()))
    return found


# --- whose begin ---------------------------------------------------------------------------------------------


def test_another_log_is_no_reason(running: Running) -> None:
    """It begins further on, and lacks the last record of the sinks: no file goes until that record is back."""
    last = running.expire(3)
    before = tree(running.output)
    (at, data) = max((int(path.name), path.read_bytes()) for path in running.output.log.iterdir())
    path = running.output.log / f"{at:020d}"
    path.write_bytes(bytes(len(data)))
    assert running.service.step() is None
    path.unlink()
    assert running.later() is None
    assert tree(running.output) == before
    path.write_bytes(data)
    report = running.later()
    assert report is not None
    assert report.min_physic_offset == last


def test_a_log_that_begins_behind_the_sinks_is_no_reason() -> None:
    """Records that they still had to read have expired: the query reports that, and continues first or not at all."""
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
        output = Output.make(Path(directory), Random(3), 150, done=0.4)
        with SinkRun(output.out, output.settings) as run:
            running = Running(output, run)
            running.expire(run.end // SEGMENT_BYTES + 1)
            before = tree(output)
            assert running.service.step() is None
            assert tree(output) == before


def test_a_log_that_cannot_be_listed_is_the_querys_concern(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Not a word of it here, and the next look finds what went."""
    begin = running.expire(2)
    away = running.output.root / "away"
    running.output.log.rename(away)
    assert running.service.step() is None
    assert caplog.messages == []
    away.rename(running.output.log)
    report = running.later()
    assert report is not None
    assert report.min_physic_offset == begin


# --- failures ------------------------------------------------------------------------------------------------


def test_a_failure_is_one_warning_and_tried_again(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Other expired files go all the same; the warning comes once, and the run continues."""
    begin = running.expire(4)
    planned = expire_output(running.output.config, running.output.out, dry_run=True)
    stuck = next(path for path in planned.removed if path.startswith("consumequeue/A/0/"))
    others = {path for path in planned.removed if not path.startswith("consumequeue/A/0/")}
    real = type(running.run.files).remove

    def remove(files: Any, *parts: str) -> None:
        if "/".join(parts) == stuck:
            raise OutputError(f"cannot remove {stuck}: Permission denied")
        real(files, *parts)

    with mock.patch.object(type(running.run.files), "remove", remove), caplog.at_level(logging.WARNING, "reput"):
        before = tree(running.output)
        report = running.service.step()
        assert report is not None
        assert (report.failed, sum(report.removed.values())) == (1, len(others))
        assert before - tree(running.output) == others
        again = running.later()
        assert again == CleanReport(begin, {}, 1)
    assert caplog.messages == [
        f"expired files stay for now: cannot remove {stuck}: Permission denied; trying again every 10 s"
    ]
    healed = running.later()
    assert healed is not None
    assert healed.failed == 0
    assert before - tree(running.output) == set(planned.removed)
    assert running.later() is None


# --- where it is called ----------------------------------------------------------------------------------------


def test_never_beside_a_batch(running: Running) -> None:
    """The gate keeps it out while a batch is written, to its last wave, behind a failed one, and after a stop."""
    dispatch = mock.create_autospec(Dispatch, instance=True)
    dispatch.names, dispatch.is_writing = ("logic",), True
    gate = BatchGate(dispatch, lambda: None)
    gate.look()
    dispatch.is_writing = False
    dispatch.side_effect = lambda *_: gate.look()
    gate(mock.Mock(), 0)
    assert dispatch.look.call_count == 0
    gate.look()
    assert dispatch.look.call_count == 1
    dispatch.side_effect = ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        gate(mock.Mock(), 1)
    gate.look()
    stopped = BatchGate(dispatch, lambda: None)
    stopped.close()
    stopped.look()
    assert dispatch.look.call_count == 1


def test_the_interval_is_the_brokers(tmp_path: Path) -> None:
    """Its name, its default, and what broker.conf sets."""
    store = tmp_path / "store"
    store.mkdir()
    assert config_of(store).logic.clean_resource_interval == 10_000
    conf = tmp_path / "broker.conf"
    conf.write_text("cleanResourceInterval=2500\n")
    assert load_config(store, broker_conf=conf).logic.clean_resource_interval == 2500
