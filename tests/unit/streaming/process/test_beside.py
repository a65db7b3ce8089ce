"""Work beside the main thread."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from reput.streaming.process.interruption import beside_the_main_thread


def test_at_the_same_time() -> None:
    """Each waits for the other; no thread is left, and the first one's result comes back."""
    first, second = threading.Event(), threading.Event()
    before = set(threading.enumerate())

    def action() -> str:
        first.set()
        assert second.wait(60)
        return threading.current_thread().name

    def other() -> None:
        assert first.wait(60)
        second.set()

    assert beside_the_main_thread(action, other) != threading.main_thread().name
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_is_raised_here(which: int) -> None:
    def fail() -> None:
        raise LookupError

    actions = [lambda: None, lambda: None]
    actions[which] = fail
    with pytest.raises(LookupError):
        beside_the_main_thread(*actions)


def test_a_signal_interrupts_the_wait_alone() -> None:
    program = (
        "from threading import Event\n"
        "from reput.streaming.process import interruption\n"
        "from reput.streaming.process.interruption import beside_the_main_thread\n"
        "stopped, ended = Event(), Event()\n"
        "def work():\n    print('works', flush=True)\n    stopped.wait()\n    print('has worked', flush=True)\n"
        "    ended.set()\n"
        "interruption.listen()\n"
        "try:\n    beside_the_main_thread(work)\n"
        "except interruption.InterruptedBySignal:\n    print('stopped', flush=True)\n"
        "    stopped.set()\n    ended.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[0] == "stopped\nhas worked\n"
