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
from types import TracebackType

from pyspark import cloudpickle

from reput.source.errors import EnvironmentSetupError
from reput.source.worker_process import keep_freed_memory
from reput.streaming.tasks import Results, Tasks, result_of

_PARENT_LOOKED_FOR_S = 1.0


class ProcessTasks(Tasks):
    """In processes that are forks of this one, with its modules and kernels; they end with it.

    To be made before other threads are, and before Spark is started.
    """

    def __init__(self, processes: int) -> None:
        self._parallelism = processes
        # What is loaded before the fork would else be copied by the first collection in each process. Not collected
        # first: of what was only loaded little is garbage, and looking for it takes 0.2 s.
        gc.freeze()
        others = multiprocessing.active_children()
        self._pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), _begin, (os.getpid(),))
        self._pool.submit(os.getpid).result()  # forks all of them
        self._processes = [child for child in multiprocessing.active_children() if child not in others]

    def __enter__(self) -> ProcessTasks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            for process in self._processes:  # Ctrl-C does not wait for pieces under way
                process.terminate()
        self._pool.shutdown(cancel_futures=True)

    @property
    def parallelism(self) -> int:
        """See `Tasks`."""
        return self._parallelism

    def start(self, work: Callable[[int], str], count: int) -> Results:
        """See `Tasks`; `work` is pickled.

        Raises
        ------
        EnvironmentSetupError
            One of the processes died: now, or when the results are asked for.
        """
        pickled: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]
        with _told_of_deaths():
            pieces = [self._pool.submit(_call, pickled, number) for number in range(count)]
        return partial(_results, pieces)


def _results(pieces: list[Future[str]]) -> list[str]:
    try:
        with _told_of_deaths():
            return [result_of(piece) for piece in pieces]
    finally:
        for piece in pieces:
            piece.cancel()


@contextmanager
def _told_of_deaths() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        msg = (
            "a process of reput died: it was killed, or the machine ran out of memory (less is needed with smaller "
            "ranges, rebuildMaxBytesPerPartition or for verify maxBytesPerPartition, or with fewer processes, "
            "sparkMaster=local[N]); run the same command again, a rebuild goes on where it was"
        )
        raise EnvironmentSetupError(msg) from error


def _call(pickled: bytes, number: int) -> str:
    work: Callable[[int], str] = cloudpickle.loads(pickled)
    return work(number)


def _begin(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it is gone: a fork of a killed process would wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_LOOKED_FOR_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
