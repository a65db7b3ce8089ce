"""SIGINT, SIGTERM and SIGHUP: each asks the command to stop.

A command that makes one result is interrupted immediately, once. A service defines its own way to stop (`deferred`).
Signals after the first one have no effect, so that they cannot disturb the stop.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_CODE_OF_SIGNAL = 128  # as a shell reports a command that a signal ended
_AGAIN_AFTER_S = 0.01
_EVENT_SEEN_WITHIN_S = 0.1


class InterruptedBySignal(BaseException):
    """The command was asked to stop; its text is the line that says so. ``except Exception`` does not catch this."""

    def __init__(self, line: str = "reput: stopped") -> None:
        super().__init__(line)
        _state.is_lost = False  # the caller that raises it acts on the signal


class StopFlag:
    """Whether a stop was asked for; a signal's handler may set it wherever it interrupts the main thread.

    A ``threading.Event`` takes a lock when it is set. If the interrupted thread holds that lock, in `wait`, the handler
    never ends.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Ask for a stop."""
        self._is_set = True

    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return self._is_set

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`, or not at all if a stop was asked for; a stop meanwhile does not end the sleep."""
        if not self._is_set:
            time.sleep(seconds)


def is_set_within(event: threading.Event, seconds: float) -> bool:
    """Whether `event` is set before `seconds` have passed, whatever the time of day is set to.

    Before Python 3.11, and later where Python was made for an old C library, ``Event.wait`` waits for a time of day.
    """
    deadline = time.monotonic() + seconds
    while not event.is_set() and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _EVENT_SEEN_WITHIN_S))
    return event.is_set()


class _State:
    def __init__(self) -> None:
        self.signal: int | None = None
        self.is_interrupted = False
        self.is_lost = False
        self.stop: Callable[[], None] | None = None
        self.first_aid: list[Callable[[], None]] = []


_state = _State()


def listen() -> None:
    """Take over the signals, in the main thread; one that was ignored at the start, as under nohup, stays ignored."""
    for number in _SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    _raise_again_what_is_lost()


def ignore_further() -> None:
    """Ignore signals after the one that was acted on, so that they do not change how the process ends.

    Call this last: while Python ends, it restores each signal's default unless the signal is ignored.
    """
    if _state.signal is not None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def is_interrupted() -> bool:
    """Whether `InterruptedBySignal` was raised: later failures are its consequences."""
    return _state.is_interrupted


def exit_code() -> int:
    """Return the exit code of a command that was interrupted before its result: 130 for SIGINT, 143 for SIGTERM."""
    return _EXIT_CODE_OF_SIGNAL + (_state.signal or 0)


def before_interruption(action: Callable[[], None]) -> None:
    """Register `action`, which the signal's handler calls before it interrupts the command."""
    if action not in _state.first_aid:
        _state.first_aid.append(action)


@contextmanager
def deferred(stop: Callable[[], None]) -> Iterator[None]:
    """Have the signal's handler call `stop` instead of interrupting the command.

    `stop` must not take a lock that the main thread may hold.
    """
    if _state.signal is not None:
        raise InterruptedBySignal
    _state.stop = stop
    try:
        yield
    finally:
        _state.stop = None


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Have each SIGINT raise KeyboardInterrupt instead: it ends one answer of many, not the command."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _raise_again_what_is_lost() -> None:
    """Send a signal again if Python threw its exception away, as it does in the finalizer of an object."""
    tell = sys.unraisablehook

    def look(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, InterruptedBySignal):
            _state.is_lost = True
            number = _state.signal or signal.SIGINT
        elif isinstance(unraisable.exc_value, KeyboardInterrupt):
            number = signal.SIGINT
        else:
            if not _state.is_interrupted:  # otherwise it is a consequence: compiled code was left in the middle
                tell(unraisable)
            return
        # Not by `threading`: the object may have been finalized while this thread held one of its locks.
        _thread.start_new_thread(_send_again, (number,))

    sys.unraisablehook = look


def _send_again(number: int) -> None:
    time.sleep(_AGAIN_AFTER_S)  # the finalizer has ended by then, or loses the signal again
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, number)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    if _state.signal is not None and not _state.is_lost:
        return
    _state.signal = number
    if _state.stop is not None:
        _state.stop()
        return
    _state.is_interrupted = True
    for action in _state.first_aid:
        action()
    raise InterruptedBySignal


# ----------------------------------------------------------------------------------------------------------------------
# Work beside the main thread, where a signal does not interrupt it.

_Result = TypeVar("_Result")
_SIGNALS_SEEN_WITHIN_S = 0.1


def beside_the_main_thread(action: Callable[[], _Result], *others: Callable[[], object]) -> _Result:
    """Return the result of `action`, which runs at the same time as `others`, each in a thread; raise the error of any.

    A signal interrupts only the wait for them: in the main thread it would leave LLVM's objects in a state in which
    Python cannot finalize them, and Spark takes SIGINT over only there. The threads are not in a pool, so that an
    interrupted command does not wait for them.
    """
    first, *further = [_begun(each) for each in (action, *others)]
    for future in further:
        result_of(future)
    result: _Result = result_of(first)
    return result


def result_of(future: Future[_Result]) -> _Result:
    """Return the future's result; wait in short steps, because a Ctrl-C just before a long wait comes late."""
    while not future.done():
        wait([future], timeout=_SIGNALS_SEEN_WITHIN_S)
    return future.result()


def _begun(action: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:  # noqa: BLE001  the thread that waits for the result raises it
            future.set_exception(error)

    threading.Thread(target=run, name="beside-main", daemon=True).start()
    return future
