"""SIGINT, SIGTERM and SIGHUP: each asks the command to stop.

A command that makes one result is interrupted where it is, once. A service says what a stop means for it (`deferred`).
Whichever signals follow the first one change nothing, so that they cannot disturb the stop.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_CODE_OF_SIGNAL = 128  # what a shell reports for a command that a signal ended


class InterruptedBySignal(BaseException):
    """The command was asked to stop; no ``except Exception`` takes it for a failure."""


class _State:
    def __init__(self) -> None:
        self.signal: int | None = None
        self.is_interrupted = False
        self.stop: Callable[[], None] | None = None
        self.first_aid: list[Callable[[], None]] = []


_state = _State()


def listen() -> None:
    """Take the signals over, in the main thread; one that was ignored at the start, as under nohup, stays ignored."""
    for number in _SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


def ignore_further() -> None:
    """Let no signal behind the one that was acted on change how the process ends.

    To be called last: while Python ends, it gives each signal its default again, unless it is ignored.
    """
    if _state.signal is not None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def is_interrupted() -> bool:
    """Whether `InterruptedBySignal` was raised: what fails from then on fails because of it."""
    return _state.is_interrupted


def exit_code() -> int:
    """What a command ends with that was interrupted before its result: 130 for SIGINT, 143 for SIGTERM."""
    return _EXIT_CODE_OF_SIGNAL + (_state.signal or 0)


def before_interruption(action: Callable[[], None]) -> None:
    """Have `action` called in the signal's handler, before the command is interrupted."""
    if action not in _state.first_aid:
        _state.first_aid.append(action)


@contextmanager
def deferred(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` when a signal comes, and interrupt nothing; it is called from the handler."""
    if _state.signal is not None:
        raise InterruptedBySignal
    _state.stop = stop
    try:
        yield
    finally:
        _state.stop = None


def _on_signal(number: int, _frame: FrameType | None) -> None:
    if _state.signal is not None:
        return
    _state.signal = number
    if _state.stop is not None:
        _state.stop()
        return
    _state.is_interrupted = True
    for action in _state.first_aid:
        action()
    raise InterruptedBySignal
