"""`/metrics`, `/healthz`, `/readyz`, `/status` and `/`, served from a thread of the driver."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import TracebackType
from typing import Any, ClassVar, Final
from urllib.parse import parse_qs

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from reput.source.errors import EnvironmentSetupError
from reput.streaming.status.judgement import State

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
# A request and its answer, however slowly a client sends or reads; so many at once.
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

        `status` gives the document of all brokers, or of the one of a name; None where none has that name.

        Raises
        ------
        EnvironmentSetupError
            The port is taken, may not be used, or the host is none of this machine's.
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

    Whoever may reach the port may open connections and say nothing. Each takes a descriptor of the process that needs
    some for the log, the output and Spark. So the oldest connection ends where there are too many: an answer takes
    milliseconds, and a new client, such as a probe, is still answered.
    """

    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._changed = threading.Condition()
        # By connection, in the order in which they came; None for one that is being ended.
        self._began_at: dict[Any, float | None] = {}

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; where that fails, as for want of descriptors, not again at once."""
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
            # The threads of those that were ended may not have seen it yet.
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
        """Have the thread of a connection see its end, and close it."""
        self._began_at[request] = None
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the client has gone."""


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
