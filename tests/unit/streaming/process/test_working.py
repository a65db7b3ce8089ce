"""The line that says how long a command has been at work."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

CODE = """
import os, sys
from reput.streaming.process.terminal import done, expect, working
before = len(os.listdir("/proc/self/task"))
with working("comparing", every_s=0.05):
    expect(3), done()
    assert len(os.listdir("/proc/self/task")) == before
    sys.stdin.readline()
try: os.waitpid(-1, 0)
except ChildProcessError: os.write(2, b"no child is left")
"""


def on_terminal(code: str, *until: str, **environment: str) -> str:
    """Return the output of the code to standard error, which is a terminal.

    It gets a line of input when it has written each of the texts `until`, one after the other.
    """
    ours, theirs = pty.openpty()
    given = {**os.environ, "TERM": "xterm", **environment}
    awaited, looked_at = [*until], 0
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=theirs, env=given) as process:
        assert process.stdin is not None
        os.close(theirs)
        written = b""
        try:
            while data := os.read(ours, 4096):
                written += data
                while awaited and (at := written.find(awaited[0].encode(), looked_at)) >= 0:
                    looked_at = at + len(awaited.pop(0).encode())
                    process.stdin.write(b"\n")
                    process.stdin.flush()
        except OSError:  # the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0, written
    return written.decode()


def test_a_terminal_shows_how_much_is_done() -> None:
    """Again and again on one line, which is gone at the end, as is the process that writes it."""
    line = "\rcomparing  1 of 3 parts, 0 s\x1b[K"
    shown = on_terminal(CODE, line + line)
    assert shown.endswith("\r\x1b[Kno child is left")


def test_nothing_is_shown_elsewhere() -> None:
    """Not in a pipe, and not on a terminal without a cursor."""
    piped = subprocess.run([sys.executable, "-c", CODE], input="\n", capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("", "no child is left")
    at_once = CODE.replace("sys.stdin.readline()", "time.sleep(0.2)").replace("import os, sys", "import os, sys, time")
    assert on_terminal(at_once, TERM="dumb") == "no child is left"


def test_a_line_of_the_log_takes_its_place() -> None:
    """The line is removed first."""
    code = CODE.replace("sys.stdin.readline()", "sys.stdin.readline(); write_error('found'); sys.stdin.readline()")
    code = f"from reput.streaming.cli.log_lines import write_error\n{code}"
    shown = on_terminal(code, "\rcomparing", "found\r\n\rcomparing")
    assert "\r\x1b[Kfound\r\n\rcomparing" in shown


ENTERED = """
import os, sys
from reput.streaming.process import terminal
def has_cursor():
    os.write(2, b"threads: %d" % len(os.listdir("/proc/self/task")))
    os._exit(0)
terminal.has_cursor = has_cursor
from reput.streaming.cli import main
main.run()
"""


@pytest.mark.parametrize(
    "command",
    [
        "report --table missing --html page.html",
        "table optimize --table missing",
        "table vacuum --table missing",
        "table repair --table missing",
        "table expire --table missing",
        "table forget --table missing --key k",
    ],
)
def test_the_line_comes_before_libraries_with_threads(command: str) -> None:
    """deltalake, which has one, is loaded later: beside other threads no line would be shown."""
    code = f"import sys; sys.argv = ['reput', *{command.split()}]{ENTERED}"
    assert on_terminal(code) == "threads: 1"
