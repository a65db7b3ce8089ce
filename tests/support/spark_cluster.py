"""A Spark standalone cluster on this machine: a master and workers of one core each, from pyspark's own jars."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyspark
from broker.java_process import LOOPBACK, free_port
from support.cpu_quota import CpuQuota

if TYPE_CHECKING:
    from typing_extensions import Self

SPARK_CLASS = Path(pyspark.__path__[0]) / "bin" / "spark-class"
START_TIMEOUT_S = 300.0
POLL_S = 0.1


# Words that a shell's command follows which has mounts of its own; for root alone.
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private", "/bin/sh", "-c")


class ClusterError(Exception):
    """Master or worker did not start; the message holds the end of its log."""


class SparkCluster:
    """Started on entering, gone with its executors on leaving.

    Parameters
    ----------
    work
        An existing directory for logs and the workers' scratch files.
    workers
        How many worker processes, each with one core and so at most one executor of an application.
    worker_cores
        How much of a core's time a worker and its executor get together; see ``CpuQuota``.
    apart
        The first worker runs on a machine of its own, as far as this directory goes: it sees an empty one there.
    """

    def __init__(self, work: Path, workers: int, worker_cores: float | None = None, apart: Path | None = None) -> None:
        self._work = work
        self._apart = apart
        self._workers = workers
        self._worker_cores = worker_cores
        self._processes: list[subprocess.Popen[bytes]] = []
        self._quotas = ExitStack()
        self._conf = work / "conf"
        self.url = f"spark://{LOOPBACK}:{free_port()}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a driver: an address that the workers reach, and a wait for all of them."""
        return {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_CONF_DIR": str(self._conf)}

    @property
    def pids(self) -> tuple[int, ...]:
        """Master and workers; executors are children of workers."""
        return tuple(process.pid for process in self._processes)

    def executors(self, number: int) -> list[int]:
        """The executors of a worker, counted from 0."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal() and _parent(entry) == self.pids[1 + number]
        ]

    def kill_executor(self, number: int) -> None:
        """SIGKILL to the executors of a worker, which starts another one; there must be one."""
        executors = self.executors(number)
        assert executors
        for pid in executors:
            os.kill(pid, signal.SIGKILL)

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and its executors, for ever."""
        os.killpg(self.pids[1 + number], signal.SIGKILL)

    def __enter__(self) -> Self:
        """Start master and workers, and wait until each worker is registered.

        Raises
        ------
        ClusterError
            One of them ended, or was not ready in time.
        """
        port = self.url.rpartition(":")[2]
        self._conf.mkdir()
        settings = {"spark.cores.max": self._workers, "spark.scheduler.minRegisteredResourcesRatio": "1.0"}
        (self._conf / "spark-defaults.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in settings.items())
        )
        try:
            master = ["master.Master", "--host", LOOPBACK, "--port", port, "--webui-port", str(free_port())]
            self._start("master", master, "New state: ALIVE")
            for number in range(self._workers):
                scratch = self._work / f"worker-{number}"
                words = ["worker.Worker", "--host", LOOPBACK, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
                words += ["--work-dir", str(scratch), self.url]
                self._start(f"worker-{number}", words, "Successfully registered", self._limited(number))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything."""
        self.stop()

    def stop(self) -> None:
        """End workers, their executors and the master, and wait until they are gone."""
        for process in reversed(self._processes):
            if process.poll() is None:
                # Executors are in the group of their worker.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        self._quotas.close()

    def _limited(self, number: int) -> list[str]:
        """How a command begins that runs within a worker's quota, or on a machine of its own."""
        if self._apart is not None and number == 0:
            return [*OWN_MOUNTS, 'mount -t tmpfs none "$0" && exec "$@"', str(self._apart)]
        if self._worker_cores is None:
            return []
        quota = CpuQuota(f"{self._work.name}-worker-{number}", self._worker_cores)
        return self._quotas.enter_context(quota).prefix

    def _start(self, name: str, words: list[str], ready: str, prefix: Sequence[str] = ()) -> None:
        log = self._work / f"{name}.log"
        environment = {**os.environ, **self.environment, "SPARK_DAEMON_MEMORY": "256m"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*prefix, str(SPARK_CLASS), f"org.apache.spark.deploy.{words[0]}", *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while ready not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                end = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                raise ClusterError(f"Spark's {name} is not ready:\n{end}")
            time.sleep(POLL_S)


def _parent(process: Path) -> int:
    """The parent of a directory of ``/proc``; 0 if it has just ended."""
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0
