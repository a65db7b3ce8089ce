"""Metrics, health, status and the page over HTTP, asked for by a real client."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reput.source.errors import EnvironmentSetupError
from reput.streaming.status.publisher import StatusPublisher
from reput.streaming.status.run_state import RunState

HOSTILE = "<img src=x onerror=alert(1)>"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def served(*states: RunState, clock: Clock | None = None) -> Iterator[tuple[int, StatusPublisher]]:
    runs = [(state, Path("nowhere")) for state in states]
    with StatusPublisher(runs, {"versions": {"reput": "1"}}, port=0, clock=clock or Clock()) as publisher:
        assert publisher.port is not None
        yield publisher.port, publisher


def ask(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("localhost", port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@pytest.fixture
def state() -> RunState:
    made = RunState("http-a", {"store": HOSTILE})
    made.on_running("logic", 5)
    return made


def test_each_path_answers(state: RunState) -> None:
    """And no other does."""
    with served(state) as (port, _):
        for path, kind in {
            "/": "text/html",
            "/page.css": "text/css",
            "/page.js": "text/javascript",
            "/metrics": "text/plain",
            "/status": "application/json",
            "/healthz": "text/plain",
            "/readyz": "text/plain",
        }.items():
            code, headers, body = ask(port, path)
            assert (code, headers["content-type"].split(";")[0]) == (200, kind), path
            assert int(headers["content-length"]) == len(body) > 0
            assert headers["content-security-policy"].startswith("default-src 'none'")
            assert ask(port, path, "HEAD")[::2] == (200, b"")
        assert ask(port, "/../status_file.py")[0] == 404
        assert ask(port, "/status", "POST")[0] == 501


def test_the_status_is_one_document(state: RunState) -> None:
    """The same that `reput status --json` prints."""
    with served(state) as (port, publisher):
        told = json.loads(ask(port, "/status?x=1")[2])
        assert {**told, "at": 0} == {**json.loads(json.dumps(publisher.document())), "at": 0}
        assert told["state"] == "running"
        assert told["brokers"][0]["store"] == HOSTILE


def test_ready_and_healthy_are_two_things(state: RunState) -> None:
    """A query that waits is not ready, and a restart would not help; a main loop that stands still is not healthy."""
    clock = Clock()
    with served(state, clock=clock) as (port, publisher):
        assert ask(port, "/healthz")[0] == 200  # the loop has yet to begin
        publisher.turn()
        state.on_waiting("logic", HOSTILE, 5.0, 1)
        code, headers, body = ask(port, "/readyz")
        assert (code, headers["content-type"].split(";")[0]) == (503, "text/plain")
        assert HOSTILE.encode() in body
        assert ask(port, "/healthz")[0] == 200
        clock.now += 121
        assert ask(port, "/healthz")[0] == 503
        publisher.turn()
        state.on_resumed("logic")
        assert (ask(port, "/healthz")[0], ask(port, "/readyz")[0]) == (200, 200)


def test_of_several_brokers_the_worst_counts(state: RunState) -> None:
    """One that waits makes the whole process not ready, and is named."""
    other = RunState("http-b")
    other.on_running("logic", 1)
    other.on_waiting("logic", "no room", 5.0, 1)
    with served(state, other) as (port, _):
        told = json.loads(ask(port, "/status")[2])
        assert told["state"] == "waiting"
        assert told["reason"].startswith("http-b: logic has waited")
        assert [each["state"] for each in told["brokers"]] == ["running", "waiting"]


def test_a_port_that_is_taken_is_one_line() -> None:
    """With what to do."""
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentSetupError, match=f"^metricsPort={port}: cannot listen on localhost: .*in use"):
            StatusPublisher([(RunState("http-c"), Path("nowhere"))], {}, port=port)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_a_host_that_is_not_here_is_one_line(host: str) -> None:
    """Neither an unknown name nor another machine's address."""
    with pytest.raises(EnvironmentSetupError, match="cannot listen on"):
        StatusPublisher([(RunState("http-d"), Path("nowhere"))], {}, host=host, port=1)


def test_a_client_that_goes_away_disturbs_nobody(state: RunState, capfd: pytest.CaptureFixture[str]) -> None:
    """Nor one that never says what it wants; nothing is printed."""
    with served(state) as (port, _):
        silent = socket.create_connection(("localhost", port))
        with socket.create_connection(("localhost", port)) as rude:
            rude.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert ask(port, "/status")[0] == 200
        silent.close()
    assert capfd.readouterr() == ("", "")
