"""Start real RocketMQ name servers, brokers and clients on loopback.

Example::

    rocketmq = RocketMQ("4.9.3")
    with (
        rocketmq.name_server(home / "namesrv") as name_server,
        rocketmq.broker(home / "broker", name_server, {"mappedFileSizeCommitLog": 1 << 20}) as broker,
    ):
        sent = rocketmq.workload("send", name_server, topics="A:4,B:8", count=5000)
        broker.stop()
        store = broker.store
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.artifacts import HarnessError, missing_tools
from broker.release import Release
from broker.server import Broker, ConfValue, NameServer
from broker.workload import Workload

__all__ = ["Broker", "HarnessError", "NameServer", "RocketMQ", "Workload", "available"]


def available() -> str | None:
    """Return None when Java and Maven are present, else a sentence that says what is missing."""
    return missing_tools()


class RocketMQ(Release):
    """One release of RocketMQ and everything that can be started from it."""

    def name_server(self, home: Path, conf: Mapping[str, ConfValue] | None = None) -> NameServer:
        """Return a name server that keeps its files in ``home``; ``with`` or ``start()`` starts it.

        ``conf`` is put over the defaults of the harness.
        """
        return NameServer(self, home, conf or {})

    def broker(self, home: Path, name_server: NameServer, conf: Mapping[str, ConfValue] | None = None) -> Broker:
        """Return a broker that keeps its files in ``home``, its store in ``home/store``.

        ``conf`` is put over the defaults of ``broker.conf``; ``with`` or ``start()`` starts it.
        """
        return Broker(self, home, name_server, conf or {})

    def start_workload(self, command: str, name_server: NameServer | str, **arguments: object) -> Workload:
        """Start a subcommand of the Java client in the background; its class documents the arguments."""
        return Workload(self, command, str(name_server), arguments)

    def workload(self, command: str, name_server: NameServer | str, **arguments: object) -> dict[str, Any]:
        """Run a subcommand of the Java client to its end and return the JSON it printed.

        Raises
        ------
        HarnessError
            It failed, or ran longer than 600 s.
        """
        with self.start_workload(command, name_server, **arguments) as running:
            return running.wait()
