"""Work beside the main thread, where a signal does not break it off in its middle."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_SIGNALS_SEEN_WITHIN_S = 0.1


def beside_the_main_thread(action: Callable[[], _Result], *others: Callable[[], object]) -> _Result:
    """The result of `action`, which runs at the same time as `others`, each in a thread; raises what one has raised.

    A signal interrupts the wait for them, and nothing else: in the main thread it would leave LLVM's objects in a state
    in which Python cannot finalize them, and Spark only takes SIGINT over there. The threads belong to no pool, so that
    an interrupted command does not wait for them.
    """
    first, *further = [_begun(each) for each in (action, *others)]
    for future in further:
        result_of(future)
    result: _Result = result_of(first)
    return result


def result_of(future: Future[_Result]) -> _Result:
    """The future's result; in one long wait, a Ctrl-C that comes just before would be seen only at the end."""
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
