"""Tables that deltalake can read and cannot read, by their paths."""

from __future__ import annotations

import shutil
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from reput.sinks.table.file_list import FileList
from reput.source.errors import OutputError


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("table") / "t"
    deltalake.write_deltalake(str(path), pa.table({"number": [1, 2]}))
    return path


@pytest.mark.parametrize("name", ["50%", "50%x", "%", "%4", "a b#?ä", "%%"])
def test_a_path_that_is_read(table: Path, tmp_path: Path, name: str) -> None:
    """With a percent sign that begins no character of a URL."""
    shutil.copytree(table, tmp_path / name)
    assert FileList(tmp_path / name).files().num_rows == 1


@pytest.mark.parametrize("name", ["a%41", "x%20y", "%e4"])
def test_a_path_that_is_refused(table: Path, tmp_path: Path, name: str) -> None:
    """Deltalake looks elsewhere, so the error says what in the path is in its way."""
    shutil.copytree(table, tmp_path / name)
    with pytest.raises(OutputError, match=r"cannot be read: .*deltalake takes %\w\w in a path for another character"):
        FileList(tmp_path / name)
