"""Hand use, from the directory ``tests``.

A name server and a broker until Ctrl-C, with settings of ``broker.conf`` as ``name=value``::

    python -m broker up 4.9.3 HOME mappedFileSizeCommitLog=1048576

A client, in another terminal, with the address that the first one printed::

    python -m broker send 4.9.3 127.0.0.1:PORT topics=A:4,B:8 rate=2000 seconds=60

A broker on a copy of STORE (a directory with ``broker.conf`` and ``store/``, closed cleanly) with the queues, index and
checkpoint of OUTPUT, and everything asked of it; one line of a table, exit code 1 when anything is wrong::

    python -m broker boot 4.9.3 STORE OUTPUT [queriesMax=1000]
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from pathlib import Path

from broker.boot_check import boot_check
from broker.rocketmq import RocketMQ


def up(version: str, home: Path, conf: dict[str, str]) -> None:
    """Run a name server and a broker until a signal, then stop them cleanly."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rocketmq = RocketMQ(version)
    with rocketmq.name_server(home / "namesrv") as name_server:
        broker = rocketmq.broker(home / "broker", name_server, dict(conf))
        with broker:
            print(f"name server {name_server}, broker {broker.address}, store {broker.store}", flush=True)
            try:
                signal.pause()
            except KeyboardInterrupt:
                print("stopping", flush=True)


def boot(version: str, home: Path, output: Path, settings: dict[str, str]) -> int:
    """Boot a broker on files that were made outside it and print what it made of them."""
    queries_max = int(settings["queriesMax"]) if "queriesMax" in settings else None
    with tempfile.TemporaryDirectory(prefix="boot-") as work:
        report = boot_check(RocketMQ(version), home.resolve(), output.resolve(), Path(work), queries_max)
    print(report)
    return 0 if report.accepted else 1


def main(words: list[str]) -> int:
    """Run one command line; return the exit code."""
    if len(words) > 3 and words[0] == "boot":
        _, version, home, output, *settings = words
        return boot(version, Path(home), Path(output), dict(word.split("=", 1) for word in settings))
    if len(words) < 3 or any("=" not in word for word in words[3:]):
        print(__doc__)
        return 2
    command, version, where, *settings = words
    arguments = dict(word.split("=", 1) for word in settings)
    if command == "up":
        up(version, Path(where), arguments)
    else:
        with RocketMQ(version).start_workload(command, where, **arguments) as running:
            print(json.dumps(running.wait(), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
