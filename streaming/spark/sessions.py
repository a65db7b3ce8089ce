"""Spark for a command that outlives its JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from reput.streaming.process.failures import jvm_death
from reput.streaming.process.jvm import has_jvm_died
from reput.streaming.process.run_directory import clear_run_directory
from reput.streaming.spark.session import end_session


class Sessions:
    """A session, and another one once the JVM of the last one has died.

    Any thread may use it.
    """

    def __init__(self, start: Callable[[], SparkSession]) -> None:
        """`start` starts a session (``start_session``); the last one is ended by `end`."""
        self._start = start
        #: Whether a session that has died is replaced.
        self.can_start = True
        self._session: SparkSession | None = None
        self._is_stopped = False
        self._lock = threading.Lock()

    @classmethod
    def of(cls, session: SparkSession) -> Sessions:
        """Sessions with only this one, which belongs to the caller: once it has died, there is no other."""

        def refuse() -> SparkSession:
            raise jvm_death()

        sessions = cls(refuse)
        sessions._session, sessions.can_start = session, False
        return sessions

    def current(self) -> SparkSession:
        """The session; the first one, and one after a death, is started now.

        Raises
        ------
        EnvironmentSetupError, TransientError
            ``start_session`` raised it.
        """
        with self._lock:
            if self.has_died():
                self._end()
                # Workers end with their JVM, but not at once: none may be at work beside those of the next.
                clear_run_directory()
            if self._session is None:
                self._session = self._start()
            return self._session

    def has_died(self) -> bool:
        """Whether the last session's JVM has ended by itself, or Spark in it (`look`); it is not replaced yet."""
        return self._session is not None and (self._is_stopped or has_jvm_died())

    def is_lost(self, session: SparkSession) -> bool:
        """Whether `session`, which `current` once returned, is of no use any more."""
        return session is not self._session or self.has_died()

    def look(self) -> None:
        """After a failure, see whether Spark's context was stopped from outside, as a cluster does."""
        if not self._lock.acquire(blocking=False):
            return  # another one is just being started
        try:
            with suppress(Exception):
                session: Any = self._session
                self._is_stopped = session is not None and bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001
        finally:
            self._lock.release()

    def end(self) -> None:
        """End the session, if there is one."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        session, self._session, self._is_stopped = self._session, None, False
        if session is not None:
            end_session(session)
