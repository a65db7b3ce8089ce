"""The prompt of `reput sql`, at a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

ENDS_WITHIN_S = 60
READY = b"messages>"


class Terminal:
    """`reput sql` at a terminal of 80 columns."""

    def __init__(self, table: Path, state: Path) -> None:
        self.process, self._descriptor = pty.fork()
        if self.process == 0:
            os.environ.update(TERM="xterm", COLUMNS="80", LINES="40", XDG_STATE_HOME=str(state))
            reput = str(Path(sys.executable).parent / "reput")
            os.execv(reput, [reput, "sql", "--table", str(table)])

    def type(self, text: str, until: bytes) -> bytes:
        """What is shown from then on up to `until`."""
        os.write(self._descriptor, text.encode())
        shown, deadline = b"", time.monotonic() + ENDS_WITHIN_S
        while until not in shown:
            assert time.monotonic() < deadline, shown
            if select.select([self._descriptor], [], [], 0.1)[0]:
                part = os.read(self._descriptor, 65536)
                if b"\x1b[6n" in part:  # where is the cursor?
                    os.write(self._descriptor, b"\x1b[1;1R")
                shown += part
        return shown

    def end(self) -> int:
        """The exit code after Ctrl-D."""
        os.write(self._descriptor, b"\x04")
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        os.close(self._descriptor)
        return code


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    table = pa.table({"topic": ["orders", "o'\x1b[31m", "other"], "queue_id": [1, 2, 3]})
    deltalake.write_deltalake(str(tmp_path / "table"), table)
    terminal = Terminal(tmp_path / "table", tmp_path / "state")
    yield terminal
    try:
        os.kill(terminal.process, signal.SIGKILL)
        os.waitpid(terminal.process, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_a_session(terminal: Terminal, tmp_path: Path) -> None:
    """Statements of several lines, commands, completion, what is wrong, what is given up, and the end."""
    terminal.type("", READY)
    assert b"3 " in terminal.type("SELECT count(*)\rFROM messages;\r", b"1 row")
    terminal.type("", READY)
    assert rb"\x1b[31m" in terminal.type("SELECT max(topic), min(topic) FROM messages;\r", b"1 row")
    terminal.type("", READY)
    assert b"queue_id" in terminal.type("\\d\r", b"2 rows")
    terminal.type("", READY)
    terminal.type("\\timing\r", b"Timing is on.")
    terminal.type("", READY)
    terminal.type("SELECT queu\t", b"e_id")
    terminal.type(" FROM messages WHERE topic = 'orde\t", b"rs'")
    terminal.type(";\r", b"1 row")
    terminal.type("", b" s\r\n")
    terminal.type("", READY)
    terminal.type("DELETE FROM messages;\r", b"reput: refused: only queries")
    terminal.type("", READY)
    terminal.type("SELECT count(*) FROM range(100000000000) WHERE range % 7 = 3;\r", b"\x1b[?2004l")
    time.sleep(1)
    terminal.type("\x03", b"given up")
    terminal.type("", READY)
    terminal.type("SELECT 'still' || ' here';\r", b"still here")
    terminal.type("", READY)
    assert terminal.end() == 0
    history = tmp_path / "state" / "reput" / "sql_history"
    assert "still" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
