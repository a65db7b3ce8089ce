"""A look at a log's end before the modules are loaded: what was the same then and later need not be waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.live_log import GUARD_MS, SIZE, LiveLog
from support.record_writer import Message
from typer.testing import CliRunner

from reput.source.log import early_look
from reput.source.log.early_look import look_early
from reput.streaming.cli.main import app

# No light module of the command line may load one of these.
HEAVY = ("numpy", "numba", "pyarrow", "pyspark")


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveLog]:
    """A log whose clock is that of the early look, too; its parameter is whether segments are made in advance."""
    log = LiveLog(tmp_path / "log", preallocate=getattr(request, "param", False))
    monkeypatch.setattr(early_look, "time", SimpleNamespace(monotonic=log.clock))
    yield log
    early_look._looks.clear()


@pytest.mark.parametrize("log", [False, True], indirect=True)
def test_what_was_seen_early_is_settled_at_once(log: LiveLog) -> None:
    """The guard runs from the early look; a segment that the broker made in advance hides nothing."""
    end = log.append()
    look_early(log.directory)
    log.clock.now += (GUARD_MS - 1) / 1000
    assert log.end().held_back == end
    assert log.end(1).offset == end


def test_without_an_early_look_the_guard_begins_with_the_first(log: LiveLog) -> None:
    """The look has to be at this log."""
    end = log.append()
    look_early(log.directory.parent)
    log.clock.now += GUARD_MS
    assert log.end().held_back == end


@pytest.mark.parametrize("at", ["its first byte", "its last byte"])
def test_what_has_changed_since_is_guarded_anew(at: str, log: LiveLog) -> None:
    """Bytes that came behind the early look have been seen once."""
    end = log.append(Message(properties={"TAGS": "abc"}, flag=1))
    changed = {"its first byte": 19, "its last byte": end - 1}[at]
    whole = (log.directory / f"{0:020d}").read_bytes()[changed : changed + 1]
    log.put(changed, b"X")
    look_early(log.directory)
    log.put(changed, whole)
    log.clock.now += GUARD_MS
    assert log.end().held_back == end
    assert log.end(GUARD_MS).offset == end


def test_a_slow_read(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard runs from the end of the read: bytes may come while it runs."""
    real, end = os.pread, log.append()

    def pread(descriptor: int, size: int, at: int) -> bytes:
        log.clock.now += GUARD_MS / 1000
        return real(descriptor, size, at)

    with monkeypatch.context() as slow:
        slow.setattr(early_look.os, "pread", pread)
        look_early(log.directory)
    assert log.end(GUARD_MS - 1).held_back == end
    assert log.end(1).offset == end


def test_a_record_behind_the_one_that_was_seen(log: LiveLog) -> None:
    """It is held back; the one before it has a successor now."""
    first = log.append()
    look_early(log.directory)
    second = log.append()
    log.clock.now += GUARD_MS
    found = log.end()
    assert (found.offset, found.held_back) == (first, second - first)


def test_a_record_longer_than_the_look(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for as without a look."""
    monkeypatch.setattr(early_look, "_LOOKED_AT_BYTES", 1)
    monkeypatch.setattr(early_look, "_PAGE_BYTES", 16)
    end = log.append()
    look_early(log.directory)
    log.clock.now += GUARD_MS
    assert log.end().held_back == end


def test_pages_of_zeros_in_front_of_the_end(log: LiveLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may mislead the look, and then the record is waited for."""
    monkeypatch.setattr(early_look, "_PAGE_BYTES", 16)
    log.append(Message(body=bytes(SIZE // 2)))
    end = log.append()
    look_early(log.directory)
    log.clock.now += GUARD_MS
    log.end()
    assert log.end(GUARD_MS).offset == end


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    """No directory, no segment, a file in its place, an empty one: the command will say what it finds."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / f"{0:020d}").touch()
    for name in ("none", "file", "empty", "one"):
        look_early(tmp_path / name)
        assert not early_look._looks


def test_it_comes_before_the_modules() -> None:
    """The early look loads none of the modules that take time."""
    code = f"import sys, reput.streaming.cli.app; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_command_looks_at_the_log_of_its_store(log: LiveLog) -> None:
    """Every command with --store does, whatever comes of it."""
    log.append()
    store = log.directory.parent
    log.directory.rename(store / "commitlog")
    CliRunner().invoke(app, ["verify", "--store", str(store), "-o", "noSuchOption=1"])
    assert [look.path for look in early_look._looks] == [str(store / "commitlog" / f"{0:020d}")]
