"""The prompt of `reput sql`, at a real pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

ENDS_WITHIN_S = 60
READY = b"messages>"
WHERE_IS_THE_CURSOR = b"\x1b[6n"


class Terminal:
    """`reput sql` at a terminal of 80 columns."""

    def __init__(self, table: Path, state: Path) -> None:
        self._unread = b""
        self.process, self._descriptor = pty.fork()
        if self.process == 0:
            os.environ.update(TERM="xterm", COLUMNS="80", LINES="40", XDG_STATE_HOME=str(state))
            reput = str(Path(sys.executable).parent / "reput")
            os.execv(reput, [reput, "sql", "--table", str(table)])

    def type(self, text: str, until: bytes) -> bytes:
        """Return the output up to and including `until`; the output after it is left for the next call."""
        os.write(self._descriptor, text.encode())
        deadline = time.monotonic() + ENDS_WITHIN_S
        while until not in self._unread:
            assert time.monotonic() < deadline, self._unread
            if select.select([self._descriptor], [], [], 0.1)[0]:
                part = os.read(self._descriptor, 65536)
                before = self._unread[1 - len(WHERE_IS_THE_CURSOR) :]
                for _ in range((before + part).count(WHERE_IS_THE_CURSOR)):
                    os.write(self._descriptor, b"\x1b[1;1R")
                self._unread += part
        shown, found, self._unread = self._unread.partition(until)
        return shown + found

    def wait_for_statement(self) -> None:
        """Wait until Ctrl-C is a signal again, as it is while a statement runs; while one is typed, it is a key."""
        deadline = time.monotonic() + ENDS_WITHIN_S
        while not termios.tcgetattr(self._descriptor)[3] & termios.ISIG:
            assert time.monotonic() < deadline
            time.sleep(0.01)

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
    terminal.wait_for_statement()
    time.sleep(1)
    terminal.type("\x03", b"given up")
    terminal.type("", READY)
    terminal.type("SELECT 'still' || ' here';\r", b"still here")
    terminal.type("", READY)
    assert terminal.end() == 0
    history = tmp_path / "state" / "reput" / "sql_history"
    assert "still" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
