"""`abort`: when reput puts it into an output, whose it is, and when it goes."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from support.outputs import SEGMENT_BYTES, SETTINGS, Output, config_of, lost_page, messages_of
from support.rebuild_runner import rebuild
from support.sink_runner import files_below, no_fsync
from support.tail_runs import quiet_reporter

from reput.sinks.abort_file import LeftBy, abort_left_by, clear_abort, mark_abort
from reput.sinks.files import swap
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.retention import QueueRetention
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source.errors import OutputError
from reput.streaming.config.pipeline import load_config
from reput.streaming.output.paths import OutputPaths
from reput.streaming.recover import recover as maintenance
from reput.streaming.recover.recover import expire_output, recover_output, recovery_text
from reput.streaming.tail.tail import Tail

if TYPE_CHECKING:
    from conftest import BrokerStore

PID_OF_5X = b"4711"
OTHERS_OF_5X = struct.pack(">qqq", 77, 88, 99)


@pytest.fixture(autouse=True)
def fast_disk() -> Iterator[None]:
    with no_fsync():
        yield


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output.make(tmp_path, Random(3))


def tail(output: Output, config: Any = None) -> Tail:
    paths = OutputPaths(output.out)
    return Tail(config or output.config, paths, quiet_reporter())


def abort(output: Output) -> Path:
    return output.out / "abort"


# --- whose it is -----------------------------------------------------------------------------------------


def test_whose_it_is(tmp_path: Path) -> None:
    """4.9.3 leaves an empty file, 5.x its process id, reput its mark."""
    files = DurableFiles(tmp_path)
    assert abort_left_by(tmp_path) is LeftBy.NOBODY
    for content in (b"", PID_OF_5X, b"reput", b"reput 1, lock 5\n"):
        (tmp_path / "abort").write_bytes(content)
        assert abort_left_by(tmp_path) is LeftBy.BROKER
    with StoreLock(tmp_path):
        mark_abort(files)
    with StoreLock(tmp_path):  # reput's own next start
        assert abort_left_by(tmp_path) is LeftBy.REPUT
    clear_abort(files)
    clear_abort(files)
    assert abort_left_by(tmp_path) is LeftBy.NOBODY


def test_a_broker_that_started_since_owns_it(tmp_path: Path) -> None:
    """4.9.3 leaves the file's text as it is, and writes to the lock."""
    with StoreLock(tmp_path):
        mark_abort(DurableFiles(tmp_path))
    lock = tmp_path / "lock"
    known = lock.stat().st_mtime_ns
    lock.write_bytes(b"lock")
    os.utime(lock, ns=(known + 4_000_000, known + 4_000_000))
    assert abort_left_by(tmp_path) is LeftBy.BROKER


# --- tail ------------------------------------------------------------------------------------------------


def test_tail_keeps_it_while_it_writes(output: Output) -> None:
    """From its start to a clean stop at the end of the log."""
    with tail(output):
        assert abort_left_by(output.out) is LeftBy.REPUT
    assert not abort(output).exists()


def test_a_tail_that_failed_or_was_killed_leaves_it(output: Output) -> None:
    """And accepts it at its next start, as progress records tell what is whole."""
    for _ in range(2):
        with pytest.raises(RuntimeError), tail(output):
            raise RuntimeError
        assert abort_left_by(output.out) is LeftBy.REPUT
    with tail(output):
        pass
    assert not abort(output).exists()


def test_a_stop_behind_the_log_leaves_it(output: Output, caplog: pytest.LogCaptureFixture) -> None:
    """A broker that believed it clean would continue after queues that lack records (5.x: without the first)."""
    output.write_log([*(record.message for record in output.records), *messages_of(Random(9), 5, 60)])
    with caplog.at_level("INFO", "reput"), tail(output):
        pass
    assert abort_left_by(output.out) is LeftBy.REPUT
    assert "'reput tail --available-now' with the same --store and --output" in caplog.text
    output.go_on()
    with tail(output):
        pass
    assert not abort(output).exists()


def test_a_store_that_went_away_does_not_spoil_a_stop(output: Output) -> None:
    """The mark stays, since nothing tells where the log ends."""
    with tail(output):
        shutil.rmtree(output.store)
    assert abort_left_by(output.out) is LeftBy.REPUT


@pytest.mark.parametrize("content", [b"", PID_OF_5X])
def test_a_brokers_stays(content: bytes, output: Output, caplog: pytest.LogCaptureFixture) -> None:
    """It is also about the log, which a tail does not check."""
    abort(output).write_bytes(content)
    with caplog.at_level("INFO", "reput"), tail(output):
        assert abort(output).read_bytes() == content
    assert abort(output).read_bytes() == content
    assert "'reput recover' looks the log over and removes it" in caplog.text


@pytest.mark.parametrize("left_by", ["broker", "reput"])
def test_files_that_nobody_vouches_for_are_refused(left_by: str, output: Output) -> None:
    """Without a progress record, and with a sign that who wrote them was killed."""
    shutil.rmtree(output.out / "reput")
    with StoreLock(output.out):
        mark_abort(DurableFiles(output.out)) if left_by == "reput" else abort(output).touch()
    with pytest.raises(OutputError, match=rf"says that the {left_by} which .*'reput recover' with the same"):
        tail(output).__enter__()


def test_a_tail_of_the_table_alone_has_nothing_to_do_with_it(output: Output, tmp_path: Path) -> None:
    """No file of a broker is written."""
    config = load_config(
        output.store, overrides=["consumeQueueEnable=false", "messageIndexEnable=false", "tailGuardMs=0"]
    )
    paths = OutputPaths(output.out, tmp_path / "table")
    with Tail(config, paths, quiet_reporter()):
        assert not abort(output).exists()


# --- recover ---------------------------------------------------------------------------------------------


def recover(output: Output, **options: Any) -> maintenance.RecoveryReport:
    return recover_output(output.config, output.store, output.out, **options)


def test_recover_ends_what_a_brokers_says(output: Output) -> None:
    """Queues and index have every record of a log that is whole: a normal start changes nothing."""
    abort(output).touch()
    planned = recover(output, dry_run=True)
    assert abort(output).exists()
    assert "abort would be removed: a broker may start here" in recovery_text(planned, dry_run=True)
    done = recover(output)
    assert done == planned
    assert not done.is_changed
    assert not abort(output).exists()
    assert "abort is removed: a broker may start here as after a clean stop" in recovery_text(done, dry_run=False)


def test_recover_takes_it_over_where_tail_has_to_go_on(output: Output) -> None:
    """A tail brings back the records that were cut off, and the file goes when the tail stops."""
    abort(output).touch()
    lost_page(output, Random(2))
    report = recover(output)
    assert report.abort is not None
    assert not report.abort.is_cleared
    assert "continues to there and removes abort" in report.abort.text()
    assert abort_left_by(output.out) is LeftBy.REPUT
    output.go_on()
    with tail(output):
        pass
    assert not abort(output).exists()


def torn_end(output: Output) -> None:
    """Write half of a record after the last one."""
    end = output.records[-1].physical_offset + output.records[-1].msg_size
    last = max(output.log.iterdir())
    with last.open("r+b") as file:
        file.seek(end % SEGMENT_BYTES)
        file.write(struct.pack(">ii", 200, 0xDAA320A7 - (1 << 32)) + b"x" * 30)


def torn_body(output: Output, behind: int = 4000) -> None:
    """In a segment before the last: its sizes are right, its checksum is not."""
    record = next(record for record in output.records if record.message.body and record.physical_offset > behind)
    path = output.log / f"{record.physical_offset // SEGMENT_BYTES * SEGMENT_BYTES:020d}"
    data = bytearray(path.read_bytes())
    at = data.index(record.message.body, record.physical_offset % SEGMENT_BYTES)
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [torn_end, torn_body])
@pytest.mark.parametrize("command", ["recover", "rebuild"])
def test_a_log_that_is_torn_is_left_to_the_broker(
    damage: Callable[[Output], None], command: str, output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    """It cuts the log, which reput never does."""
    abort(output).touch()
    (output.out / "checkpoint").unlink()
    damage(output)
    with caplog.at_level("INFO", "reput"):
        report = recover(output) if command == "recover" else rebuild(output.config, output.out)
    said = recovery_text(report, dry_run=False) if command == "recover" else caplog.text
    assert "abort stays: the bytes of the log at" in said
    assert abort_left_by(output.out) is LeftBy.BROKER


@pytest.mark.parametrize(("damaged", "is_cleared"), [(-4, True), (-3, False)])
def test_damage_that_is_left_out(damaged: int, is_cleared: bool, output: Output) -> None:
    """4.9.3 reads the last three segments after a clean stop. With abort and no checkpoint it would read all."""
    config = config_of(output.store, SETTINGS, "onDamage=quarantine")
    abort(output).touch()
    (output.out / "checkpoint").unlink()
    torn_body(output, sorted(int(path.name) for path in output.log.iterdir())[damaged])
    rebuild(config, output.out, yes=True)
    assert abort_left_by(output.out) is (LeftBy.NOBODY if is_cleared else LeftBy.BROKER)


def test_a_recovery_that_dies_leaves_it(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an output that had none before, too."""
    lost_page(output, Random(2))

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("reput.streaming.recover.recover.cut_queues", die)
        with pytest.raises(KeyboardInterrupt):
            recover(output)
    assert abort_left_by(output.out) is LeftBy.REPUT
    recover(output)
    assert abort_left_by(output.out) is LeftBy.REPUT  # the queues are still to be brought to the end
    output.go_on()
    assert recover(output).abort is not None
    assert not abort(output).exists()


def test_a_killed_brokers_store(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """Real files: `recover` in place, then a tail if there is something to bring up, and the file is gone."""
    store = broker_store("v4-killed")
    root = tmp_path / "store"
    shutil.copytree(store.root, root)
    config = load_config(root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0"])
    report = recover_output(config, root, root)
    assert report.unclean
    assert report.abort is not None
    assert report.abort.is_cleared
    assert not (root / "abort").exists()
    again = recover_output(config, root, root)
    assert not again.unclean
    assert again.abort is None


# --- rebuild ---------------------------------------------------------------------------------------------


def test_a_rebuild_of_all_ends_what_a_brokers_says(output: Output) -> None:
    """In the store of a killed broker."""
    abort(output).write_bytes(PID_OF_5X)
    shutil.rmtree(output.out / "index")
    rebuild(output.config, output.out)
    assert not abort(output).exists()


@pytest.mark.parametrize("request_of", [{"only": "index"}, {"topic": "A"}, {"exclude": ("A",)}, {"end": 0}])
@pytest.mark.parametrize("before", [None, b""])
def test_a_rebuild_of_a_part_leaves_it_as_it_was(
    request_of: dict[str, object], before: bytes | None, output: Output
) -> None:
    """The rest was not looked at."""
    if before is not None:
        abort(output).write_bytes(before)
    if "end" in request_of:
        request_of = {"end": output.records[5].physical_offset}
    rebuild(output.config, output.out, **request_of)
    assert abort_left_by(output.out) is (LeftBy.NOBODY if before is None else LeftBy.BROKER)


def test_a_rebuild_that_dies_while_it_swaps_leaves_it(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker would find old files beside new ones; the command that finishes the swap removes it."""
    moved: list[object] = []

    def die(*_: object, **__: object) -> None:
        moved.append(1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(swap, "_move", die)
        with pytest.raises(KeyboardInterrupt):
            rebuild(output.config, output.out)
    assert moved
    assert abort_left_by(output.out) is LeftBy.REPUT
    with tail(output):
        pass
    assert not abort(output).exists()


def test_a_rebuild_beside_a_log_that_goes_on_leaves_it(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live broker's: until a tail has come to the end."""
    from reput.streaming.rebuild import rebuild as module

    original = module.swap

    def swap_later(*arguments: Any, **options: Any) -> None:
        output.write_log([*(record.message for record in output.records), *messages_of(Random(9), 5, 60)])
        original(*arguments, **options)

    monkeypatch.setattr(module, "swap", swap_later)
    rebuild(output.config, output.out)
    assert abort_left_by(output.out) is LeftBy.REPUT


# --- the checkpoint, and expiry --------------------------------------------------------------------------


def test_what_a_5x_broker_keeps_in_the_checkpoint_stays(output: Output) -> None:
    """Its own fields behind the three: replication would begin again without them."""
    path = output.out / "checkpoint"
    path.write_bytes((path.read_bytes()[:24] + OTHERS_OF_5X).ljust(4096, b"\0"))
    rebuild(output.config, output.out)
    assert path.read_bytes()[24:48] == OTHERS_OF_5X
    lost_page(output, Random(2))
    recover(output)
    assert path.read_bytes()[24:48] == OTHERS_OF_5X
    assert StoreCheckpoint.decode(path.read_bytes()).encode() == path.read_bytes()


def test_a_rebuild_leaves_a_broker_to_look_where_it_would_have(output: Output) -> None:
    """The log is torn: the broker's own time says from where on it is to be looked over."""
    abort(output).touch()
    path = output.out / "checkpoint"
    old = output.records[2].message.store_timestamp
    path.write_bytes(StoreCheckpoint(old, old, 0).encode())
    torn_end(output)
    rebuild(output.config, output.out)
    assert StoreCheckpoint.decode(path.read_bytes()).physic_msg_timestamp == old


def test_expiry_leaves_no_hole(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped anywhere, what is left of a queue is a row of files without a gap."""
    for segment in sorted(output.log.iterdir())[:3]:
        segment.unlink()
    calls: list[tuple[str, ...]] = []
    for name in ("remove", "sync_names"):
        real = getattr(DurableFiles, name)

        def recorded(files: DurableFiles, *parts: str, name: str = name, real: Any = real) -> None:
            calls.append((name, *parts[:3]))
            real(files, *parts)

        monkeypatch.setattr(DurableFiles, name, recorded)
    report = expire_output(output.config, output.out)
    assert all(isinstance(queue, QueueRetention) for queue in report.queues)
    # Each is durably gone before the next.
    assert len(calls) == 2 * len(report.removed) > 10
    for removal, sync in zip(calls[::2], calls[1::2], strict=True):
        assert (removal[0], sync[0]) == ("remove", "sync_names")
        assert sync[1:] == (removal[1:4] if removal[1] != "index" else ("index",))
    for queue in (output.out / "consumequeue").glob("*/*"):
        begins = sorted(int(path.name) for path in queue.iterdir())
        assert begins == list(range(begins[0], begins[-1] + 100, 100))
    assert files_below(output.out)
