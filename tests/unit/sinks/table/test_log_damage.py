"""Logs of tables that are damaged: one line says which file, what was found, what to do; and that helps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from support.command_line import run_reput

from reput.sinks.table.log import log_damage, read_snapshot
from reput.sinks.table.storage import table_storage
from reput.source.errors import OutputError

CHECKPOINT, HINT = f"{3:020d}.checkpoint.parquet", "_last_checkpoint"


def commit(version: int) -> str:
    return f"{version:020d}.json"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 0 to 5, with a checkpoint of version 3."""
    path = tmp_path_factory.mktemp("table") / "t"
    for number in range(6):
        deltalake.write_deltalake(str(path), pa.table({"number": [number]}), mode="append")
        if number == 3:
            deltalake.DeltaTable(str(path)).create_checkpoint()
    return path


@pytest.fixture
def log(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "t")
    return tmp_path / "t" / "_delta_log"


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def repair(log: Path) -> str:
    result = run_reput(["table", "repair", "--table", str(log.parent)])
    return result.stdout


def test_a_sound_table(log: Path) -> None:
    before = {path: path.read_bytes() for path in log.iterdir()}
    assert log_damage(table_storage(log.parent)) is None
    assert repair(log) == "nothing to repair: the log can be read, up to version 5\n"
    assert {path: path.read_bytes() for path in log.iterdir()} == before


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (HINT, lambda log: (log / CHECKPOINT).unlink()),
        (HINT, lambda log: (log / HINT).write_text('{"version": 99, "size": 3}')),
        (CHECKPOINT, lambda log: cut(log / CHECKPOINT, 100)),
        (CHECKPOINT, lambda log: cut(log / CHECKPOINT, 0)),
        (CHECKPOINT, lambda log: (log / CHECKPOINT).write_bytes(bytes(5000))),
        (CHECKPOINT, lambda log: ((log / HINT).unlink(), cut(log / CHECKPOINT, 100))),
    ],
)
def test_a_checkpoint(file: str, damage: Callable[[Path], object], log: Path) -> None:
    """The error names it and a command, after which all rows are read, and the table has a checkpoint."""
    damage(log)
    with pytest.raises(OutputError, match=rf"{file}: .*no commit is missing: 'reput table repair --table ") as refused:
        read_snapshot(log.parent)
    assert "\n" not in str(refused.value)
    there = {path.name: path.read_bytes() for path in log.iterdir()}
    assert "wrote a checkpoint of version 5" in repair(log)
    assert len(list(read_snapshot(log.parent).files())) == 6
    assert json.loads((log / HINT).read_text())["version"] == 5
    assert {path.name.removeprefix("_damaged-") for path in log.iterdir()} >= set(there)
    assert (log / f"_damaged-{file}").read_bytes() == there[file]
    assert "nothing to repair" in repair(log)


@pytest.mark.parametrize(
    ("file", "found", "damage"),
    [
        (commit(5), "torn or damaged: line 1 of its 60 bytes", lambda log: cut(log / commit(5), 60)),
        (commit(5), "line 1 of its 3 bytes", lambda log: (log / commit(5)).write_bytes(b"\xff\x00\xfe")),
        (commit(5), "line 1 of its 2 bytes", lambda log: (log / commit(5)).write_text("[]")),
        (commit(4), "torn or damaged: line 1 of its 60 bytes", lambda log: cut(log / commit(4), 60)),
        (commit(4), "this commit is missing; the next one is version 5", lambda log: (log / commit(4)).unlink()),
        (CHECKPOINT, "cannot be read", lambda log: (cut(log / CHECKPOINT, 50), (log / commit(1)).unlink())),
    ],
)
def test_a_commit(file: str, found: str, damage: Callable[[Path], object], log: Path) -> None:
    """It is named; the command that makes checkpoints changes nothing."""
    damage(log)
    before = {path.name for path in log.iterdir()}
    with pytest.raises(OutputError, match=rf"{file}: .*{found}.*put it back from a backup") as refused:
        read_snapshot(log.parent)
    assert "\n" not in str(refused.value)
    result = run_reput(["table", "repair", "--table", str(log.parent)], code=1)
    assert file in result.stderr
    assert {path.name for path in log.iterdir()} == before


def test_the_newest_commit_is_moved_away(log: Path) -> None:
    """As the error says: the table is the version before."""
    cut(log / commit(5), 60)
    with pytest.raises(OutputError, match="move it out of the directory: the table is version 4 then"):
        read_snapshot(log.parent)
    (log / commit(5)).rename(log.parent.parent / "away")
    assert read_snapshot(log.parent).version == 4
