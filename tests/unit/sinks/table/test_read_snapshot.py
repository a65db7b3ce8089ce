"""One version of a table, as its log has it: by paths that deltalake cannot read, and by times."""

from __future__ import annotations

import json
import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from reput.sinks.table.log import read_snapshot, write_checkpoint
from reput.source.errors import OptionError, OutputError


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "t"
    deltalake.write_deltalake(str(path), pa.table({"number": [1, 2]}))
    return path


@pytest.mark.parametrize("name", ["50%", "50%x", "%", "%4", "a b#?ä", "%%"])
def test_a_path_that_is_read(table: Path, tmp_path: Path, name: str) -> None:
    """With a percent sign that begins no character of a URL."""
    shutil.copytree(table, tmp_path / name)
    assert len(list(read_snapshot(tmp_path / name).files())) == 1


@pytest.mark.parametrize("name", ["a%41", "x%20y", "%e4"])
def test_a_path_that_is_refused(table: Path, tmp_path: Path, name: str) -> None:
    """Deltalake looks elsewhere, so the error says what in the path is in its way."""
    shutil.copytree(table, tmp_path / name)
    with pytest.raises(OutputError, match=r"cannot be read: .*deltalake takes %\w\w in a path for another character"):
        write_checkpoint(tmp_path / name)


@pytest.mark.parametrize("is_copy", [False, True])
def test_times(tmp_path: Path, *, is_copy: bool) -> None:
    """The version of a time is the last that was made by then; in a copy, too, whose files are all of one time."""
    for number in range(4):
        deltalake.write_deltalake(str(tmp_path / "t"), pa.table({"number": [number]}), mode="append")
    made = []
    for path in sorted((tmp_path / "t" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        made.append(datetime(2020, 1, 1, len(made), tzinfo=timezone.utc))
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int(made[-1].timestamp() * 1000)
        path.write_text("\n".join(map(json.dumps, actions)))
        at = made[0].timestamp() if is_copy else made[-1].timestamp()
        os.utime(path, (at, at))
    ms = timedelta(milliseconds=1)
    for version, time in enumerate(made):
        for at in (time, time + ms, time + timedelta(hours=1) - ms):
            assert read_snapshot(tmp_path / "t", at).version == version
    assert read_snapshot(tmp_path / "t", made[3] + timedelta(days=9)).version == 3
    with pytest.raises(OptionError, match=r"had no version at .*: the first that it has is 0, of 2020-01-01T00:00:00"):
        read_snapshot(tmp_path / "t", made[0] - ms)


def test_a_time_that_no_calendar_has(table: Path, tmp_path: Path) -> None:
    """Other writers may write any number into a commit: it is a time after all that are asked for."""
    shutil.copytree(table, tmp_path / "t")
    (commit,) = (tmp_path / "t" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = 10**18
    commit.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(OptionError, match=r"had no version at 2026-01-31T12:00:00\.000Z, or .* it has is 0$"):
        read_snapshot(tmp_path / "t", datetime(2026, 1, 31, 12, tzinfo=timezone.utc))
