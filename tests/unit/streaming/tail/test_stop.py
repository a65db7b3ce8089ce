"""A tail hears of a stop wherever the signal's handler breaks in on the thread that waits for one."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from support.outputs import Output
from support.tail_runs import tail_of

from reput.streaming.tail.tail import Tail

_STANDS_S = 10.0


def stops_before(line: int, tail: Tail) -> int:
    """Let `tail` wait for a stop, and ask for one before such a line of what Python runs; how many lines it ran."""
    seen = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == line:
                tail.stop()
        return trace

    def wait() -> None:
        sys.settrace(trace)
        try:
            tail._stop.wait(0.001)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(_STANDS_S)
    assert not thread.is_alive(), f"a stop before line {line} waits for the thread that it stopped"
    return seen


def test_a_stop_breaks_in_on_the_wait_for_one_anywhere(tmp_path: Path) -> None:
    """A lock that the wait holds just then must not be needed."""
    output = Output.make(tmp_path, Random(3))
    line = 1
    while True:
        tail = tail_of(output.config, output.out)
        ran = stops_before(line, tail)
        if ran < line:
            break
        assert tail._stop.is_set()
        line += 1
    assert line > 1
