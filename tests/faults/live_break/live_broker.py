"""The broker of the live break test: under load, killed with its log's tail torn, and expiring its segments."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from broker import remoting
from broker.rocketmq import Broker, HarnessError, NameServer, RocketMQ, Workload

SEGMENT_BYTES = 2 << 20
CONF: dict[str, str | int | bool] = {
    "mappedFileSizeCommitLog": SEGMENT_BYTES,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    # Segments may be deleted at any hour, but none is old enough until a test says so.
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": 1000,
}
TOPICS = "A:4,B:8,C:1"
KEEP_HOURS = 720
# A broker deletes nothing in its first minute.
FIRST_CLEAN_SECONDS = 62
EXPIRY_SECONDS = 60
POLL_SECONDS = 0.2
PAGE_BYTES = 4096
HEADER_BYTES = 84  # of a record with IPv4 addresses
RECORDS_TORN_MAX = 20
TEARS = ("border", "header", "body", "page")

_MAGICS = {0xDAA320A7, 0xDAA320AB}
_BODY_SIZE_AT, _BODY_AT = HEADER_BYTES, HEADER_BYTES + 4


def record_positions(segment: Path) -> Iterator[tuple[int, int]]:
    """Place in the segment, and size, of each record that follows from the one before."""
    data, at, first = segment.read_bytes(), 0, int(segment.name)
    while at + _BODY_AT <= len(data):
        size, magic = struct.unpack_from(">II", data, at)
        own = struct.unpack_from(">q", data, at + 28)[0]
        if magic not in _MAGICS or own != first + at or not _BODY_AT < size <= len(data) - at:
            return
        yield at, size
        at += size


@dataclass(frozen=True)
class Tear:
    """The remains after a power failure: `cut` is the physical offset of the first record that the log has lost."""

    shape: str
    cut: int
    end: int


def tear_segment(segment: Path, rng: Random, shape: str) -> Tear:
    """Damage the end of a log as a power failure may: some of its last records have not reached the disk.

    ``border``, ``header`` and ``body`` say where in a record the zeros begin; of a ``page``, one page has not reached
    the disk but the bytes after it have. The first record is always damaged where a broker looks.
    """
    data, positions = segment.read_bytes(), list(record_positions(segment))
    end = sum(positions[-1])
    at, _ = positions[-rng.randint(1, min(RECORDS_TORN_MAX, len(positions)))]
    body_size = struct.unpack_from(">i", data, at + _BODY_SIZE_AT)[0]
    begin = {
        "border": at,
        "header": at + rng.randint(4, _BODY_SIZE_AT - 1),
        "body": at + _BODY_AT + rng.randrange(max(1, body_size // 2)),
        "page": at,
    }[shape]
    stop = end if shape != "page" else min(end, begin + HEADER_BYTES + -(begin + HEADER_BYTES) % PAGE_BYTES)
    assert any(data[begin : min(stop, at + _BODY_AT + body_size)]), f"nothing was torn at {begin} of {segment}"
    with segment.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(stop - begin))
    return Tear(shape, int(segment.name) + at, int(segment.name) + end)


class LiveBroker:
    """Name server, broker and load; `archive` is a store that has every segment there ever was.

    The archive's segments are links to the broker's, so that both are cut and written over as one. `conf` is put over
    `CONF`.
    """

    def __init__(
        self, rocketmq: RocketMQ, work: Path, rate: int, conf: Mapping[str, str | int | bool] | None = None
    ) -> None:
        self._rocketmq = rocketmq
        self._rate = rate
        self._names: NameServer = rocketmq.name_server(work / "namesrv")
        self._broker: Broker = rocketmq.broker(
            work / "broker", self._names, {**CONF, **(conf or {}), "fileReservedTime": KEEP_HOURS}
        )
        self._load: Workload | None = None
        self._loads = 0
        self._started = 0.0
        self.archive = work / "archive"
        self._archived = threading.Lock()
        self._ended = threading.Event()
        self._archivist = threading.Thread(target=self._archive_always, daemon=True)

    @property
    def pid(self) -> int:
        """The broker's process."""
        return self._broker.pid

    @property
    def store(self) -> Path:
        """The store's root."""
        return self._broker.store

    @property
    def port(self) -> int:
        """Where it answers."""
        return self._broker.port

    @property
    def conf(self) -> Path:
        """The broker.conf that it was started with."""
        return self._broker.home / "server.conf"

    @property
    def segments(self) -> list[Path]:
        """The log's files."""
        return sorted((self.store / "commitlog").iterdir())

    @property
    def min_offset(self) -> int:
        """Where the log begins."""
        return int(self.segments[0].name)

    def start(self) -> None:
        """Start all of it and wait for the first messages."""
        self._names.start()
        self._start_broker()
        (self.archive / "commitlog").mkdir(parents=True)
        self._archivist.start()
        self.start_load()
        deadline = time.monotonic() + EXPIRY_SECONDS
        while self.log_end() == 0:
            assert time.monotonic() < deadline, "no message reached the broker"
            time.sleep(POLL_SECONDS)

    def start_load(self) -> None:
        """Begin to send, or begin again."""
        self._loads += 1
        sizes = {"rate": self._rate, "seconds": 10**6, "threads": 2, "mode": "async", "bodyMax": 600}
        self._load = self._rocketmq.start_workload("send", self._names, topics=TOPICS, seed=self._loads, **sizes)

    def workload(self, command: str, **arguments: object) -> Workload:
        """Start another subcommand of the Java client on the same topics."""
        return self._rocketmq.start_workload(command, self._names, topics=TOPICS, **arguments)

    def _start_broker(self) -> None:
        self._broker.start()
        self._started = time.monotonic()

    def log_end(self) -> int:
        """The offset after the last record."""
        with contextlib.suppress(FileNotFoundError):
            for segment in reversed(self.segments):
                positions = list(record_positions(segment))
                if positions:
                    return int(segment.name) + sum(positions[-1])
        return 0

    def stop_load(self) -> None:
        """No more messages."""
        assert self._load is not None
        assert self._load.running, "the load ended by itself"
        self._load.kill()

    def stop(self) -> str | None:
        """Stop the broker cleanly; what it did instead, if it did not."""
        try:
            self._broker.stop()
        except HarnessError as error:
            return str(error).splitlines()[0]
        return None

    def end(self) -> None:
        """Leave nothing running."""
        self._ended.set()
        if self._archivist.is_alive():
            self._archivist.join()
        if self._load is not None:
            self._load.kill()
        self._broker.kill()
        self._names.kill()

    # --- the archive -------------------------------------------------------------------------------------

    def _archive_always(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self._archive_now()

    def _archive_now(self) -> None:
        with self._archived:
            for segment in self.segments:
                link = self.archive / "commitlog" / segment.name
                # A segment may go while it is looked at, and come again as another file.
                with contextlib.suppress(FileNotFoundError):
                    if link.exists() and not link.samefile(segment):
                        link.unlink()
                    if not link.exists():
                        os.link(segment, link)

    def settle_archive(self) -> None:
        """The archive without segments that the broker cut away; after the load has stopped."""
        self._archive_now()
        last = self.segments[-1].name
        with self._archived:
            for link in (self.archive / "commitlog").iterdir():
                if link.name > last:
                    link.unlink()

    # --- what happens to it ------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL."""
        self._broker.kill()

    def restart(self) -> None:
        """Start it again after it was killed: it recovers, cuts its log where that is torn, and writes on."""
        self._start_broker()

    def tear(self, rng: Random, shape: str) -> Tear:
        """Damage the end of the killed broker's log; see `tear_segment`."""
        segment = next(segment for segment in reversed(self.segments) if next(record_positions(segment), None))
        return tear_segment(segment, rng, shape)

    def wait_until_it_deletes(self) -> None:
        """Until the broker's first minute is over."""
        time.sleep(max(0.0, self._started + FIRST_CLEAN_SECONDS - time.monotonic()))

    def send_segments(self, count: int) -> None:
        """Send messages for this many segments, at once, in addition to the load."""
        target = self.log_end() + count * SEGMENT_BYTES
        while self.log_end() < target:
            self._rocketmq.workload("send", self._names, topics=TOPICS, count=4000, mode="async", bodyMax=1000)

    def expire(self) -> int:
        """Have the broker delete every segment but the last as expired; where the log begins then."""
        before, deadline = self.min_offset, time.monotonic() + EXPIRY_SECONDS
        self._archive_now()
        remoting.update_broker_config(self._broker.port, "fileReservedTime", 0)
        while self.min_offset == before:
            assert time.monotonic() < deadline, f"the broker has deleted no segment:\n{self._broker.log_tail()}"
            time.sleep(POLL_SECONDS)
        remoting.update_broker_config(self._broker.port, "fileReservedTime", KEEP_HOURS)
        time.sleep(1)  # the pass under way may delete more
        return self.min_offset

    def copy_conf(self, target: Path) -> None:
        """Give the broker.conf under a name at which the broker never writes."""
        shutil.copy(self.conf, target)
