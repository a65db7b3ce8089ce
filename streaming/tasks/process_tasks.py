"""Running pieces of work side by side in processes of this machine: no JVM to start, no job to schedule."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import BaseContext
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from reput.source.errors import TransientError
from reput.source.worker_process import end_with_parent, keep_freed_memory, load_without_threads
from reput.streaming.tasks.tasks import Result, Results, Tasks, result_of

_PRELOADED = "reput.streaming.spark.warm_up"
_THREADS = Path("/proc/self/task")
_PARENT_LOOKED_FOR_S = 1.0


class ProcessTasks(Tasks):
    """In processes that end with this one.

    They are forks of it, with its modules and kernels, as long as it has a single thread: to be made before others are,
    and before Spark is started. A process with more threads cannot be forked without danger. There they are forks of
    a server that has loaded the modules.
    """

    def __init__(self, processes: int) -> None:
        self._parallelism = processes
        # What is loaded before the fork would else be copied by the first collection in each process. Not collected
        # first: of what was only loaded little is garbage, and looking for it takes 0.2 s.
        gc.freeze()
        self._others = multiprocessing.active_children()
        self._pool = ProcessPoolExecutor(processes, _context(), _begin)
        try:
            self.start(_begun, processes)()  # begins all of them
        except BaseException:
            self._end()
            raise

    def __enter__(self) -> ProcessTasks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        # Whose results are wanted has them by now, and what a piece leaves is in its files. Where one just died, the
        # pool asks the others to end, which leave SIGTERM to the parent, and waits for them; and they may wait for ever
        # for a lock that the dead one held.
        for process in multiprocessing.active_children():
            if process not in self._others:
                process.kill()
        self._pool.shutdown(cancel_futures=True)

    @property
    def parallelism(self) -> int:
        """See `Tasks`."""
        return self._parallelism

    def start(self, work: Callable[[int], Result], count: int) -> Results[Result]:
        """See `Tasks`; `work` is pickled.

        Raises
        ------
        TransientError
            One of the processes died: now, or when the results are asked for.
        """
        pickled: bytes = cloudpickle.dumps(work)
        with _deaths_as_errors():
            futures = [self._pool.submit(_call, pickled, number) for number in range(count)]
        return partial(_results, futures)


def _results(futures: list[Future[Result]]) -> list[Result]:
    try:
        with _deaths_as_errors():
            return [result_of(future) for future in futures]
    finally:
        for future in futures:
            future.cancel()


@contextmanager
def _deaths_as_errors() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise TransientError(
            "a process of reput died: it was killed, or the machine ran out of memory (less is needed with smaller "
            "ranges, rebuildMaxBytesPerPartition or for verify maxBytesPerPartition, or with fewer processes, "
            "sparkMaster=local[N])",
            advice="run the same command again, a rebuild goes on where it was",
        ) from error


def _begun(_: int) -> None:
    """The work of a process that is only to be there."""


def _call(pickled: bytes, number: int) -> Any:
    work: Callable[[int], Any] = cloudpickle.loads(pickled)
    return work(number)


def _context() -> BaseContext:
    if len(list(_THREADS.iterdir())) == 1:
        return multiprocessing.get_context("fork")
    load_without_threads()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


def _begin() -> None:
    """Leave signals to the parent, and end when it is gone: a fork of a killed process would wait for ever."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    end_with_parent()
    keep_freed_memory()

    def watch() -> None:
        # The system tells of the death of the thread that forked; and that one may have died before it was asked to.
        driver = multiprocessing.parent_process()
        while os.getppid() == parent and (driver is None or driver.is_alive()):
            time.sleep(_PARENT_LOOKED_FOR_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
