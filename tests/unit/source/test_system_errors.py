"""Whose file it is, and which directory bars the way to it: for a user who is not root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.logs import varied_messages
from support.record_writer import write_log
from support.sink_runner import MEMORY

from reput.source.errors import ReputError, who_refuses
from reput.streaming.config.pipeline import load_config
from reput.streaming.process.failures import failure_of

NOBODY = 65534


@pytest.fixture
def store() -> Iterator[Path]:
    """A store that any user may read; pytest's own directories do not let other users in."""
    with TemporaryDirectory(dir=MEMORY) as name:
        root = Path(name)
        root.chmod(0o755)
        write_log(root / "commitlog", varied_messages(3), 1 << 16)
        for folder in ("consumequeue/T/0", "config", "index", "rocksdbstore"):
            (root / folder).mkdir(parents=True)
        yield root
        for path in root.rglob("*"):
            path.chmod(0o755)


@contextmanager
def another_user() -> Iterator[None]:
    """Root may enter everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def failure(store: Path) -> str:
    with another_user():
        with pytest.raises((ReputError, OSError)) as raised:
            load_config(store)
        return str(failure_of(raised.value))


def test_a_store_that_may_be_read(store: Path) -> None:
    with another_user():
        load_config(store)
        assert who_refuses(str(store / "consumequeue" / "CURRENT")) is None


@pytest.mark.parametrize(("barred", "verb"), [(".", "entered"), ("commitlog", "read"), ("consumequeue", "entered")])
def test_the_directory_that_bars_the_way_is_named(barred: str, verb: str, store: Path) -> None:
    """Not a file in it, which may not exist: the system says of each that permission is denied."""
    way = store / barred
    way.chmod(0)
    found = failure(store)
    way.chmod(0o755)
    assert f"the directory {way} cannot be {verb} by user " in found
    assert "with the mode d---------; run reput as " in found
    assert f"(setfacl -R -m u:{'nobody' if os.geteuid() == 0 else ''}" in found
    assert "rocksdbstore" not in found
    assert "CURRENT" not in found


def test_a_file_that_may_not_be_read(store: Path) -> None:
    segment = next((store / "commitlog").iterdir())
    segment.chmod(0)
    with another_user():
        found = who_refuses(str(segment))
    assert found is not None
    assert found[0].startswith(f"the file {segment} cannot be read by user ")
