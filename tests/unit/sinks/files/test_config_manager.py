"""Files below ``config/`` as a starting broker reads them (``ConfigManager#load``)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from reput.sinks.files import config_manager
from reput.sinks.files.config_manager import backup_of, copy_rocksdb, load_config_file, read_rocksdb
from reput.source.errors import StoreError

OLD, NEW = '{"table":"old"}', '{"table":"new"}'


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_manager, "_WRITTEN_AFTER_S", 0.0)


def load(path: Path) -> Any:
    return load_config_file(path, lambda value: value["table"], "a table", advice="restore it")


@pytest.mark.parametrize(
    ("text", "backup", "expected"),
    [
        (NEW, None, "new"),
        (NEW, OLD, "new"),
        (NEW, "{", "new"),
        (None, OLD, "old"),
        ("", OLD, "old"),
        (NEW[:-2], OLD, "old"),
        ("  ", OLD, "old"),
        ("[]", OLD, "old"),
        ("{}", OLD, "old"),
        ("[" * 100_000, OLD, "old"),
        ("\0" * 15, OLD, "old"),
        (NEW + "\0\0", OLD, "new"),
        ("\ufeff" + NEW, OLD, "new"),
        ('{"table":{0:1,"a\\"1":2}}', None, {"0": 1, 'a"1': 2}),
        ("null", OLD, None),
        (None, None, None),
        (None, "", None),
        ("", None, None),
    ],
    ids=range(18),
)
def test_which_file_counts(text: str | None, backup: str | None, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    for file, content in ((path, text), (backup_of(path), backup)):
        if content is not None:
            file.write_text(content, encoding="utf-8")
    assert load(path) == expected


@pytest.mark.parametrize(("text", "backup"), [("{", None), ("{", ""), ("{", "{"), (None, "{")])
def test_damage_without_a_way_out_is_told(text: str | None, backup: str | None, tmp_path: Path) -> None:
    """A broker starts without what the file held where there is no ``.bak``, and not at all where that is damaged."""
    path = tmp_path / "topics.json"
    for file, content in ((path, text), (backup_of(path), backup)):
        if content is not None:
            file.write_text(content, encoding="utf-8")
    with pytest.raises(StoreError, match=r"topics\.json(\.bak)? does not hold a table .*; restore it"):
        load(path)


def test_a_directory_gives_way_too(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.mkdir()
    backup_of(path).write_text(OLD)
    assert load(path) == "old"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_does_not_give_way(tmp_path: Path) -> None:
    """The broker, another user, reads it."""
    path = tmp_path / "topics.json"
    path.write_text(NEW)
    path.chmod(0)
    backup_of(path).write_text(OLD)
    with pytest.raises(StoreError, match="Permission denied"):
        load(path)


def test_a_broker_that_saves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has moved the file to its ``.bak`` and is about to write it again: what it writes counts."""
    path = tmp_path / "topics.json"
    backup_of(path).write_text(OLD)
    path.write_text(NEW[:5])
    monkeypatch.setattr(config_manager.time, "sleep", lambda _: path.write_text(NEW))
    assert load(path) == "new"


def test_a_database_is_copied_while_it_is_written(tmp_path: Path) -> None:
    """Flushed and compacted all the time: a copy can be opened, and has all that was written before it was begun."""
    database = Rdict(str(tmp_path / "database"), Options(raw_mode=True))
    written, is_over = 0, threading.Event()

    def write() -> None:
        nonlocal written
        while not is_over.is_set():
            database[b"%08d" % written] = b"x" * 50
            written += 1
            time.sleep(0.0005)
            if written % 150 == 0:
                database.flush()
            if written % 600 == 0:
                database.compact_range(None, None)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while written < 1500:
            before = written
            copy = tmp_path / f"copy-{before}"
            copy.mkdir(exist_ok=True)
            for name, content in copy_rocksdb(tmp_path / "database").items():
                (copy / name).write_bytes(content)
            found = read_rocksdb(copy, b"")
            assert len(found) >= before
            assert all(b"%08d" % each in found for each in range(before))
    finally:
        is_over.set()
        writer.join()
        database.close()
    assert len(list(tmp_path.glob("copy-*"))) > 3
