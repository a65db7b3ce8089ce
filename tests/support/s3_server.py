"""An S3 server on this machine for tests: moto, one request at a time, good or bad in one of several ways."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "bucket"
WRONG_KEY = "wrong"
_KEY = re.compile(r"Credential=([^/]+)/")
Answer = Iterable[bytes]


class S3Server:
    """Answers on a port of its own.

    It may be bad: `ignores` the condition of a put, `refuses` one with it, is `lossy` (does the first of a key and
    says that it could not), says of the first that there is a `conflict`, or is `flaky` (has an error for every third
    request). `requests` are methods with paths.
    """

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self.requests: list[str] = []
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._seen: set[str] = set()
        # moto looks and then puts, so two at a time could both win.
        self._listen(0)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _listen(self, port: int) -> None:
        self._server = make_server("127.0.0.1", port, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Stop listening during the block; stored objects stay."""
        self.close()
        try:
            yield
        finally:
            self._listen(self._server.server_port)

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which a client finds it, and asks no other server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
            "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Answer:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        key = _KEY.search(environ.get("HTTP_AUTHORIZATION", ""))
        if key is not None and key[1] == WRONG_KEY:
            return _error(environ, start, "403 Forbidden", "InvalidAccessKeyId")
        is_conditional = method == "PUT" and "HTTP_IF_NONE_MATCH" in environ
        if is_conditional and self.kind == "refuses":
            return _error(environ, start, "501 Not Implemented", "NotImplemented")
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self.kind == "flaky" and len(self.requests) % 3 == 0:
                return _error(environ, start, "500 Internal Server Error", "InternalError")
            is_first = is_conditional and path not in self._seen
            self._seen.update([path] if is_first else [])
            if self.kind == "ignores":
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if is_first and self.kind == "conflict":
                return _error(environ, start, "409 Conflict", "ConditionalRequestConflict")
            if is_first and self.kind == "lossy":
                list(self._app(environ, lambda *_: None))
                return _error(environ, start, "503 Service Unavailable", "SlowDown", reads=False)
            return list(self._app(environ, start))


def _error(environ: dict[str, Any], start: Callable[..., Any], status: str, code: str, *, reads: bool = True) -> Answer:
    if reads:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>test</Message></Error>".encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


@contextmanager
def s3_server(kind: str = "") -> Iterator[S3Server]:
    """A server with the bucket `BUCKET`."""
    import urllib.request

    server = S3Server(kind)
    try:
        request = urllib.request.Request(f"{server.url}/{BUCKET}", method="PUT")
        request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request")
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
        yield server
    finally:
        server.close()
