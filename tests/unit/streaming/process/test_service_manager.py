"""The messages of a run to systemd, at a real socket."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.seen_log import SeenLog

from reput.streaming.status.batch_report import LogEnd
from reput.streaming.status.publisher import ServiceManager, StatusPublisher
from reput.streaming.status.run_state import RunState

READY, WATCHDOG, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Systemd:
    """Listens where NOTIFY_SOCKET says."""

    def __init__(self, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{name[1:]}" if name[0] == "@" else name)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """Return the messages since the last call."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(65_536).decode())
            except BlockingIOError:
                return found


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short name: an address has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    name = f"@reput/{home.name}" if request.param == "abstract" else str(home / "notify")
    listener = Systemd(name)
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    yield listener
    listener.socket.close()


def test_each_message_is_one_datagram(systemd: Systemd) -> None:
    """In systemd's words; what a producer chose cannot add a line, and so no message of its own."""
    manager = ServiceManager()
    manager.ready()
    manager.alive()
    manager.status("waits: x\nMAINPID=1\x1b[2J ä")
    manager.status("y" * 10_000)
    manager.stopping()
    ready, alive, status, long, stopping = systemd.heard()
    assert (ready, alive, stopping) == (READY, WATCHDOG, STOPPING)
    assert status == "STATUS=waits: x\\nMAINPID=1\\x1b[2J ä"
    assert 100 < len(long) < 1_000


def test_no_process_started_later_speaks_for_this_one(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes inherit the environment."""
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert ServiceManager().alive_every_s == 0.5
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & set(os.environ)


@pytest.mark.parametrize(
    ("usec", "pid", "every_s"),
    [
        ("180000000", None, 90.0),
        ("180000000", "1", None),  # meant for another process
        ("0", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_the_watchdog(
    usec: str | None, pid: str | None, every_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half its limit; none where there is none, or where it watches another process."""
    for name, value in (("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert ServiceManager().alive_every_s == every_s


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "relative"])
def test_without_a_manager_nothing_happens(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor with an address of a kind that is not known."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    manager = ServiceManager()
    assert all(tell() for tell in (manager.ready, manager.alive, manager.stopping))


def test_a_manager_that_does_not_listen_is_not_waited_for(systemd: Systemd, home: Path) -> None:
    """Its socket fills, then it goes; what it did not take is known at once."""
    manager = ServiceManager()
    told = [manager.status("x" * 500) for _ in range(10_000)]
    assert len(systemd.heard()) == told.count(True) < 10_000
    assert manager.alive()
    systemd.socket.close()
    (home / "notify").unlink(missing_ok=True)
    assert not manager.alive()


@pytest.fixture
def run(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> tuple[RunState, StatusPublisher, Clock]:
    monkeypatch.setenv("WATCHDOG_USEC", "180000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    state, clock = RunState("a"), Clock()
    return state, StatusPublisher([(state, Path("nowhere"))], {}, clock=clock), clock


def test_a_run_tells_its_life(systemd: Systemd, run: tuple[RunState, StatusPublisher, Clock]) -> None:
    """Its stages at once, ready when every query runs and only then, and how it ended."""
    state, publisher, clock = run
    with publisher:
        state.on_stage("starts Spark")
        publisher.turn()
        assert systemd.heard() == ["STATUS=starting: starts Spark"]
        state.query("table")
        state.on_running("logic", 0)
        clock.now += 1_000
        publisher.turn()
        assert systemd.heard() == []  # the first word to the watchdog would arm it, and a start may take longer
        state.on_running("table", 0)
        publisher.turn()
        ready, status, alive = systemd.heard()
        assert (ready, status[:15], alive) == (READY, "STATUS=running:", WATCHDOG)
        publisher.stopping()
        assert systemd.heard() == [STOPPING]
        state.on_end("it ended as it was asked to", 0)
    assert systemd.heard() == [STOPPING, "STATUS=stopped: it ended as it was asked to"]


def test_what_a_busy_manager_did_not_take_is_told_again(
    systemd: Systemd, run: tuple[RunState, StatusPublisher, Clock]
) -> None:
    """A start that systemd has not heard of would be ended, and so would a loop that it believes to stand still."""
    state, publisher, clock = run
    state.on_running("logic", 0)
    while publisher._manager._manager.status("busy"):
        pass
    publisher.turn()
    assert publisher.is_healthy
    assert not {READY, WATCHDOG} & set(systemd.heard())
    clock.now += 0.2
    publisher.turn()
    heard = systemd.heard()
    assert (heard.count(READY), heard.count(WATCHDOG)) == (1, 1)
    clock.now += 0.2
    publisher.turn()
    assert systemd.heard() == []


def test_a_state_is_told_at_once_and_a_reason_now_and_then(
    systemd: Systemd, run: tuple[RunState, StatusPublisher, Clock]
) -> None:
    """The lag changes with each look; systemd writes its status onto a bus."""
    state, publisher, clock = run
    state.on_running("logic", 0)

    def turned(seconds: float) -> list[str]:
        clock.now += seconds
        publisher.turn()
        return [each for each in systemd.heard() if each.startswith("STATUS=")]

    assert len(turned(0)) == 1
    assert turned(30) == []
    state.look(SeenLog(LogEnd(7), {0: 0}))
    assert "7 B" in turned(30)[0]
    state.look(SeenLog(LogEnd(8), {0: 0}))
    assert turned(2) == []
    assert "8 B" in turned(9)[0]
    state.on_waiting("logic", "no room", 5.0, 1)
    assert turned(2)[0].startswith("STATUS=waiting: logic has waited")


def test_the_watchdog_hears_the_main_loop_alone(systemd: Systemd, run: tuple[RunState, StatusPublisher, Clock]) -> None:
    """Twice within its limit while the loop turns, and nothing from any thread once it stands still."""
    state, publisher, clock = run
    state.on_running("logic", 0)
    heard = []
    for _ in range(3_600):
        clock.now += 0.25
        publisher.turn()
        heard += systemd.heard()
    assert heard.count(WATCHDOG) == 900 / 90
    clock.now += 400
    publisher.document()
    assert systemd.heard() == []


def test_a_start_that_takes_minutes_is_healthy(run: tuple[RunState, StatusPublisher, Clock]) -> None:
    """The main thread waits for Spark then, which does not mean that the loop hangs."""
    state, publisher, clock = run
    publisher.turn()
    clock.now += 1_000
    assert publisher.is_healthy
    state.on_running("logic", 0)
    publisher.turn()
    clock.now += 121
    assert not publisher.is_healthy
