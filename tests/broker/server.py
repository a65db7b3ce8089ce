"""Name server and broker as context managers: started when they answer, stopped cleanly or killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from broker import remoting
from broker.artifacts import HarnessError
from broker.java_process import LOOPBACK, JavaProcess, free_port, port_open, tail, wait_until
from broker.release import Release

if TYPE_CHECKING:
    from typing_extensions import Self

ConfValue = str | int | bool

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0
NAME_SERVER_JVM = ("-Xms64m", "-Xmx256m")
BROKER_JVM = (
    "-Xms256m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    # On a disk that is nearly full the broker would refuse messages, or delete files that a test needs.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)


class _Server:
    """The parts common to name server and broker: a home, a process, and an end."""

    def __init__(self, release: Release, home: Path) -> None:
        self.release = release
        self.home = home.resolve()
        self._process: JavaProcess | None = None

    def start(self) -> Self:
        """Start it and wait until it answers."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.exit_code() is None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "not started"
        return self._process.pid

    def log_tail(self) -> str:
        """Return the end of the log, of stdout and of stderr."""
        return tail(self.home / "rocketmq.log", self.home / "stdout", self.home / "stderr")

    def kill(self) -> None:
        """End the process with SIGKILL and wait until it is gone; harmless when it is not running."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the process with SIGTERM and wait until it is gone; harmless after ``stop`` and ``kill``.

        Raises
        ------
        HarnessError
            It had ended by itself, or still ran after ``timeout_s`` and had to be killed.
        """
        process = self._process
        if process is None:
            return
        crashed = process.exit_code()
        process.terminate()
        code = process.wait(timeout_s)
        self.kill()
        if crashed is not None:
            raise HarnessError(f"{self.home.name} had ended by itself with {crashed}\n{self.log_tail()}")
        if code is None:
            raise HarnessError(f"{self.home.name} did not stop in {timeout_s:g} s\n{self.log_tail()}")

    def _start(
        self,
        jvm: Sequence[str],
        main_class: str,
        conf: Mapping[str, ConfValue],
        ready: Mapping[str, Callable[[], bool]],
    ) -> None:
        """Start the main class on a configuration file and wait for each condition in turn."""
        assert self._process is None, f"{self.home.name} is already started"
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / "server.conf"
        write_conf(path, conf)
        self._process = self.release.launch(self.home, jvm, main_class, "-c", str(path))
        try:
            for what, check in ready.items():
                wait_until(check, self._process, START_TIMEOUT_S, what)
        except HarnessError as e:
            self.kill()
            raise HarnessError(f"{self.home.name} did not start: {e}\n{self.log_tail()}") from e
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it; kill it when the body failed, so that the body's error is the one that is seen."""
        try:
            if kind is None:
                self.stop()
        finally:
            self.kill()


class NameServer(_Server):
    """A name server on a free loopback port; ``str()`` gives its address. `conf` is put over its settings."""

    def __init__(self, release: Release, home: Path, conf: Mapping[str, ConfValue]) -> None:
        super().__init__(release, home)
        self._conf = conf
        self.port = free_port()

    @property
    def address(self) -> str:
        """Host and port, as clients want it."""
        return f"{LOOPBACK}:{self.port}"

    def __str__(self) -> str:
        """Return the address."""
        return self.address

    def start(self) -> Self:
        """Start it and wait until it accepts connections.

        Raises
        ------
        HarnessError
            It did not start; the message holds the end of its log.
        """
        self._start(
            NAME_SERVER_JVM,
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            {"listenPort": self.port, "bindAddress": LOOPBACK, **self._conf},
            {f"listen on port {self.port}": partial(port_open, self.port)},
        )
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Kill it: it keeps nothing that is read later, and a clean stop takes it five seconds.

        Raises
        ------
        HarnessError
            It had ended by itself.
        """
        process = self._process
        if process is None or process.writes_archive or not self.running:
            super().stop(timeout_s)
        self.kill()


class Broker(_Server):
    """A master broker on free loopback ports; it can be started again after ``stop`` or ``kill``.

    ``conf`` is ``broker.conf`` as a dict and may be changed between starts. The caller's settings win over the
    defaults: ports, addresses and paths of the harness, waits long enough for a busy machine; every other setting is
    the broker's own default.
    """

    def __init__(self, release: Release, home: Path, name_server: NameServer, conf: Mapping[str, ConfValue]) -> None:
        super().__init__(release, home)
        self.name_server = name_server
        store = Path(str(conf.get("storePathRootDir", self.home / "store")))
        self.conf: dict[str, ConfValue] = {
            "brokerClusterName": "reput",
            "brokerName": "broker-a",
            "brokerId": 0,
            # The broker also takes listenPort - 2 (the "fast" port) and listenPort + 1 (replication).
            "listenPort": free_port(beside=(-2, 1)),
            "bindAddress": LOOPBACK,
            "brokerIP1": LOOPBACK,
            "brokerIP2": LOOPBACK,
            "namesrvAddr": name_server.address,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "fileReservedTime": 720,
            "diskMaxUsedSpaceRatio": 95,
            # Sends that come faster than they are stored wait here instead of being refused.
            "sendThreadPoolQueueCapacity": 100_000,
            "waitTimeMillsInSendQueue": 10_000,
            "osPageCacheBusyTimeOutMills": 10_000,
            "maxTransferCountOnMessageInMemory": 1000,
            "maxTransferCountOnMessageInDisk": 1000,
            # 5.x waits for its first flush in a loop without a pause: ten seconds of a core by default.
            "transactionMetricFlushInterval": 200,
            # By default 5.x flushes its timers every second: an idle broker took a third of a core.
            "timerFlushIntervalMs": 60_000,
            **conf,
        }

    @property
    def port(self) -> int:
        """The port that clients talk to."""
        return int(self.conf["listenPort"])

    @property
    def address(self) -> str:
        """Host and port under which the broker is registered."""
        return f"{self.conf['brokerIP1']}:{self.port}"

    @property
    def store(self) -> Path:
        """The store's root: commitlog/, consumequeue/, index/, checkpoint, abort."""
        return Path(str(self.conf["storePathRootDir"]))

    def start(self) -> Self:
        """Start it and wait until it accepts connections and the name server knows it.

        Raises
        ------
        HarnessError
            It did not start; the message holds the end of its log.
        """
        self._start(
            BROKER_JVM,
            "org.apache.rocketmq.broker.BrokerStartup",
            self.conf,
            {
                f"listen on port {self.port}": partial(port_open, self.port),
                f"register at {self.name_server}": partial(remoting.knows_broker, self.name_server.port, self.address),
            },
        )
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End the broker with SIGTERM, wait for its shutdown and check that it was clean.

        Raises
        ------
        HarnessError
            It had ended by itself, had to be killed after ``timeout_s``, or left its ``abort`` file behind.
        """
        started = self._process is not None
        super().stop(timeout_s)
        if started and (self.store / "abort").exists():
            raise HarnessError(f"the broker left {self.store / 'abort'} behind\n{self.log_tail()}")


def write_conf(path: Path, conf: Mapping[str, ConfValue]) -> None:
    """Write a Java properties file, ASCII with escapes."""
    lines = []
    for name, value in conf.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        # JSON and Java properties share these escapes: \uXXXX, a doubled backslash, a quote.
        lines.append(f"{name}={json.dumps(text)[1:-1]}\n")
    path.write_text("".join(lines), encoding="ascii")
