"""A backup on S3: what a server that fails, or two backups at once, leave of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.backups import GrowingStore, log_bytes_of
from support.command_line import invoke, run_reput
from support.s3_server import BUCKET, S3Server, s3_server
from support.sink_runner import no_fsync

from reput.sinks.backup.backup_store import Backup
from reput.sinks.table.location import S3Location
from reput.sinks.table.storage import S3Storage
from reput.source.errors import OutputError, ReputError, StoreError


@pytest.fixture(params=["", "lossy", "conflict"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(request.param) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def growing(server: S3Server, tmp_path: Path) -> GrowingStore:
    return GrowingStore(tmp_path, location=S3Location(BUCKET, f"backups/{tmp_path.name}"))


def test_there_and_back(growing: GrowingStore, tmp_path: Path) -> None:
    """Steps, proof, expiry and restore, as on a disk."""
    with no_fsync():
        points = growing.grow(5)
        assert growing.step() is None
        for point in points:
            assert growing.backup.read_log(point, 0, point.end) == growing.bytes_of_log(0, point.end)
        assert growing.backup.verify().faults == []
        growing.backup.expire(growing.now_ms, keep_points=2, keep_ms=None, is_alone=True)
        found = growing.backup.verify()
        assert (found.points, found.faults) == (2, [])
        made = growing.restore(tmp_path / "restored", point=4)
    assert log_bytes_of(tmp_path / "restored", 0, made.end) == growing.bytes_of_log(0, points[3].end)


def test_two_at_once_on_s3(growing: GrowingStore) -> None:
    """The second one is refused by the number of its restore point, whose files stay."""
    growing.grow(1)
    one, other = growing.writer(), growing.writer()
    growing.append(5)
    point = one.step()
    growing.append(5)
    with pytest.raises(OutputError, match="exists already: another backup writes to this place"):
        other.step()
    assert growing.backup.last_point() == point
    assert growing.backup.verify().faults == []


@pytest.mark.parametrize("server", [""], indirect=True)
def test_commands_on_s3(growing: GrowingStore, server: S3Server) -> None:
    """A server that is down, or refuses, is one line; afterwards the same command continues."""
    growing.append(9)
    words = ["backup", "--store", str(growing.store), "--to", f"s3://{BUCKET}/backups/b"]
    with server.down():
        done = invoke(words)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "does not answer" in done.stderr
    run_reput(words)
    assert (
        "every restore point can be restored"
        in run_reput(["backup", "verify", "--from", f"s3://{BUCKET}/backups/b"]).output
    )
    done = invoke([*words[:-1], "s3://missing/b"])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "The specified bucket does not exist" in done.stderr


@pytest.mark.parametrize("server", ["ignores"], indirect=True)
def test_a_server_that_lets_both_win(server: S3Server, tmp_path: Path) -> None:
    """It is refused before anything is written."""
    with pytest.raises(OutputError, match="ignores If-None-Match"):
        GrowingStore(tmp_path, location=S3Location(BUCKET, f"backups/{tmp_path.name}"))


@pytest.mark.parametrize("server", [""], indirect=True)
def test_errors_at_every_request(growing: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any request may fail: every restore point that exists is whole, and the next step makes the missing one."""
    growing.grow(2)
    real: Callable[..., object] = S3Storage.put
    for number in range(1, 5):
        calls = 0

        def fails(storage: S3Storage, *given: object, number: int = number, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls == number:
                raise OutputError("the server fails")
            return real(storage, *given, **more)

        growing.append(25)
        growing.put_config("topics.json", {"count": growing.count})
        monkeypatch.setattr(S3Storage, "put", fails)
        with suppress(ReputError):
            growing.step()
        monkeypatch.setattr(S3Storage, "put", real)
        assert growing.backup.verify().faults == []
        growing.step()
        last = growing.backup.last_point()
        assert last is not None
        assert growing.backup.read_log(last, 0, last.end) == growing.bytes_of_log(0, growing.log.max_offset)


@pytest.mark.parametrize("server", [""], indirect=True)
def test_no_backup_there(server: S3Server) -> None:
    """A bucket without one has no restore point; a missing bucket is an error."""
    assert Backup(S3Location(BUCKET, "nothing")).numbers() == []
    with pytest.raises(StoreError, match="there is no bucket missing"):
        Backup(S3Location("missing", "x")).numbers()
