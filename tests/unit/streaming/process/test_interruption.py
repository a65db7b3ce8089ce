"""A signal stops a command wherever it meets it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: The stop comes while Python finalizes an object, where exceptions are thrown away; the program would then run on.
_FINALIZES = """
import sys, time
from reput.streaming.process import interruption

class Slow:
    def __del__(self):
        print("finalizes", flush=True)
        time.sleep(600)

interruption.listen()
try:
    {before}
    Slow()
    {behind}
except {exception} as stopped:
    print(repr(stopped), flush=True)
"""


def told(program: str, number: signal.Signals) -> tuple[str, str]:
    """Return the output of a program after its first line, at which it gets the signal."""
    with subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "finalizes\n"
        process.send_signal(number)
        said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said


@pytest.mark.parametrize(
    ("number", "exception", "before"),
    [
        (signal.SIGTERM, "interruption.InterruptedBySignal", "pass"),
        (signal.SIGINT, "interruption.InterruptedBySignal", "pass"),
        (signal.SIGINT, "KeyboardInterrupt", "prompt = interruption.keyboard_interrupts(); prompt.__enter__()"),
    ],
)
def test_in_a_finalizer(number: signal.Signals, exception: str, before: str) -> None:
    """It is acted on after it, and nothing is printed about it."""
    said, errors = told(_FINALIZES.format(exception=exception, before=before, behind="time.sleep(600)"), number)
    assert said.startswith(exception.rpartition(".")[2])
    assert errors == ""


def test_it_is_acted_on_once() -> None:
    """A command that has stopped for another reason meanwhile is not disturbed."""
    behind = "interruption.deferred(print).__enter__()"
    program = _FINALIZES.format(exception="interruption.InterruptedBySignal", before="pass", behind=behind)
    program += "    time.sleep(1)\n    print('cleaned up')\n"
    said, errors = told(program, signal.SIGTERM)
    assert said.splitlines()[1:] == ["cleaned up"]
    assert errors == ""


def test_what_else_is_thrown_away_is_told() -> None:
    program = (
        "from reput.streaming.process import interruption\n"
        "class Failing:\n    def __del__(self):\n        raise ValueError('of a finalizer')\n"
        "interruption.listen()\nFailing()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "ValueError: of a finalizer" in done.stderr
