"""Publishes the status of a process: over HTTP if a port is given, and in a file of each output."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from reput.streaming.status.http_server import StatusServer
from reput.streaming.status.metrics import registry_of
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import status_document
from reput.streaming.status.status_file import StatusFile

# The main loop turns several times a second, and a batch of a query that is opened again runs in it.
_TURNS_WITHIN_S = 120.0


class StatusPublisher:
    """Serves and writes the status of `runs` within a ``with`` block; `turn` is to be called by the main loop."""

    def __init__(
        self,
        runs: Sequence[tuple[RunState, Path]],
        facts: dict[str, Any],
        *,
        host: str = "localhost",
        port: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`runs` are brokers' runs with their outputs, `facts` is what is true of all.

        Without a `port` nothing is served, port 0 is any free one.

        Raises
        ------
        EnvironmentSetupError
            It cannot be served there.
        """
        self._facts = facts
        self._states = [state for state, _ in runs]
        self._outputs = runs
        self._files: list[tuple[RunState, StatusFile]] = []
        self._clock = clock
        self._turned_at: float | None = None
        self._open = ExitStack()
        self._server = None
        if port is not None:
            registry = registry_of(self._states)
            self._server = StatusServer(
                *(host, port), status=self.document, registry=registry, is_healthy=lambda: self.is_healthy
            )

    def __enter__(self) -> StatusPublisher:
        if self._server is not None:
            self._open.enter_context(self._server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
        self._write(at_once=True)

    @property
    def port(self) -> int | None:
        """The port that is served."""
        return None if self._server is None else self._server.port

    def write_files(self) -> None:
        """Write files from now on: the outputs are locked, so no other run writes them."""
        self._files = [(state, StatusFile(output)) for state, output in self._outputs]

    def document(self) -> dict[str, Any]:
        """The status of all runs."""
        return status_document(self._states, self._facts)

    @property
    def is_healthy(self) -> bool:
        """Whether the main loop has turned lately, or has yet to begin."""
        return self._turned_at is None or self._clock() - self._turned_at < _TURNS_WITHIN_S

    def turn(self) -> None:
        """Note that the main loop turns, and write what is due."""
        self._turned_at = self._clock()
        self._write()

    def _write(self, *, at_once: bool = False) -> None:
        for state, file in self._files:
            if at_once or file.is_due(self._clock()):
                file.write(status_document([state], self._facts), self._clock(), at_once=at_once)
