"""`/metrics`, `/healthz`, `/readyz`, `/status` and `/`, served from a thread of the driver."""

from __future__ import annotations

import json
import threading
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
_REQUEST_WITHIN_S = 10.0
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
    daemon_threads = True
    # A client that vanished in the middle of an answer is no event.
    request_queue_size = 16

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the client has gone."""


class _Handler(BaseHTTPRequestHandler):
    # One-element lists, since a function in a class would become a method.
    status: ClassVar[list[Callable[[str | None], dict[str, Any] | None]]]
    is_healthy: ClassVar[list[Callable[[], bool]]]
    registry: ClassVar[CollectorRegistry]

    server_version = "reput"
    sys_version = ""
    timeout = _REQUEST_WITHIN_S

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
