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
    actions = (action, *others)
    futures: list[Future[Any]] = [Future() for _ in actions]
    threads = [
        threading.Thread(target=_run, args=each, name="beside-main", daemon=True)
        for each in zip(actions, futures, strict=True)
    ]
    for thread in threads:
        thread.start()
    for future, thread in zip(futures, threads, strict=True):
        while not future.done():
            wait([future], timeout=_SIGNALS_SEEN_WITHIN_S)
        thread.join()
    result: _Result = futures[0].result()
    for future in futures[1:]:
        future.result()
    return result


def _run(action: Callable[[], Any], future: Future[Any]) -> None:
    try:
        future.set_result(action())
    except BaseException as error:  # noqa: BLE001  the thread that waits for the result raises it
        future.set_exception(error)
