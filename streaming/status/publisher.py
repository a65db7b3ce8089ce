"""Publishes the status of a process: over HTTP if a port is given, in a file of each output, and to systemd.

A thread of the driver serves `/metrics`, `/healthz`, `/readyz`, `/status` and `/`.
systemd, or another program that listens at ``NOTIFY_SOCKET``, gets it as ``sd_notify(3)`` says.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    generate_latest,
)

from reput.source.errors import EnvironmentSetupError
from reput.source.printable import printable
from reput.streaming.status.metrics import registry_of
from reput.streaming.status.run_state import Judgement, RunState, State, judge
from reput.streaming.status.status_document import StatusFile, status_document, worst_of

# The main loop turns several times a second, but a batch of a query that is opened again runs in it.
_TURNS_WITHIN_S = 120.0
# How often the state is judged for the service manager, and how often a reason that changes all the time is reported.
_LOOKED_EVERY_S, _REASON_EVERY_S = 1.0, 10.0


class StatusPublisher:
    """Serves and writes the status of `runs` within a ``with`` block; the main loop must call `turn`.

    If systemd started this process, it also gets the status and each turn: its watchdog ends a process whose main loop
    does not turn any more.
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
        """Take brokers' `runs` with their outputs, and `facts` that are true of all of them.

        Without a `port` nothing is served; port 0 is any free one.

        Raises
        ------
        EnvironmentSetupError
            The port or the host cannot be used.
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
        """Return the status of all runs, or that of one `broker`; None if no broker has that name."""
        runs = [state for state in self._states if broker in (None, state.broker)]
        return status_document(runs, self._facts) if runs else None

    @property
    def is_healthy(self) -> bool:
        """Whether the main loop has turned lately, or the queries have yet to run: a start may take minutes."""
        return self._turned_at is None or self._clock() - self._turned_at < _TURNS_WITHIN_S

    def turn(self) -> None:
        """Note that the main loop turns, and report and write what is due."""
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
    """Reports the state of `states` to the service manager.

    Attributes
    ----------
    is_ready
        Whether every query ran once. While another broker's run lasts, a query whose broker's run ended before it could
        run does not count.
    """

    def __init__(self, manager: ServiceManager, states: Sequence[RunState]) -> None:
        self._manager = manager
        self._states = states
        self.is_ready = self._is_told_ready = False
        self._told: Judgement | None = None
        self._told_at = self._looked_at = self._alive_at = float("-inf")

    def turn(self, now: float) -> None:
        """Report what is due at `now` (monotonic seconds); a report that fails is due again at the next turn."""
        if now - self._looked_at >= _LOOKED_EVERY_S or not self._is_told_ready:
            self._looked_at = now
            self._tell(now)
        # The first such message arms systemd's watchdog, even while a service starts.
        every_s = self._manager.alive_every_s if self._is_told_ready else None
        if every_s is not None and now - self._alive_at >= every_s and self._manager.alive():
            self._alive_at = now

    def stopping(self) -> None:
        """Report that the run stops."""
        self._manager.stopping()

    def end(self, now: float) -> None:
        """Report how the run ended."""
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


_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_ASSETS: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
# Nothing is loaded from elsewhere, and no text of a log can become code.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
# The longest time for a request and its answer, however slow a client is, and the most connections at once.
_CONNECTION_WITHIN_S, _CONNECTIONS_MAX = 10.0, 32
_ACCEPTED_AGAIN_AFTER_S = 0.1
_READY = frozenset({State.RUNNING.value, State.DEGRADED.value, State.LAGGING.value})


class StatusServer:
    """An HTTP server that is open from `start` until the end of the ``with`` block."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        status: Callable[[str | None], dict[str, Any] | None],
        registry: CollectorRegistry,
        is_healthy: Callable[[], bool],
    ) -> None:
        """Listen on `host` and `port` (0: any free one).

        `status` returns the document of all brokers, or that of the broker of a name; None if no broker has that name.

        Raises
        ------
        EnvironmentSetupError
            The port is taken, may not be used, or the host does not belong to this machine.
        """
        handler = type("Handler", (_Handler,), {"status": [status], "registry": registry, "is_healthy": [is_healthy]})
        try:
            self._server = _Server((host, port), handler)
        except (OSError, OverflowError) as error:
            words = getattr(error, "strerror", None) or str(error)
            raise EnvironmentSetupError(
                f"metricsPort={port}: cannot listen on {host}: {words}",
                advice="give another metricsPort, or a metricsHost of this machine",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="reput-http", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> StatusServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Serves each connection in a thread; few at once, each for seconds.

    A client that reaches the port may open connections and send nothing. Each takes a descriptor of the process, which
    needs some for the log, the output and Spark. So the oldest connection ends if there are too many: an answer takes
    milliseconds, and a new client, such as a probe, is still answered.
    """

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._changed = threading.Condition()
        # The begin of each connection, in the order in which they came; None for one that is being ended.
        self._began_at: dict[Any, float | None] = {}

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; after a failure, as for want of descriptors, wait before the next attempt."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_ACCEPTED_AGAIN_AFTER_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread."""
        with self._changed:
            at_work = [each for each, began_at in self._began_at.items() if began_at is not None]
            if len(at_work) >= _CONNECTIONS_MAX:
                self._end(at_work[0])
            # The threads of connections that were ended may not have noticed yet.
            self._changed.wait_for(lambda: len(self._began_at) <= _CONNECTIONS_MAX, _CONNECTION_WITHIN_S)
            self._began_at[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._changed:
            self._began_at.pop(request, None)
            self._changed.notify_all()
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that take too long; called a few times a second."""
        before = time.monotonic() - _CONNECTION_WITHIN_S
        with self._changed:
            for request, began_at in self._began_at.items():
                if began_at is not None and began_at < before:
                    self._end(request)

    def _end(self, request: Any) -> None:
        """Close a connection, so that its thread notices the end."""
        self._began_at[request] = None
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the client has gone."""


class _Handler(BaseHTTPRequestHandler):
    # One-element lists, since a function in a class would become a method.
    status: ClassVar[list[Callable[[str | None], dict[str, Any] | None]]]
    is_healthy: ClassVar[list[Callable[[], bool]]]
    registry: ClassVar[CollectorRegistry]

    server_version = "reput"
    sys_version = ""
    timeout = _CONNECTION_WITHIN_S

    def do_GET(self) -> None:
        """Answer."""
        path, _, query = self.path.partition("?")
        if path in _ASSETS:
            name, kind = _ASSETS[path]
            self._send(HTTPStatus.OK, kind, files(__package__).joinpath(name).read_bytes())
        elif path == "/metrics":
            self._send(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self.registry))
        elif path == "/status":
            broker = parse_qs(query, keep_blank_values=True).get("broker", [None])[-1]
            status = self.status[0](broker)
            if status is None:
                self._send(HTTPStatus.NOT_FOUND, _TEXT, b"no broker of that name\n")
            else:
                self._send(HTTPStatus.OK, _JSON, json.dumps(status).encode())
        elif path == "/healthz":
            self._send_word("the main loop turns" if self.is_healthy[0]() else None, "the main loop stands still")
        elif path == "/readyz":
            status = self.status[0](None)
            assert status is not None
            words = f"{status['state']}: {status['reason']}"
            self._send_word(words if status["state"] in _READY else None, words)
        else:
            self._send(HTTPStatus.NOT_FOUND, _TEXT, b"not found\n")

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def _send_word(self, good: str | None, bad: str) -> None:
        code = HTTPStatus.SERVICE_UNAVAILABLE if good is None else HTTPStatus.OK
        self._send(code, _TEXT, f"{bad if good is None else good}\n".encode())

    def _send(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        with suppress(ConnectionError, TimeoutError):
            self.send_response(code)
            for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of http.server
        """Log nothing: a scrape every few seconds would fill the log."""


_SOCKET, _WATCHDOG_USEC, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
# A status is a line for people, and a datagram has to be sent whole.
_STATUS_LENGTH_MAX = 600
_USEC = 1_000_000


class ServiceManager:
    """Sends messages to the service manager that started this process; without one, every method does nothing.

    A manager that is busy or gone must not stop or delay the run: each method returns whether the message was sent, or
    there was none, and the caller may try again.
    """

    def __init__(self) -> None:
        """Take the manager's address out of the environment, so that no process started later speaks for this one."""
        address = os.environ.pop(_SOCKET, "")
        watchdog, of_process = os.environ.pop(_WATCHDOG_USEC, ""), os.environ.pop(_WATCHDOG_PID, "")
        #: How often `alive` has to be called, in seconds: twice within the manager's limit; None without a watchdog.
        self.alive_every_s: float | None = None
        if watchdog.isdecimal() and int(watchdog) and of_process in ("", str(os.getpid())):
            self.alive_every_s = int(watchdog) / _USEC / 2
        self._address = f"\0{address[1:]}" if address[:1] == "@" else address  # @ begins an abstract name

    def ready(self) -> bool:
        """Report that the service does its work from now on."""
        return self._send("READY=1")

    def status(self, words: str) -> bool:
        """Report what the service does, in a line that ``systemctl status`` shows."""
        return self._send(f"STATUS={printable(words)[:_STATUS_LENGTH_MAX]}")

    def alive(self) -> bool:
        """Report to the watchdog that the main loop turns."""
        return self._send("WATCHDOG=1")

    def stopping(self) -> bool:
        """Report that the service has begun to stop."""
        return self._send("STOPPING=1")

    def _send(self, message: str) -> bool:
        if self._address[:1] not in ("/", "\0"):
            return True
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(errors="replace"), self._address)
            return True
        return False
