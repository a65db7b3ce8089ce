"""Files of a later release are refused by every command, in one line, and stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from rich.console import Console
from support.command_line import invoke
from support.outputs import config_of, messages_of
from support.rebuild_runner import rebuild
from support.record_writer import write_log

from reput.source.errors import LaterFormatError, OutputError, ReputError
from reput.streaming.output.paths import OutputPaths
from reput.streaming.output.spark_checkpoint import spark_offset
from reput.streaming.status.progress import ProgressReporter
from reput.streaming.tail.tail import Tail

LATER = 99
SETTINGS_OF_COMMANDS = ("-o", "tailGuardMs=0", "-o", "sparkMaster=local[1]")


def as_json(path: Path, **more: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


def made_later(path: Path) -> None:
    as_json(path, version=LATER)


def new_note(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": LATER, "what": "only a later release knows"}) + "\n")


# Each file below an output, and how it becomes one of a later release.
FILES: dict[str, Callable[[Path], None]] = {
    "reput/progress/consumequeue.json": made_later,
    "reput/progress/index.json": made_later,
    "reput/settings.json": made_later,
    "reput/rebuild/plan.json": new_note,
    "reput/rebuild/swap.json": new_note,
    "reput/quarantine.jsonl": new_note,
    "reput/status.json": lambda path: path.write_text(json.dumps({"formatVersion": LATER})),
}
COMMANDS = {
    "verify": ("verify", "--store", "STORE", "--output", "OUT"),
    "recover": ("recover", "--store", "STORE", "--output", "OUT"),
    "expire": ("expire", "--store", "STORE", "--output", "OUT"),
    "rebuild": ("rebuild", "--store", "STORE", "--output", "OUT"),
    "status": ("status", "--output", "OUT"),
    "quarantine": ("quarantine", "list", "--output", "OUT"),
}
PROGRESS = ("reput/progress/consumequeue.json", "reput/progress/index.json")
# The options of each command.
READ_BY = {
    "verify": (*PROGRESS, "reput/settings.json"),
    "recover": (*PROGRESS, "reput/settings.json", "reput/rebuild/swap.json"),
    "expire": (*PROGRESS, "reput/settings.json", "reput/rebuild/swap.json"),
    "rebuild": (*PROGRESS, "reput/settings.json", "reput/rebuild/swap.json", "reput/rebuild/plan.json"),
    "status": ("reput/status.json",),
    "quarantine": ("reput/quarantine.jsonl",),
    "tail": (*PROGRESS, "reput/settings.json", "reput/rebuild/swap.json"),
}
CASES = [(command, file) for command, files in READ_BY.items() for file in files]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_log(tmp_path / "store" / "commitlog", messages_of(Random(1), 20), 2000)
    rebuild(config_of(tmp_path / "store"), tmp_path / "out")
    (tmp_path / "out" / "reput" / "status.json").write_text("{}")
    return tmp_path / "store"


def contents(output: Path) -> dict[str, bytes]:
    """Every file of an output but its lock, which each command takes."""
    files = (path for path in sorted(output.rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path.relative_to(output)): path.read_bytes() for path in files}


def said_by(command: str, store: Path, output: Path) -> tuple[str, ReputError | None]:
    """The lines of a command that fails; a tail's start needs no Spark."""
    if command == "tail":
        with pytest.raises(ReputError) as caught, Tail(config_of(store), OutputPaths(output), quiet_reporter()):
            pass
        return str(caught.value), caught.value
    words = [{"STORE": str(store), "OUT": str(output)}.get(word, word) for word in COMMANDS[command]]
    options = SETTINGS_OF_COMMANDS if "--store" in words else ()
    result = invoke([*words, *options])
    assert result.exit_code == LaterFormatError.exit_code, result.output
    return result.output, None


def quiet_reporter() -> ProgressReporter:
    return ProgressReporter(Console(quiet=True))


@pytest.mark.parametrize(("command", "file"), CASES)
def test_a_later_format_is_refused_and_left_alone(command: str, file: str, store: Path) -> None:
    """One line: the file, the format found, the formats known, what to do; no file has changed."""
    output = store.parent / "out"
    FILES[file](output / file)
    before = contents(output)
    said, error = said_by(command, store, output)
    assert f"{output / file} has format {LATER}, which a later release of reput wrote" in said
    known = 2 if file.endswith("swap.json") else 1  # of a swap with a RocksDB database
    assert f"this one reads formats up to {known}" in said
    assert len(said.strip().splitlines()) == 1
    assert error is None or type(error) is LaterFormatError
    assert contents(output) == before


def test_a_later_offset_in_sparks_checkpoint(tmp_path: Path) -> None:
    """The queries' checkpoint, which Spark also reads, is checked before Spark starts."""
    for name, text in (("commits/0", "v1\n{}"), ("offsets/0", 'v1\n{}\n{"version": 99, "elsewhere": 5}')):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    with pytest.raises(LaterFormatError, match=f"{tmp_path}/offsets/0 has format 99"):
        spark_offset(tmp_path)


@pytest.mark.parametrize("text", ["", "v1\n", "v1\n{}\nnull", 'v1\n{}\n{"physicOffset": 7}', 'v1\n{}\n{"version": 1}'])
def test_an_offset_that_cannot_be_read(text: str, tmp_path: Path) -> None:
    """One line with the file, and what to do."""
    for name in ("commits/0", "offsets/0"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    with pytest.raises(OutputError, match=rf"^{tmp_path}/offsets/0 has no offset of the log .*; remove {tmp_path}:"):
        spark_offset(tmp_path)
