"""`reput recover` and `reput expire` on stores of real 4.9.3 brokers: killed, expired, and spoiled on purpose."""

from __future__ import annotations

import functools
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from support.logs import put_bytes
from support.model import Record, read_log
from support.rebuild_runner import rebuild
from support.sink_runner import (
    LogBatches,
    SinkRun,
    dispatch_store,
    files_below,
    index_contents,
    no_fsync,
    queue_files,
    record_bounds,
    service_of,
)
from support.store_compare import differing_bytes
from unit.sinks.test_broker_stores import settings_of

from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source.errors import OutputError
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import load_config
from reput.streaming.doctor.predict import predict
from reput.streaming.doctor.start_settings import RELEASES, start_settings
from reput.streaming.output.hand_over import check_taken_over
from reput.streaming.recover.recover import RecoveryReport, expire_output, recover_output
from reput.streaming.tail.upkeep import CleanReport

if TYPE_CHECKING:
    from conftest import BrokerStore

INDEX_MSG_TIMESTAMP_AT = 16
GetStore = Callable[[str], "BrokerStore"]


@functools.cache
def records_of(root: Path) -> list[Record]:
    segments = {int(path.name): path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
    return list(read_log(segments))


def output_of(store: BrokerStore, root: Path) -> Path:
    """A copy of what a broker keeps beside its log."""
    for name in ("consumequeue", "batchconsumequeue", "index", "checkpoint", "abort"):
        path = store.root / name
        if path.is_dir():
            shutil.copytree(path, root / name)
        elif path.exists():
            shutil.copy(path, root / name)
    return root


def derived_files(output: Path) -> dict[str, bytes]:
    """The files of queues and index by their path."""
    return {path: data for path, data in files_below(output).items() if path.startswith(("consumequeue/", "index/"))}


def recover(store: BrokerStore, output: Path) -> RecoveryReport:
    config = load_config(store.root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0"])
    with no_fsync():
        return recover_output(config, store.root, output)


def log_of(store: BrokerStore) -> LogReader:
    return LogReader(SourceOptions.parse({"path": str(store.root / "commitlog")}))


def go_on(store: BrokerStore, output: Path) -> int:
    """Derive what is missing, and return how many records that were."""
    allowed = record_bounds(records_of(store.root))
    with no_fsync(), SinkRun(output, settings_of(store)) as run:
        start = max(offset for offset in allowed if offset <= run.end)
        if start < allowed[-1]:
            run.write(
                LogBatches(store.root / "commitlog", range_bytes=100_000, window_bytes=40_000)(start, allowed[-1])
            )
    return sum(start <= at for at, *_ in records_of(store.root))


def test_a_killed_broker(broker_store: GetStore, tmp_path: Path) -> None:
    """After kill -9 the files are refused by the tail, found to agree with the log, and equal the rebuilt ones."""
    store, rebuilt = broker_store("v4-killed"), broker_store("v4-killed-rebuilt")
    output = output_of(store, tmp_path / "out")
    with pytest.raises(OutputError, match=r"abort says that the broker which left .*'reput recover' with"):
        check_taken_over(output, ["consumequeue", "index"], log_of(store), fail_on_data_loss=True)
    report = recover(store, output)
    assert (report.unclean, report.rewound, report.log_end) == (True, False, store.facts["maxOffset"])
    # The place where a broker would have recovered from: it lost the records before, see PROVENANCE.md.
    assert report.broker_recovers_from == 1_048_576
    check_taken_over(output, ["consumequeue", "index"], log_of(store), fail_on_data_loss=True)
    assert go_on(store, output) == 0
    assert queue_files(output) == queue_files(rebuilt.root)
    assert index_contents(output) == index_contents(rebuilt.root)
    assert not recover(store, output).is_changed


@pytest.mark.parametrize("unclean", [False, True])
@pytest.mark.parametrize("release", ["4.9.3", "5.5.0"])
@pytest.mark.parametrize("name", ["v4-killed", "v4-expired", "v5-plain", "v5-longtopic", "v5-propcrc"])
def test_a_brokers_recovery_begins_where_doctor_says(
    name: str, release: str, unclean: bool, broker_store: GetStore, tmp_path: Path
) -> None:
    """On the store itself, for which `test_doctor_broker.py` has asked real brokers."""
    store = broker_store(name)
    assert recovers_from(store, release, store.broker_conf, tmp_path / "out", unclean=unclean) is not None


def recovers_from(
    store: BrokerStore, release: str, conf: Path, output: Path, *, unclean: bool, indexed_ms: int | None = None
) -> int:
    """Where a broker's recovery begins, as `recover` and as `doctor` say; `indexed_ms` goes into the checkpoint."""
    output_of(store, output)
    if indexed_ms is not None:
        put_bytes(output / "checkpoint", INDEX_MSG_TIMESTAMP_AT, struct.pack(">q", indexed_ms))
    (output / "abort").unlink(missing_ok=True)
    if unclean:
        (output / "abort").touch()
    config = load_config(store.root, broker_conf=conf, overrides=["tailGuardMs=0", f"brokerVersion={release}"])
    predicted = predict(
        output, config.commit_log, start_settings(config, conf, RELEASES[release == "5.5.0"]), is_abnormal=unclean
    ).recovers_from
    assert predicted is not None
    report = recover_output(config, output, output, dry_run=True)
    assert report.broker_recovers_from == int(Path(predicted).name)
    return report.broker_recovers_from


@pytest.mark.parametrize("top", ["consumequeue", "batchconsumequeue"])
def test_a_recovery_begins_where_queues_of_either_kind_end(top: str, broker_store: GetStore, tmp_path: Path) -> None:
    """Each kind of this store's queues has a record of the last segment: the other kind's are gone."""
    store = broker_store("v5-batchcq")
    root = Path(shutil.copytree(store.root, tmp_path / "store"))
    shutil.rmtree(root / top)
    begins = recovers_from(replace(store, root=root), "5.5.0", store.broker_conf, tmp_path / "out", unclean=False)
    assert begins == int(max((root / "commitlog").iterdir()).name)


@pytest.mark.parametrize(
    ("release", "unclean", "setting"),
    [
        ("5.5.0", False, "messageIndexSafe=true"),
        ("5.5.0", True, "messageIndexSafe=true"),
        ("4.9.3", True, "messageIndexSafe=true"),
        ("5.5.0", True, "commitLogRecoverMaxNum=1"),
    ],
)
def test_what_a_setting_does_to_where_recovery_begins(
    release: str, unclean: bool, setting: str, broker_store: GetStore, tmp_path: Path
) -> None:
    """`broker.conf` is followed where a release asks it."""
    store = broker_store("v4-killed")
    begins = []
    for name, more in (("plain", ""), ("with", f"\n{setting}\n")):
        conf = tmp_path / f"{name}.conf"
        conf.write_text(store.broker_conf.read_text() + more)
        begins.append(recovers_from(store, release, conf, tmp_path / name, unclean=unclean, indexed_ms=0))
    assert begins[0] != begins[1]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", ["v4-killed", "v4-plain", "v4-tx-delay-retry"])
def test_a_broker_whose_pages_were_lost(name: str, seed: int, broker_store: GetStore, tmp_path: Path) -> None:
    """Pages of queues and index that never reached the disk, as after a power failure, come back from the log."""
    store, rng = broker_store(name), Random(f"{name} {seed}")
    rebuilt = broker_store("v4-killed-rebuilt" if name == "v4-killed" else name)
    output = output_of(store, tmp_path / "out")
    (output / "abort").touch()
    files = sorted(
        path for folder in ("consumequeue", "index") for path in (output / folder).rglob("*") if path.is_file()
    )
    for path in rng.sample(files, 3):
        content = bytearray(path.read_bytes())
        pages = [at for at in range(0, len(content), 4096) if content[at : at + 4096].strip(b"\0")]
        for at in rng.sample(pages, rng.randrange(len(pages) + 1)):
            content[at : at + 4096] = bytes(len(content[at : at + 4096]))
        path.write_bytes(content)
    recover(store, output)
    go_on(store, output)
    assert queue_files(output) == queue_files(rebuilt.root)
    assert index_contents(output) == index_contents(rebuilt.root)
    ours = StoreCheckpoint.decode((output / "checkpoint").read_bytes())
    theirs = StoreCheckpoint.decode((rebuilt.root / "checkpoint").read_bytes())
    # The harness writes logicsPhysicalOffset for every release; these brokers are of 4.9.3.
    assert replace(ours, physic_msg_timestamp=0, others=b"") == replace(theirs, physic_msg_timestamp=0)
    assert not recover(store, output).is_changed


def test_expired_segments(broker_store: GetStore, tmp_path: Path) -> None:
    """Where the broker's own cleaner ran, nothing is left to expire, and nothing to recover; the minima are 5.x's."""
    store, rebuilt = broker_store("v4-expired"), broker_store("v4-expired-rebuilt")
    output = output_of(store, tmp_path / "out")
    before = files_below(output)
    config = load_config(store.root, broker_conf=store.broker_conf)
    report = expire_output(config, output)
    assert (report.min_physic_offset, report.removed) == (2_097_152, ())
    assert {path: data for path, data in files_below(output).items() if path != "lock"} == before
    recover(store, output)
    assert go_on(store, output) == 0
    with no_fsync(), SinkRun(output, settings_of(store)) as run:
        assert service_of(run, store.root / "commitlog").step() == CleanReport(2_097_152, {}, 0)
    assert queue_files(output) == queue_files(store.root)
    assert index_contents(output) == index_contents(store.root)
    # The rebuilt queues begin with the first record that the log still has, behind pre-blank units.
    again = expire_output(config, output_of(rebuilt, tmp_path / "rebuilt"))
    minima = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in again.queues}
    ours = {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in report.queues}
    assert {key: ours[key] for key in minima} == minima
    gone = {key for key in ours if key not in minima}
    assert {topic for topic, _ in gone} == {"ExpOld"}
    assert all(ours[key][0] == ours[key][1] for key in gone)


@pytest.mark.parametrize("how", ["expire", "tail"])
@pytest.mark.parametrize("removed", [1, 2, 5, 7])
def test_expiry_goes_on_as_the_rule_says(removed: int, how: str, broker_store: GetStore, tmp_path: Path) -> None:
    """More segments go: leading files whose last unit has expired go, every byte of the others stays."""
    store = broker_store("v4-expired")
    log = tmp_path / "store" / "commitlog"
    shutil.copytree(store.root / "commitlog", log)
    segments = sorted(log.iterdir())
    for segment in segments[:removed]:
        segment.unlink()
    least = int(segments[removed].name)
    output = output_of(store, tmp_path / "out")
    recover(store, output)  # this makes progress records for the broker's files
    before = {
        **queue_files(output),
        **{path: data for path, data in files_below(output).items() if path[:6] == "index/"},
    }
    config = load_config(tmp_path / "store", broker_conf=store.broker_conf)
    dry = expire_output(config, output, dry_run=True)
    if how == "expire":
        assert dry == expire_output(config, output)
    else:
        with no_fsync(), SinkRun(output, settings_of(store)) as run:
            report = service_of(run, log).step()
        assert report is not None
        assert (report.min_physic_offset, sum(report.removed.values())) == (least, len(dry.removed))
    assert derived_files(output) == {path: data for path, data in before.items() if path not in dry.removed}
    expected = set()
    by_queue: dict[str, list[str]] = {}
    for path in sorted(before):
        by_queue.setdefault(path.rpartition("/")[0], []).append(path)
    for directory, paths in by_queue.items():
        at = slice(24, 32) if directory == "index" else slice(-20, -12)
        for path in paths[:-1]:
            if int.from_bytes(before[path][at], "big") >= least:
                break
            expected.add(path)
    assert set(dry.removed) == expected
    assert expected or removed < 5
    assert not expire_output(config, output).removed


def test_empty_queues_of_the_wrong_kind_go(broker_store: GetStore, tmp_path: Path) -> None:
    """They keep 5.5.0 from starting; a directory with an unknown file stays."""
    store = broker_store("v5-batchcq")
    output = output_of(store, tmp_path / "out")
    before = files_below(output)
    for name in ("0", "1"):
        (output / "consumequeue" / "BatchQ" / name).mkdir(parents=True)
    (output / "consumequeue" / "BatchQ" / "1" / "note").touch()
    assert "consumequeue/BatchQ/0" in recover(store, output).sinks[0].files.removed
    assert [path.name for path in (output / "consumequeue" / "BatchQ").iterdir()] == ["1"]
    (output / "consumequeue" / "BatchQ" / "1" / "note").unlink()
    assert recover(store, output).sinks[0].files.removed == ("consumequeue/BatchQ/1",)
    assert not (output / "consumequeue" / "BatchQ").exists()
    assert derived_files(output) == {path: data for path, data in before.items() if path in derived_files(output)}
    assert not recover(store, output).is_changed


def cut_log(log: Path, at: int) -> None:
    """Have the log end at a record that begins at `at`: zeros follow, and later segments are gone."""
    for path in sorted(log.iterdir()):
        begin = int(path.name)
        if begin >= at:
            path.unlink()
        elif at < begin + path.stat().st_size:
            data = path.read_bytes()
            path.write_bytes(data[: at - begin] + bytes(len(data) - (at - begin)))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", ["a cut log", "a flipped unit", "a lost file", "a lost record of progress"])
@pytest.mark.parametrize(
    ("name", "topic", "directory"),
    [("v5-batchcq", "BatchQ", "batchconsumequeue"), ("v4-sql92", "SqlTopic", "consumequeue_ext")],
)
def test_queues_of_inner_batches_and_ext_units(
    name: str, topic: str, directory: str, harm: str, broker_store: GetStore, tmp_path: Path
) -> None:
    """They are compared, cut and continued like plain queues; then everything is as if it had been made again."""
    found = broker_store(name)
    shutil.copytree(found.root, tmp_path / "store")
    store = replace(found, root=tmp_path / "store")
    config = load_config(store.root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0"])
    output, again = tmp_path / "out", tmp_path / "again"
    rebuild(config, output)
    assert not recover(store, output).is_changed
    queue = output / directory / topic / "1"
    if harm == "a cut log":
        records = [at for at, *_ in records_of(found.root)]
        cut_log(store.root / "commitlog", records[-60])
    elif harm == "a flipped unit":
        flip(queue / f"{0:020d}", 5 * 46 + 30 if directory == "batchconsumequeue" else 5)
    elif harm == "a lost file":
        max(queue.iterdir()).unlink()
    else:
        kept = "batchconsumequeue" if directory == "batchconsumequeue" else "consumequeue"
        next(output.glob(f"reput/**/{kept}*")).unlink()
    (output / "abort").touch()
    report = recover(store, output)
    assert report.is_changed
    assert report.rewound == (harm == "a cut log")
    assert report.abort is not None
    assert report.abort.is_cleared == (harm in {"a cut log", "a lost record of progress"})  # the others end early
    offsets = {queue.queue_id: queue.max_offset for queue in report.queues if queue.topic == topic}
    assert not recover(store, output).is_changed
    rebuild(config, again)
    if harm == "a cut log":
        assert differing_bytes(again, output) == {}
    dispatch_store(config, output)
    assert differing_bytes(again, output) == {}
    ends = {queue.queue_id: queue.max_offset for queue in recover(store, output).queues if queue.topic == topic}
    assert all(ends[queue_id] >= end for queue_id, end in offsets.items())


def test_the_checkpoint_goes_back_to_the_kind_of_queue_that_ends_first(broker_store: GetStore, tmp_path: Path) -> None:
    """Plain queues are cut early, those of inner batches late: no time in it is of a record that a queue lacks."""
    found = broker_store("v5-batchcq")
    store = replace(found, root=tmp_path / "store")
    shutil.copytree(found.root, store.root)
    output = tmp_path / "out"
    rebuild(load_config(store.root, broker_conf=store.broker_conf), output)
    flip(output / "consumequeue" / "Simple" / "0" / f"{0:020d}", 20 * 20 + 19)
    flip(output / "batchconsumequeue" / "BatchQ" / "1" / f"{13_800:020d}", 50 * 46 + 30)
    ends = {sink.name: sink.end_after for sink in recover(store, output).sinks}
    assert ends["consumequeue"] < ends["batchconsumequeue"] < ends["index"]
    last = log_of(store).last_record_before(ends["consumequeue"])
    assert last is not None
    checkpoint = StoreCheckpoint.decode((output / "checkpoint").read_bytes())
    assert checkpoint.logics_msg_timestamp == checkpoint.physic_msg_timestamp == last.store_timestamp
