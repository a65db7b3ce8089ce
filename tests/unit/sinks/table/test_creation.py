"""Who may create a table: one process at a time, and nothing is left of one that is killed meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from reput.sinks.table import delta_table
from reput.sinks.table.delta_table import is_table, is_vacant, only_creator
from reput.source.errors import OutputError, TransientError

#: Makes tables as Delta does, in two steps with a moment between them; prints the number of each that it made.
CREATOR = """
import sys, time
from pathlib import Path
from reput.sinks.table.delta_table import is_vacant, only_creator
root = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    path = root / str(number)
    with only_creator(path):
        if is_vacant(path):
            (path / "_delta_log").mkdir(parents=True)
            (path / "_delta_log" / ".half").touch()
            time.sleep(0.002)
            (path / "_delta_log" / ".half").rename(path / "_delta_log" / f"{0:020d}.json")
            print(number, flush=True)
"""
HOLDER = """
import sys
from pathlib import Path
from reput.sinks.table.delta_table import only_creator
with only_creator(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def started(stack: ExitStack, code: str, *words: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *words]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(process.communicate)
    assert process.stdout is not None
    assert process.stdout.readline() in {"ready\n", "held\n"}
    return process


def test_each_table_is_made_once(tmp_path: Path) -> None:
    """Three begin at the same moment; none sees the half of a table that another is making."""
    count = 50
    with ExitStack() as stack:
        creators = [started(stack, CREATOR, str(tmp_path / "tables"), str(count)) for _ in range(3)]
        for each in creators:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        said = [each.communicate()[0].split() for each in creators]
    assert [each.returncode for each in creators] == [0, 0, 0]
    assert sorted(int(number) for numbers in said for number in numbers) == list(range(count))


def test_a_killed_creator_stands_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait while it lives, and the error at last is one that may pass."""
    monkeypatch.setattr(delta_table, "_WAIT_S", 0.2)
    path = tmp_path / "above" / "table"
    with ExitStack() as stack:
        holder = started(stack, HOLDER, str(path))
        with (
            pytest.raises(TransientError, match=r"another process has had .*above locked") as raised,
            only_creator(path),
        ):
            pass
        assert raised.value.file == str(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with only_creator(path):
            assert is_vacant(path)
    assert list((tmp_path / "above").iterdir()) == []


def test_what_is_a_table(tmp_path: Path) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    assert not is_table(tmp_path / "table")
    (tmp_path / "table" / "_delta_log" / f"{0:020d}.json").touch()
    assert is_table(tmp_path / "table")
    assert not is_vacant(tmp_path / "table")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot create a Delta table"), only_creator(tmp_path / "file" / "table"):
        pass
