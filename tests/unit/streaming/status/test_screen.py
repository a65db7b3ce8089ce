"""The live screen: what is on it at each width, that no line is wider, and that a terminal is left as it was."""

from __future__ import annotations

import io
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from rich.console import Console
from support.live_log import Clock
from support.seen_log import SeenLog

from reput.sinks.anomalies import AnomalyCounts
from reput.streaming.status import progress
from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.progress import ProgressReporter, Screen, screen_of, screen_of_several
from reput.streaming.status.run_state import RunState

HEADS = ["query", "msg/s", "behind", "oldest", "messages", "findings", "restarts", "end offset"]


def console_of(width: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=24, color_system=None)


def shown(state: RunState, width: int) -> list[str]:
    console = console_of(width)
    with console.capture() as capture:
        console.print(screen_of(state, console))
    return capture.get().splitlines()


def busy_state(clock: Clock) -> RunState:
    """Two queries behind a log of terabytes, one of which has met much."""
    state = RunState("broker-a", clock=clock)
    end = 19_998_765_432_100
    seen = SeenLog(LogEnd(21_000_000_000_000), {end: 3_000_000_000, 10_000: 3_999_998_750})
    state.on_running("logic", 0)
    state.on_running("table", 0)
    for number in range(2):
        found = AnomalyCounts(gap=1_234) if number else AnomalyCounts()
        state.on_batch(BatchReport("logic", 0, end, 1_562_901_233, 9_000.0, found, Counter({"BAD_MAGIC": number})))
        state.on_batch(BatchReport("table", 0, 10_000, 3, 4.0))
        state.look(seen)
        clock.now += 20.0
        state.look(seen)
    state.query("table").restarts = 7
    return state


def test_state_and_reason_then_a_line_a_query() -> None:
    """80 columns, with a log of terabytes; no figure is cut."""
    clock = Clock()
    clock.now = 4_000_000.0
    lines = shown(busy_state(clock), 80)
    assert lines[0].split()[0] in {"running", "lagging", "degraded"}
    assert [head for head in HEADS if head in lines[1] + lines[2]] == HEADS[:-1]
    logic = next(line for line in lines if "logic" in line and "3,125,802,466" in line)
    assert logic.split()[0] == "logic"
    for figure in ("1.0 TB", "11.6 d", "1,235"):
        assert figure in logic
    table = next(line for line in lines if line.split()[:1] == ["table"])
    assert table.split()[-3:] == ["6", "0", "7"]
    assert "broker-a" in lines[-1]
    assert "Ctrl-C" in lines[-1]


@pytest.mark.parametrize("width", [20, 30, 45, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Long words are cut with an ellipsis; a narrow terminal has fewer columns, a wide one all of them."""
    clock = Clock()
    clock.now = 4_000_000.0
    state = busy_state(clock)
    state.on_finding("logic", "what was found " * 20)
    lines = shown(state, width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 8  # none is wrapped
    if width < 80:
        assert lines[0].endswith("…")
    if width >= 45:
        text = "\n".join(lines)
        assert [head for head in HEADS if head in text] == HEADS[
            : 4 if width < 50 else 5 if width < 64 else 7 if width < 100 else 8
        ]


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    """Not of the last batch, which takes a moment of the time between two."""
    clock = Clock()
    state = RunState(clock=clock)
    state.on_running("table", 0)
    seen = SeenLog(LogEnd(10_000), {})
    for second in range(100):
        clock.now += 1.0
        if second % 10 == 0:
            state.on_batch(BatchReport("table", 0, 10, 70, 0.001))
        state.look(seen)
    rate = next(line for line in shown(state, 80) if "table" in line and "700" in line).split()[1]
    assert 5 <= int(rate) <= 9


def test_before_the_queries_run_it_says_what_is_done_and_for_how_long() -> None:
    """One line, and no empty table."""
    clock = Clock()
    state = RunState("b", clock=clock)
    state.on_stage("starts Spark")
    clock.now += 3.0
    assert shown(state, 80) == ["starting  starts Spark, 3.0 s"]


def test_a_dumb_terminal_gets_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot move its cursor, as Emacs's shell."""
    monkeypatch.setenv("TERM", "dumb")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    with caplog.at_level(logging.INFO, "reput"), ProgressReporter(console) as reporter:
        reporter.starting("starts Spark")
        reporter.on_batch(BatchReport("logic", 0, 10, 1, 1.0))
    assert (len(caplog.messages), out.getvalue()) == (1, "")


def test_a_terminal_that_gets_narrower_is_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has wrapped the earlier lines, so their begins are unknown; a wider one needs nothing."""
    monkeypatch.setattr(progress, "_REFRESHED_AFTER_S", 600.0)
    console = console_of(100)
    state = RunState("b", clock=Clock())
    live = Screen(console, state)
    live.start()
    out = console.file
    assert isinstance(out, io.StringIO)
    for width, is_cleared in ((100, False), (120, False), (60, True), (60, False)):
        out.truncate(0)
        console.width = width
        live.refresh()
        assert ("\x1b[2J" in out.getvalue()) == is_cleared, width
        assert "starting" in out.getvalue()
    out.truncate(0)
    live.stop()
    assert "\x1b[2K" in out.getvalue()
    out.truncate(0)
    live.refresh()  # a thread that comes late
    assert out.getvalue() == ""


class Terminal:
    """A command on a terminal of its own, and all that it writes there."""

    def __init__(self, *command: str) -> None:
        self.primary, secondary = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from reput.streaming.cli.main import run; run()", *command],
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
        )
        os.close(secondary)
        self.text = ""

    def read(self, seconds: float) -> bool:
        """Read what comes next; False once it has ended."""
        if select.select([self.primary], [], [], seconds)[0]:
            try:
                self.text += os.read(self.primary, 65_536).decode()
            except OSError:
                return False
        return True


def test_the_first_line_comes_before_the_modules(tmp_path: object) -> None:
    """A terminal is not empty while Spark's modules are loaded, and the line is gone before the error."""
    terminal = Terminal("tail", "--store", f"{tmp_path}/missing", "--output", f"{tmp_path}/output")
    assert terminal.read(30.0)
    assert terminal.text.startswith("starting  loads Spark's modules")
    while terminal.read(30.0):
        pass
    assert terminal.process.wait(30) == 1
    assert "modules\r\x1b[Kreput: " in terminal.text
    os.close(terminal.primary)


def test_a_signal_while_the_modules_are_loaded_leaves_an_empty_line(tmp_path: object) -> None:
    """Ctrl-C at once."""
    terminal = Terminal("tail", "--store", f"{tmp_path}/missing", "--output", f"{tmp_path}/output")
    assert terminal.read(30.0)
    terminal.process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 30
    while terminal.read(1.0) and time.monotonic() < deadline:
        pass
    assert terminal.process.wait(30) in {0, 1}  # 1: the modules were loaded, and the store is missing
    assert "modules\r\x1b[K" in terminal.text
    os.close(terminal.primary)


def test_the_first_line_needs_no_heavy_module() -> None:
    """The command line loads its modules for a command in a tenth of a second."""
    code = (
        "import sys; from reput.streaming.cli.app import application; application('tail')\n"
        "import reput.streaming.process.terminal\n"
        "print(sorted({'pyspark', 'numba', 'numpy', 'pyarrow', 'rich.console'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def several_states(count: int, clock: Clock) -> list[RunState]:
    """Brokers of which the third from the end waits for room, and the last has ended."""
    states = [RunState(f"broker-{number}", clock=clock) for number in range(count)]
    for state in states:
        for query in ("logic", "table"):
            state.on_running(query, 0)
            state.on_batch(BatchReport(query, 0, 1_000, 1_234_567, 4.0))
        state.look(SeenLog(LogEnd(1_700), {1_000: round(1_000 * clock.now) - 1_700}))
    states[-3].on_waiting("table", "no room", 5.0, 2)
    states[-1].on_end("the record at 17 is damaged", 1)
    return states


def shown_of(states: list[RunState], width: int, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(screen_of_several(states, console))
    return capture.get().splitlines()


def test_a_line_a_broker_the_worst_first() -> None:
    """Twenty brokers on 80 by 24: how many are how, why the worst is so, and a line each."""
    lines = shown_of(several_states(20, Clock()), 80)
    assert lines[0].startswith("1 stopped, 1 waiting, 18 running  broker-19: the record at 17 is damaged")
    assert lines[1].split() == ["broker", "state", "logic", "table", "msg/s", "messages"]
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["broker-19", "stopped"],
        ["broker-17", "waiting"],
        ["broker-0", "running"],
    ]
    assert lines[4].split()[2:6] == ["1.7", "s", "1.7", "s"]
    assert len(lines) == 2 + 20 + 1
    assert lines[-1].startswith("20 brokers, runs for ")


@pytest.mark.parametrize(("width", "height"), [(20, 24), (45, 10), (80, 24), (200, 5), (80, 3)])
def test_several_brokers_fit_into_any_terminal(width: int, height: int) -> None:
    """Those without a line are counted; no line is wider."""
    lines = shown_of(several_states(40, Clock()), width, height)
    assert len(lines) < max(height, 6)
    assert all(len(line.rstrip()) <= width for line in lines)
    told = [line for line in lines[2:-2] if line.startswith("bro")]
    assert f"and {40 - len(told)} more"[:width] in lines[-2]
