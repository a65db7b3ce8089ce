"""`reput backup --follow`: a restore point every few seconds beside a running broker, and the state of that run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from reput.source.errors import ReputError
from reput.source.printable import counted
from reput.source.times import time_text
from reput.streaming.backup.backup import BackupRun, Unprotected
from reput.streaming.config.run_options import TailOptions
from reput.streaming.process.failures import failure_of, may_pass_in_a_run, one_line
from reput.streaming.process.interruption import StopFlag, deferred
from reput.streaming.status.batch_report import duration_text, size_text
from reput.streaming.status.publisher import ServiceManager, StatusServer
from reput.streaming.status.run_state import State

_log = logging.getLogger("reput")

#: The longest time for which a message is unprotected at the default interval.
LAGGING_FROM_S: Final = 10.0
_LOOKED_EVERY_S: Final = 1.0
_SLICE_S: Final = 0.2
_EXPIRED_EVERY_S: Final = 600.0
_HEALTHY_WITHIN_S: Final = 120.0
_PREFIX: Final = "rocketmq_reput_backup_"
_BROKER: Final = ("broker",)


@dataclass
class FollowState:
    """The state of a run; other threads read it."""

    broker: str
    place: str
    points: int = 0
    end: int | None = None
    last_ms: int | None = None
    unprotected: Unprotected | None = None
    failure: ReputError | None = None
    is_stopped: bool = False

    @property
    def state(self) -> State:
        """The state, in the words of `reput status`."""
        if self.is_stopped:
            return State.STOPPED
        if self.failure is not None:
            return State.WAITING
        if self.end is None or self.unprotected is None:
            return State.STARTING
        return State.LAGGING if self.unprotected.seconds > LAGGING_FROM_S else State.RUNNING

    @property
    def reason(self) -> str:
        """The reason for the state, in a line."""
        if self.failure is not None:
            return one_line(str(self.failure))
        if self.end is None or self.last_ms is None:
            return "makes the first restore point"
        said = f"restore point of {time_text(self.last_ms)}, up to offset {self.end}"
        if self.unprotected is None or not self.unprotected.bytes:
            return f"{said}: all is in the backup"
        seconds = duration_text(self.unprotected.seconds)
        return f"{said}: {size_text(self.unprotected.bytes)} and {seconds} of messages are not in the backup"

    def document(self, broker: str | None = None) -> dict[str, Any] | None:
        """The state for ``/status``; None for another broker."""
        if broker not in (None, self.broker):
            return None
        left = self.unprotected
        return {
            "state": self.state.value,
            "reason": self.reason,
            "broker": self.broker,
            "backup": self.place,
            "points": self.points,
            "end": self.end,
            "lastPoint": None if self.last_ms is None else time_text(self.last_ms),
            "unprotectedBytes": None if left is None else left.bytes,
            "unprotectedSeconds": None if left is None else left.seconds,
        }


class _Metrics(Collector):
    def __init__(self, state: FollowState) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """The families of the moment; what is not known yet is left out."""
        state, left = self._state, self._state.unprotected
        for name, words, value in (
            (
                "unprotected_seconds",
                "The age of the first message that no restore point has; 0 without one.",
                left and left.seconds,
            ),
            ("unprotected_bytes", "The log that no restore point has.", left and left.bytes),
            ("offset", "The log before this physical offset is in a restore point.", state.end),
            (
                "point_timestamp_seconds",
                "The moment of the newest restore point.",
                state.last_ms and state.last_ms / 1000,
            ),
            ("waiting", "1 while the backup waits for a failure to pass, else 0.", int(state.failure is not None)),
        ):
            family = GaugeMetricFamily(_PREFIX + name, words, labels=_BROKER)
            if value is not None:
                family.add_metric([state.broker], value)
            yield family
        points = CounterMetricFamily(_PREFIX + "points", "Restore points that this run has made.", labels=_BROKER)
        points.add_metric([state.broker], state.points)
        yield points


class BackupFollower:
    """Makes a restore point every `every_s` seconds until it is stopped."""

    def __init__(
        self,
        run: BackupRun,
        state: FollowState,
        options: TailOptions,
        *,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`run` is opened; `clock` is monotonic, in seconds."""
        self._run = run
        self._state = state
        self._options = options
        self._every_s = every_s
        self._clock = clock
        self._stop = StopFlag()
        self._manager = ServiceManager()
        self._turned_at = clock()
        self._failed_since: float | None = None
        self._told_at = self._alive_at = float("-inf")
        self._told_points = 0
        self._expired_at = float("-inf")

    def follow(self) -> None:
        """Make restore points until a signal stops it.

        Raises
        ------
        ReputError
            A failure that does not pass, or that has not passed within ``retryForMs``.
        """
        options, state = self._options, self._state
        registry = CollectorRegistry()
        registry.register(_Metrics(state))
        with ExitStack() as cleanup:
            if options.metrics_port:
                server = StatusServer(
                    options.metrics_host,
                    options.metrics_port,
                    status=state.document,
                    registry=registry,
                    is_healthy=lambda: self._clock() - self._turned_at < _HEALTHY_WITHIN_S,
                )
                cleanup.enter_context(server)
            cleanup.enter_context(deferred(self.stop))
            cleanup.callback(self._ended)
            due = self._clock()
            while not self._stop.is_set():
                self._turn()
                if self._clock() >= due:
                    due = self._clock() + self._every_s
                    self._attempt()
                self._look()
                self._wait(min(due, self._clock() + _LOOKED_EVERY_S))

    def stop(self) -> None:
        """End `follow` after the current step; a signal's handler may call this."""
        self._stop.set()

    def _wait(self, until: float) -> None:
        while not self._stop.is_set() and (left := until - self._clock()) > 0:
            self._stop.wait(min(left, _SLICE_S))

    def _ended(self) -> None:
        self._state.is_stopped = True
        self._manager.stopping()

    def _attempt(self) -> None:
        """Make a restore point, and remove old ones; wait after a failure that may pass."""
        state = self._state
        try:
            point = self._run.step()
            if self._clock() - self._expired_at >= _EXPIRED_EVERY_S:
                self._run.expire()
                self._expired_at = self._clock()
        except Exception as error:
            failure = failure_of(error)
            now = self._clock()
            self._failed_since = now if self._failed_since is None else self._failed_since
            if not may_pass_in_a_run(error) or now - self._failed_since >= self._options.retry_for_ms / 1000:
                raise
            if state.failure is None or state.failure.code != failure.code:
                _log.warning("waiting: %s", one_line(str(failure)))
            state.failure = failure
            return
        if state.failure is not None:
            _log.info("the failure has passed")
        state.failure, self._failed_since = None, None
        last = self._run.last
        assert last is not None, "a first step makes a restore point"
        state.end, state.last_ms = last.end, last.created_ms
        state.points += point is not None
        self._tell()

    def _look(self) -> None:
        """Find out how much of the log the backup lacks."""
        try:
            self._state.unprotected = self._run.unprotected()
        except Exception as error:
            if not may_pass_in_a_run(error):
                raise
            self._state.unprotected = None  # the next step reports the failure

    def _tell(self) -> None:
        """Log a line for the first restore point, and then now and then for those made since."""
        now, made = self._clock(), self._state.points - self._told_points
        if made and now - self._told_at >= self._options.progress_every_ms / 1000:
            _log.info("%s: %s", counted(made, "restore point"), self._state.reason)
            self._told_at, self._told_points = now, self._state.points

    def _turn(self) -> None:
        self._turned_at = self._clock()
        if self._state.end is not None and self._told_at > float("-inf"):
            self._manager.ready()
        every_s = self._manager.alive_every_s
        if every_s is not None and self._turned_at - self._alive_at >= min(every_s, _LOOKED_EVERY_S):
            self._manager.alive()
            self._alive_at = self._turned_at
