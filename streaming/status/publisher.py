"""Publishes the status of a process: over HTTP if a port is given, in a file of each output, and to systemd."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from reput.streaming.process.service_manager import ServiceManager
from reput.streaming.status.http_server import StatusServer
from reput.streaming.status.judgement import Judgement, State, judge
from reput.streaming.status.metrics import registry_of
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import StatusFile, status_document, worst_of

# The main loop turns several times a second, and a batch of a query that is opened again runs in it.
_TURNS_WITHIN_S = 120.0
# How often the state is looked at for the service manager, and how often a reason that changes all the time is told.
_LOOKED_EVERY_S, _REASON_EVERY_S = 1.0, 10.0


class StatusPublisher:
    """Serves and writes the status of `runs` within a ``with`` block; `turn` is to be called by the main loop.

    systemd, if it started this process, is told as well, and hears of each turn: its watchdog ends a process whose
    main loop stands still.
    """

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
        self._files: list[StatusFile] = []
        self._clock = clock
        self._turned_at: float | None = None
        self._open = ExitStack()
        self._manager = _ManagerReport(ServiceManager(), self._states)
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
        self._manager.end(self._clock())

    @property
    def port(self) -> int | None:
        """The port that is served."""
        return None if self._server is None else self._server.port

    def write_files(self) -> None:
        """Write files from now on: the outputs are locked, so no other run writes them."""
        self._files = [StatusFile(output, state) for state, output in self._outputs]

    def document(self, broker: str | None = None) -> dict[str, Any] | None:
        """The status of all runs, or of the one of a `broker`; None where none has that name."""
        runs = [state for state in self._states if broker in (None, state.broker)]
        return status_document(runs, self._facts) if runs else None

    @property
    def is_healthy(self) -> bool:
        """Whether the main loop has turned lately, or the queries have yet to run: a start may take minutes."""
        return self._turned_at is None or self._clock() - self._turned_at < _TURNS_WITHIN_S

    def turn(self) -> None:
        """Note that the main loop turns, and tell and write what is due."""
        now = self._clock()
        self._manager.turn(now)
        if self._manager.is_ready:
            self._turned_at = now
        self._write()

    def stopping(self) -> None:
        """Tell the service manager that a stop was asked for; a signal handler may call this."""
        self._manager.stopping()

    def _write(self, *, at_once: bool = False) -> None:
        for file in self._files:
            file.write(self._facts, self._clock(), at_once=at_once)


class _ManagerReport:
    """What the service manager has been told of `states`.

    Attributes
    ----------
    is_ready
        Whether every query ran once; one that had no chance to, since its broker's run has ended, does not count while
        another one runs.
    """

    def __init__(self, manager: ServiceManager, states: Sequence[RunState]) -> None:
        self._manager = manager
        self._states = states
        self.is_ready = self._is_told_ready = False
        self._told: Judgement | None = None
        self._told_at = self._looked_at = self._alive_at = float("-inf")

    def turn(self, now: float) -> None:
        """Tell what is due at `now` (monotonic seconds); what cannot be told is due again at the next turn."""
        if now - self._looked_at >= _LOOKED_EVERY_S or not self._is_told_ready:
            self._looked_at = now
            self._tell(now)
        # The first such message arms systemd's watchdog, even while a service starts.
        every_s = self._manager.alive_every_s if self._is_told_ready else None
        if every_s is not None and now - self._alive_at >= every_s and self._manager.alive():
            self._alive_at = now

    def stopping(self) -> None:
        """Tell that the run stops."""
        self._manager.stopping()

    def end(self, now: float) -> None:
        """Tell how the run ended."""
        self._manager.stopping()
        self._tell(now)

    def _runs(self) -> bool:
        states = [judge(each).state for each in self._states]
        return State.STARTING not in states and any(state is not State.STOPPED for state in states)

    def _tell(self, now: float) -> None:
        judged = worst_of(self._states)
        self.is_ready = self.is_ready or self._runs()
        if self.is_ready and not self._is_told_ready:
            self._is_told_ready = self._manager.ready()
        is_other = self._told is None or judged.state is not self._told.state or judged.state is State.STARTING
        is_due = is_other or now - self._told_at >= _REASON_EVERY_S
        if is_due and judged != self._told and self._manager.status(f"{judged.state.value}: {judged.reason}"):
            self._told, self._told_at = judged, now
