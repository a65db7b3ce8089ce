"""Calls into compiled code that a signal can interrupt: they run in a thread, for which the caller's thread waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Background:
    """A thread that does what it is told, for a ``with`` block.

    Python handles a signal only between two steps of its main thread. While that waits here, it is between them.
    """

    def __init__(self, interrupt: Callable[[], object]) -> None:
        """`interrupt` has the running call fail soon; it is called if the wait for it is interrupted."""
        self._interrupt = interrupt
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._ends: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Background:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._calls.put(None)
        self._thread.join()

    def run(self, call: Callable[[], _Result]) -> _Result:
        """The result of `call`; raises what it raises."""
        self._calls.put(call)
        try:
            result, error = self._ends.get()
        except BaseException:
            self._interrupt()
            raise
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._ends.put((call(), None))
            except BaseException as error:  # noqa: BLE001  the caller's to raise
                self._ends.put((None, error))
