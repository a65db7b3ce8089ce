"""Events that happen to a running `reput tail`, its broker and its disks; and reput's promises for each."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from faults.live_break.disk import Disk
from faults.live_break.live_broker import LiveBroker, Tear
from faults.live_break.processes import Process, daemons, handles, send, workers
from faults.live_break.tail import SINKS, Paths, Tail

DONE, PERSON, TRY_AGAIN = 0, 1, 75
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BEGUN_SECONDS = 30
FROZEN_SEGMENTS = 2


@dataclass(frozen=True)
class Expect:
    """The promised consequences of an event.

    Attributes
    ----------
    codes
        Exit codes that are promised if the tail ends.
    ends
        True if it must end, False if it must continue, None if either is right.
    lift
        Takes the fault away once the tail has ended, or after the time that it gets for that.
    ghosts
        Sinks that have records which the log has lost: the tail must report that.
    tear
        The remains of the log after the power failure.
    lost
        For each sink, the part of the log that expired before it was read: from, to (exclusive).
    """

    codes: frozenset[int]
    ends: bool | None
    lift: Callable[[], None] | None = None
    ghosts: tuple[str, ...] = ()
    tear: Tear | None = None
    lost: dict[str, tuple[int, int]] = field(default_factory=dict)


class Scene(Protocol):
    """The objects on which events work."""

    paths: Paths
    broker: LiveBroker
    disks: dict[str, Disk]

    @property
    def tail(self) -> Tail:
        """The newest run of the tail."""

    def start_tail(self) -> None:
        """Start another run of the tail; the one before has ended."""


Event = Callable[[Scene, Random], Expect]


def expect(*codes: int, ends: bool | None = True, lift: Callable[[], None] | None = None) -> Expect:
    """The plain cases."""
    return Expect(frozenset(codes), ends, lift)


# --- parts of reput die ----------------------------------------------------------------------------------


def kill_driver(scene: Scene, rng: Random) -> Expect:
    """The JVM and the workers have to notice by themselves."""
    scene.tail.signal(signal.SIGKILL)
    return expect(-signal.SIGKILL)


def kill_group(scene: Scene, rng: Random) -> Expect:
    """As the system does when a service is ended the hard way."""
    scene.tail.signal_group(signal.SIGKILL)
    return expect(-signal.SIGKILL)


def kill_jvm(scene: Scene, rng: Random) -> Expect:
    """Spark is gone, and is started again."""
    send([process for process in scene.tail.processes() if process.is_jvm], signal.SIGKILL)
    return expect(ends=False)


def kill_daemon(scene: Scene, rng: Random) -> Expect:
    """The parent of the workers."""
    return _kill_one_of(scene, daemons, rng)


def kill_worker(scene: Scene, rng: Random) -> Expect:
    """As the system does when memory is short."""
    return _kill_one_of(scene, workers, rng)


def _kill_one_of(scene: Scene, role: Callable[[Sequence[Process]], list[Process]], rng: Random) -> Expect:
    deadline = time.monotonic() + BEGUN_SECONDS
    while not (processes := role(scene.tail.processes())):
        assert time.monotonic() < deadline, f"a tail without {role.__name__}"
        time.sleep(0.1)
    send([rng.choice(processes)], signal.SIGKILL)
    return expect(ends=False)


def kill_while_it_starts(scene: Scene, rng: Random) -> Expect:
    """The group of a tail that is not ready yet."""
    _begin_again(scene)
    time.sleep(rng.uniform(0.2, 8))
    scene.tail.signal_group(signal.SIGKILL)
    return expect(-signal.SIGKILL)


# --- stops that are asked for ----------------------------------------------------------------------------


def stop_by(number: int, *, group: bool) -> Event:
    """One signal to the driver, or to its whole group as a terminal or a supervisor sends it."""

    def event(scene: Scene, rng: Random) -> Expect:
        _send_signal(scene.tail, number, group=group)
        return expect(DONE)

    return event


def _send_signal(tail: Tail, number: int, *, group: bool) -> None:
    if group:
        tail.signal_group(number)
    else:
        tail.signal(number)


def stop_twice(scene: Scene, rng: Random) -> Expect:
    """An impatient operator sends a second signal."""
    for _ in range(rng.randint(2, 3)):
        _send_signal(scene.tail, rng.choice(SIGNALS), group=rng.random() < 0.5)
        time.sleep(rng.uniform(0, 0.6))
    return expect(DONE)


def stop_while_it_starts(scene: Scene, rng: Random) -> Expect:
    """Any time after reput has begun to handle signals."""
    _begin_again(scene)
    deadline = time.monotonic() + BEGUN_SECONDS
    while not handles(scene.tail.pid, signal.SIGTERM) and scene.tail.running and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(rng.choice([0, rng.uniform(0, 1), rng.uniform(0, 8)]))
    _send_signal(scene.tail, rng.choice(SIGNALS), group=rng.random() < 0.5)
    return expect(DONE)


def stop_at_once(scene: Scene, rng: Random) -> Expect:
    """While Python still starts, and perhaps nothing handles the signal yet: then the signal itself may end it."""
    _begin_again(scene)
    time.sleep(rng.uniform(0, 1))
    number = rng.choice(SIGNALS)
    _send_signal(scene.tail, number, group=rng.random() < 0.5)
    return expect(DONE, -number, 128 + number)


def _begin_again(scene: Scene) -> None:
    """End the running tail for good, without looking at how, and start another."""
    scene.tail.kill_group()
    send(scene.tail.processes(), signal.SIGKILL)
    scene.start_tail()


# --- the broker ------------------------------------------------------------------------------------------


def broker_killed(scene: Scene, rng: Random) -> Expect:
    """All that it wrote is still there."""
    scene.broker.kill()
    time.sleep(rng.uniform(0, 3))
    scene.broker.restart()
    return expect(ends=False)


def torn(shape: str) -> Event:
    """The broker's machine loses power: its last records are not whole, it cuts them off and writes on."""

    def event(scene: Scene, rng: Random) -> Expect:
        scene.broker.kill()
        time.sleep(rng.choice([0, 0, 2]))  # time for the tail to read the records that are about to go
        tear = scene.broker.tear(rng, shape)
        time.sleep(rng.uniform(0, 2))
        ghosts = tuple(name for name, end in scene.paths.progress().items() if end > tear.cut)
        scene.broker.restart()
        # Without ghosts in a sink, a batch may still have been under way that was planned with them.
        return Expect(frozenset({PERSON, TRY_AGAIN}), ends=None, ghosts=ghosts, tear=tear)

    return event


def expiry(scene: Scene, rng: Random) -> Expect:
    """The broker deletes what it has, but for the last segment."""
    scene.broker.wait_until_it_deletes()
    if len(scene.broker.segments) < FROZEN_SEGMENTS:
        scene.broker.send_segments(1)
    return _expire(scene, scene.paths.progress())


def expiry_while_frozen(scene: Scene, rng: Random) -> Expect:
    """The tail stands still, as on a machine that is suspended, while segments come and expire."""
    scene.broker.wait_until_it_deletes()
    processes = scene.tail.processes()
    send(processes, signal.SIGSTOP)
    before = scene.paths.progress()
    try:
        scene.broker.send_segments(FROZEN_SEGMENTS)
        return _expire(scene, before)
    finally:
        send(processes, signal.SIGCONT)


def _expire(scene: Scene, before: dict[str, int]) -> Expect:
    least = scene.broker.expire()
    lost = {name: (before[name], least) for name in SINKS if before[name] < least}
    return Expect(frozenset(), ends=False, lost=lost)


# --- the disks -------------------------------------------------------------------------------------------


def full(disk: str) -> Event:
    """Not a byte is left, for a while, which is waited for."""

    def event(scene: Scene, rng: Random) -> Expect:
        scene.disks[disk].fill()
        time.sleep(rng.uniform(1, 20))
        scene.disks[disk].free()
        return expect(ends=False)

    return event


def read_only(disk: str) -> Event:
    """Nothing can be opened for writing, for a while."""

    def event(scene: Scene, rng: Random) -> Expect:
        scene.disks[disk].make_read_only()
        return expect(TRY_AGAIN, PERSON, ends=None, lift=scene.disks[disk].make_writable)

    return event


EVENTS: dict[str, Event] = {
    "kill driver": kill_driver,
    "kill group": kill_group,
    "kill JVM": kill_jvm,
    "kill daemon": kill_daemon,
    "kill worker": kill_worker,
    "kill at start": kill_while_it_starts,
    **{f"{number.name} driver": stop_by(number, group=False) for number in SIGNALS},
    **{f"{number.name} group": stop_by(number, group=True) for number in SIGNALS},
    "stop twice": stop_twice,
    "stop at start": stop_while_it_starts,
    "stop at once": stop_at_once,
    "broker killed": broker_killed,
    **{f"torn {shape}": torn(shape) for shape in ("border", "header", "body", "page")},
    "expiry": expiry,
    "expiry frozen": expiry_while_frozen,
    "full output": full("output"),
    "full table": full("table"),
    "read-only output": read_only("output"),
    "read-only table": read_only("table"),
}


def choose(seed: int, count: int) -> list[str]:
    """So many kinds of event in an order that the seed decides; each kind about as often as any other."""
    rng = Random(seed)
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += rng.sample(list(EVENTS), len(EVENTS))
    chosen = kinds[:count]
    rng.shuffle(chosen)
    return chosen
