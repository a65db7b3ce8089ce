"""Metrics, health, status and the page over HTTP, asked for by a real client."""

from __future__ import annotations

import errno
import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from support.seen_log import SeenLog

from reput.source.errors import EnvironmentSetupError
from reput.streaming.status import publisher as http_server
from reput.streaming.status.batch_report import PHASES, BatchReport, LogEnd
from reput.streaming.status.publisher import StatusPublisher
from reput.streaming.status.run_state import RunState

# The size of /status for each of several brokers, and for one with its history.
OVERVIEW_BYTES_MAX, WHOLE_BYTES_MAX = 3_000, 100_000
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
    connection = http.client.HTTPConnection("localhost", port, timeout=60)
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


def an_hour_of(broker: str) -> RunState:
    """A run of both queries that has all it keeps: an hour of lags, batches, and more findings than are shown."""
    now = [1_800_000_000.123456]
    made = RunState(broker, {"store": f"/data/{broker}", "output": f"/out/{broker}"}, clock=lambda: now[0])
    for query in ("logic", "table"):
        made.on_running(query, 0)
    for number in range(720):
        now[0] += 5.000321
        for query in ("logic", "table"):
            start = 10**9 * number
            made.on_batch(
                BatchReport(query, start, start + 10**9, 4711, 0.123456789, phases=dict.fromkeys(PHASES, 0.1))
            )
            made.on_finding(query, f"[{start}, {start + 10**9}), quarantined: 1 BAD_CRC of TopicTest")
        end = LogEnd(10**9 * number + 2 * 10**9)
        made.look(SeenLog(end, {start + 10**9: round(1000 * now[0] - 1234.5)}))
    return made


def test_the_status_of_many_brokers_is_small() -> None:
    """Each page asks for it every two seconds; a broker's own document has the rest."""
    states = [an_hour_of(f"broker-{number}") for number in range(20)]
    with served(*states) as (port, _):
        overview = ask(port, "/status")[2]
        assert len(overview) < len(states) * OVERVIEW_BYTES_MAX
        alone = ask(port, "/status?broker=broker-7")[2]
        assert len(alone) < WHOLE_BYTES_MAX
        told, (broker,) = json.loads(overview)["brokers"], json.loads(alone)["brokers"]
        assert [each["broker"] for each in told] == [state.broker for state in states]
        assert [len(query["lags"]) for query in broker["queries"]] == [720, 720]
        assert [len(query["recent"]) for query in broker["queries"]] == [20, 20]
        assert broker["findings"][:5] == told[7]["findings"]
        assert len(broker["findings"]) == 50
        for query, brief in zip(broker.pop("queries"), told[7].pop("queries"), strict=True):
            assert {**brief, "lags": query["lags"], "recent": query["recent"]} == query
        assert ask(port, "/status?broker=broker-20")[::2] == (404, b"no broker of that name\n")
    with served(states[7]) as (port, _):
        assert json.loads(ask(port, "/status")[2])["brokers"] == json.loads(alone)["brokers"]


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


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_slow_connections_leave_descriptors(state: RunState, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that opens hundreds and sends nothing holds few of them, and others are answered all the time."""
    monkeypatch.setattr(http_server, "_CONNECTIONS_MAX", 8)
    with served(state) as (port, _), ExitStack() as stack:
        before = descriptors()
        for number in range(300):
            slow = stack.enter_context(socket.create_connection(("localhost", port)))
            slow.sendall(b"GET / HT")
            if number % 50 == 49:
                assert ask(port, "/healthz")[0] == 200
        assert ask(port, "/metrics")[0] == 200
        # Of each pair of sockets one is the client's.
        assert descriptors() - before <= 300 + 8 + 2


def test_a_connection_that_takes_too_long_is_ended(state: RunState, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sends a byte now and then as well as one that says nothing."""
    monkeypatch.setattr(http_server, "_CONNECTION_WITHIN_S", 0.5)
    with served(state) as (port, _), ExitStack() as stack:
        before = descriptors()
        slow, silent = (stack.enter_context(socket.create_connection(("localhost", port))) for _ in range(2))
        began = time.monotonic()
        with suppress(ConnectionError):
            for byte in b"GET /status HTTP/1.0" + 600 * b"x":
                slow.sendall(bytes([byte]))
                time.sleep(0.05)
                assert time.monotonic() - began < 60
        silent.settimeout(60)
        with suppress(ConnectionError):
            assert silent.recv(1) == b""
        while descriptors() > before + 2:
            time.sleep(0.02)
            assert time.monotonic() - began < 60
        monkeypatch.undo()  # a busy machine may take half a second to answer
        assert ask(port, "/status")[0] == 200


def test_without_descriptors_it_waits(state: RunState, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that cannot be accepted is not tried again thousands of times a second."""
    tried, accept = [], socket.socket.accept

    def fails(listening: socket.socket) -> object:
        tried.append(0)
        if len(tried) < 4:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(listening)

    with served(state) as (port, _):
        monkeypatch.setattr(socket.socket, "accept", fails)
        began = time.monotonic()
        assert ask(port, "/healthz")[0] == 200
        assert time.monotonic() - began > 0.25
