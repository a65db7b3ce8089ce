"""Spark's questions to a stream, passed on by the process that Spark asks and answered by another one.

For each streaming query, Spark starts a Python process that tells it where the log ends and which ranges a micro-batch
has. To know that, a process loads the compiled code, which takes 66 MB of memory and a third of a second of its start.
The driver of `reput tail` has loaded it, so its queries' processes pass each question on to the driver.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

from reput.source.errors import TransientError, reported_through_spark

Answer = TypeVar("Answer")


class StreamAnswers:
    """Answers the questions of other processes, in threads of this one, until it is closed.

    Each process that asks gets a reader of its own. A process that can enter the directory of the socket can ask.
    """

    def __init__(self, path: Path, new_reader: Callable[[], Any]) -> None:
        """Listen at the socket `path`, in an existing directory; `new_reader` makes the object that answers."""
        self._path = path
        self._new_reader = new_reader
        self._listener = socket.socket(socket.AF_UNIX)
        with _short(path) as address:
            self._listener.bind(address)
        self._listener.listen()
        _start(self._accept)

    def close(self) -> None:
        """Accept no other process; those that have asked before are answered until they end."""
        with suppress(OSError):  # an error may have ended it before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        # When this ends, the connections of processes that wait for an answer break, and so end their waiting.
        with self._listener, suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                _start(self._answer, Connection(accepted.detach()))

    def _answer(self, connection: Connection[Any, Any]) -> None:
        with connection, suppress(EOFError, OSError):
            reader = self._new_reader()
            while True:
                method, arguments = connection.recv()
                connection.send(_outcome(getattr(reader, method), arguments))


def _start(work: Callable[..., None], *arguments: Any) -> None:
    """Begin a thread whose log lines name the broker and the query that the calling thread works for."""
    threading.Thread(target=copy_context().run, args=(work, *arguments), daemon=True).start()


def _outcome(answer: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    try:
        return answer(*arguments), None
    except Exception as error:  # noqa: BLE001  raised where it was asked
        return None, error


class StreamQuestions:
    """Asks the process that answers at a socket. It connects with the first question, and can be pickled before."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: Connection[Any, Any] | None = None

    def ask(self, method: Callable[..., Answer], *arguments: Any) -> Answer:
        """Call this method of the other process's reader; return what it returns, raise what it raises.

        Raises
        ------
        TransientError
            The other process does not answer.
        """
        answer, error = self._exchange(method.__name__, arguments)
        if error is not None:
            raise error
        return cast("Answer", answer)

    @reported_through_spark()
    def _exchange(self, method: str, arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
        try:
            if self._connection is None:
                self._connection = _connected(self._path)
            self._connection.send((method, arguments))
            outcome: tuple[Any, Exception | None] = self._connection.recv()
        except (EOFError, OSError) as error:
            raise TransientError(f"the driver does not answer what Spark asks of the log: {error!r}") from error
        return outcome


def _connected(path: Path) -> Connection[Any, Any]:
    with socket.socket(socket.AF_UNIX) as connected, _short(path) as address:
        connected.connect(address)
        return Connection(connected.detach())


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for `path` that fits into the address of a socket (``sockaddr_un``: 108 bytes), however long `path` is."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
