"""The sinks of one output."""

from __future__ import annotations

from pathlib import Path

from support.outputs import config_of
from support.owned_files import share_no_files

from reput.sinks.files.durable_file import DurableFiles
from reput.streaming.effects.effects import writers_of
from reput.streaming.output.logic_sinks import LogicSinks


def test_writers_that_write_side_by_side_share_no_files(tmp_path: Path) -> None:
    """Each syncs only its own; files that one thread syncs and another writes could be lost."""
    files = DurableFiles(tmp_path / "out")
    logic = LogicSinks.open(config_of(tmp_path), files)
    writers = writers_of(logic)
    assert len(writers) == 2
    assert share_no_files(*writers)
    assert not share_no_files(writers[0], files)
