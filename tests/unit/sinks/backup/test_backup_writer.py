"""Steps of a backup: what each adds, what it keeps of a log that changes, and what it refuses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.backups import BLOCK, SEGMENT, GrowingStore
from support.logs import put_bytes
from support.record_writer import CommitLogWriter

from reput.sinks.backup.restore_point import RestorePoint
from reput.source.errors import OutputError, StoreError, TransientError, UnexplainedError


@pytest.fixture
def growing(tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path)


def backed_up(growing: GrowingStore, point: RestorePoint) -> bytes:
    """The log that a restore point has."""
    return growing.backup.read_log(point, point.begin, point.end)


def test_each_step_adds_what_is_new(growing: GrowingStore) -> None:
    """Every restore point has the log and the configuration of its moment, in few parts; no byte is written often."""
    written, states = set[str](), []
    writer = growing.writer()  # continues, as beside a running broker; others begin with the present restore points
    for number in range(1, 41):
        growing.append(growing.rng.randint(1, 9))
        growing.put_config("topics.json", {"count": growing.count})
        point = (writer if number % 2 else growing.writer()).step()
        assert point is not None
        if not number % 2:
            writer = growing.writer()
        states.append((point, growing.bytes_of_log(0, growing.log.max_offset), growing.count))
        written |= {part.name for part in point.parts}
        assert len(point.parts) < point.end / BLOCK + growing.log.max_offset / SEGMENT + 12
    for number, (point, log, count) in enumerate(states, 1):
        assert point.number == number
        assert growing.backup.point(number) == point
        assert (point.end, point.begin) == (len(log), 0)
        assert backed_up(growing, point) == log
        assert growing.backup.config_content(point.config[0]) == b'{"count": %d}' % count
    sizes = [int(name[25:45]) - int(name[4:24]) for name in written]
    assert sum(sizes) < 5 * growing.log.max_offset
    assert growing.backup.verify().faults == []


def test_nothing_new_makes_no_restore_point(growing: GrowingStore) -> None:
    """In the same process or in another one; a change of the configuration alone makes one without a new part."""
    (first,) = growing.grow(1)
    assert growing.step() is None
    growing.put_config("topics.json", {"other": 1})
    second = growing.step()
    assert second is not None
    assert (second.number, second.parts) == (2, first.parts)
    assert growing.backup.numbers() == [1, 2]


def test_an_empty_log_has_a_restore_point(growing: GrowingStore) -> None:
    """It has the configuration alone."""
    growing.put_config("topics.json", {})
    point = growing.step()
    assert point is not None
    assert (point.begin, point.end, point.parts) == (0, 0, ())
    growing.append(3)
    point = growing.step()
    assert point is not None
    assert backed_up(growing, point) == growing.bytes_of_log(0, point.end)


def test_segments_that_expire(growing: GrowingStore) -> None:
    """Later restore points begin later; earlier ones keep what they had."""
    growing.append(100)
    first = growing.step()
    assert first is not None
    log = growing.bytes_of_log(0, first.end)
    (growing.store / "commitlog" / f"{0:020d}").unlink()
    growing.append(5)
    second = growing.step()
    assert second is not None
    assert (second.begin, second.number) == (SEGMENT, 2)
    assert backed_up(growing, second) == growing.bytes_of_log(SEGMENT, second.end)
    assert backed_up(growing, first) == log


def cut(growing: GrowingStore, at: int, *, clears: bool) -> None:
    """The log is cut, as after an unclean stop, and written on; a broker clears nothing, a disk may."""
    path = growing.store / "commitlog" / f"{at - at % SEGMENT:020d}"
    if clears:
        path.write_bytes(path.read_bytes()[: at % SEGMENT].ljust(SEGMENT, b"\0"))
    growing.log._write_offset = at


# A reader that has just followed the records looks again in a second, if the last one is where it was.
@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize(("goes_on", "more"), [(False, 1), (False, 9), (True, 9)])
def test_a_log_that_was_cut(
    growing: GrowingStore, clears: bool, goes_on: bool, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Later restore points have the log as it is now, earlier ones as it was; in the same process or another one."""
    records = list(growing.append(100))
    writer = growing.writer()
    first = writer.step()
    assert first is not None
    log = growing.bytes_of_log(0, first.end)
    cut(growing, records[-4].physical_offset, clears=clears)
    growing.messages[growing.count] = growing.messages[2]
    growing.append(more)
    with caplog.at_level(logging.WARNING):
        second = (writer if goes_on else growing.writer()).step()
    assert "the backup continues with the log as it is now" in caplog.text
    assert second is not None
    assert second.end == growing.log.max_offset
    assert backed_up(growing, second) == growing.bytes_of_log(0, second.end) != log
    assert backed_up(growing, first) == log
    assert set(first.parts[:4]) <= set(second.parts), "what both have is not written again"
    assert growing.backup.verify().faults == []


def test_damage_in_the_last_segment(growing: GrowingStore) -> None:
    """The damage is backed up as it is, and so is the log after it."""
    records = growing.append(5)
    path = growing.store / "commitlog" / f"{0:020d}"
    put_bytes(path, records[2].physical_offset + 4, b"\1\2\3\4")
    point = growing.step()
    assert point is not None
    assert point.end == growing.log.max_offset
    assert backed_up(growing, point) == growing.bytes_of_log(0, point.end)


def test_another_store_is_refused(growing: GrowingStore, tmp_path: Path) -> None:
    """Nothing of its log is in the backup; the backup stays as it is."""
    growing.grow(2)
    (tmp_path / "other").mkdir()
    other = GrowingStore(tmp_path / "other", seed=5)
    other.append(30)
    other.backup = growing.backup
    with pytest.raises(UnexplainedError, match="it is another store; give another --to"):
        other.step()
    (tmp_path / "larger").mkdir()
    larger = GrowingStore(tmp_path / "larger", seed=5)
    larger.log = CommitLogWriter(larger.store / "commitlog", 2 * SEGMENT, preallocate=True)
    larger.append(30)
    larger.backup = growing.backup
    with pytest.raises(UnexplainedError, match="is in segments of 4096: it is another store; give another --to"):
        larger.step()
    assert growing.backup.numbers() == [1, 2]


def test_a_log_that_is_away(growing: GrowingStore) -> None:
    """A missing log is not another store: the same command continues when it is back."""
    growing.grow(2)
    log = growing.store / "commitlog"
    log.rename(growing.root / "away")
    log.mkdir()
    with pytest.raises(TransientError, match="holds no segment"):
        growing.step()
    log.rmdir()
    (growing.root / "away").rename(log)
    growing.append(1)
    assert growing.step() is not None
    assert growing.backup.numbers() == [1, 2, 3]


@pytest.mark.parametrize("torn", [b"", b'{"offsetTable":', b"\0" * 40])
def test_a_torn_file_of_configuration(growing: GrowingStore, torn: bytes) -> None:
    """The backup keeps what it had; at first it takes the .bak, or has nothing."""
    path = growing.store / "config" / "topics.json"
    growing.append(1)
    growing.put_config("topics.json.bak", {"old": 1})
    path.write_bytes(torn)
    first = growing.step()
    assert first is not None
    assert growing.backup.config_content(first.config[0]) == b'{"old": 1}'
    growing.put_config("topics.json", {"new": 1})
    growing.step()
    path.write_bytes(torn)
    growing.append(1)
    third = growing.step()
    assert third is not None
    assert growing.backup.config_content(third.config[0]) == b'{"new": 1}'
    (growing.store / "config" / "topics.json.bak").unlink()
    path.unlink()
    fourth = growing.step()
    assert fourth is not None
    assert fourth.config == ()


def test_two_at_once(growing: GrowingStore) -> None:
    """The second one finds a restore point of its number, and leaves it in peace."""
    growing.grow(1)
    one, other = growing.writer(), growing.writer()
    growing.append(5)
    point = one.step()
    growing.append(5)
    with pytest.raises(OutputError, match="exists already: another backup writes to this place; stop one of them"):
        other.step()
    assert growing.backup.last_point() == point
    assert growing.backup.verify().faults == []


def test_damaged_restore_point(growing: GrowingStore) -> None:
    """A backup continues from its newest restore point, so nothing is written after a damaged one."""
    growing.grow(2)
    path = growing.root / "backup" / "points" / "0000000002.json"
    path.write_bytes(path.read_bytes().replace(b'"end": ', b'"end": 1', 1))
    with pytest.raises(StoreError, match=r"0000000002\.json is damaged: it has changed"):
        growing.step()


@pytest.mark.parametrize("seed", range(6))
def test_expiry_leaves_what_is_needed(tmp_path: Path, seed: int) -> None:
    """Whatever is kept can be restored; nothing else stays."""
    growing = GrowingStore(tmp_path, seed)
    points = growing.grow(12)
    keep_points = growing.rng.choice([None, 1, 3, 40])
    keep_ms = growing.rng.choice([None, 0, 100, 300, 100_000])
    now_ms = growing.now_ms
    gone = growing.backup.expire(now_ms, keep_points=keep_points, keep_ms=keep_ms, is_alone=True)
    kept = growing.backup.numbers()
    assert gone + kept == [point.number for point in points]
    assert kept
    if keep_points is not None:
        assert len(kept) >= min(12, keep_points)
    if keep_ms is not None and gone:  # the one that was in force when the time began
        assert points[kept[0] - 1].created_ms <= now_ms - keep_ms or keep_points == len(kept)
    if keep_points is keep_ms is None:
        assert not gone
    proof = growing.backup.verify()
    assert (proof.faults, proof.points) == ([], len(kept))
    names = {file.name for file in growing.backup.storage.files(deep=True)}
    assert len(names) == proof.files + proof.points
    for number in kept:
        assert backed_up(growing, points[number - 1]) == growing.bytes_of_log(0, points[number - 1].end)
    growing.append(3)
    assert growing.step() is not None


def test_expiry_spares_files_of_another_backup(growing: GrowingStore) -> None:
    """On S3 two may begin at once: what has just been put may get a restore point yet."""
    growing.grow(2)
    new = f"log/{0:020d}-{99:020d}-0123456789abcdef.zst"
    growing.backup.storage.put(new, b"x", durable=True)
    (growing.root / "backup" / "log" / f".{new[4:]}.tmp").write_bytes(b"x")
    growing.backup.expire(growing.now_ms, keep_points=1, keep_ms=None, is_alone=False)
    assert growing.backup.storage.status(new) is not None
    growing.backup.expire(growing.now_ms, keep_points=1, keep_ms=None, is_alone=True)
    assert growing.backup.storage.status(new) is None
    assert not list((growing.root / "backup").rglob("*.tmp"))
