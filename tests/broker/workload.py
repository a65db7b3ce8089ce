"""A subcommand of the Java client, running in the background."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from broker.artifacts import HarnessError
from broker.java_process import tail
from broker.release import Release

if TYPE_CHECKING:
    from typing_extensions import Self

WORKLOAD_TIMEOUT_S = 600.0
CLIENT_JVM = ("-Xms64m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")


class Workload:
    """A running subcommand; leaving ``with`` kills it if it still runs.

    Parameters
    ----------
    release
        The release whose client is used; it need not be that of the broker.
    command
        ``send``, ``transactions``, ``delay``, ``retry``, ``subscribe``, ``raw``, ``consume``, ``query``,
        ``audit``, ``groups`` or ``traces``; `Workload.java` names the class of each, which documents the arguments.
    name_server
        Address of the name server.
    arguments
        Passed as ``name=value``; an unknown name is an error that lists the known ones.
    """

    def __init__(self, release: Release, command: str, name_server: str, arguments: Mapping[str, object]) -> None:
        self.command = command
        self._home = Path(tempfile.mkdtemp(prefix=f"rocketmq-{command}-"))
        words = [f"{name}={value}" for name, value in {"namesrv": name_server, **arguments}.items()]
        self._process = release.launch(self._home, CLIENT_JVM, "Workload", command, *words)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.exit_code() is None

    def wait(self, timeout_s: float = WORKLOAD_TIMEOUT_S) -> dict[str, Any]:
        """Wait for the end and return the JSON it printed; once only.

        Raises
        ------
        HarnessError
            It failed, or ran longer than ``timeout_s`` and was killed. Its files are kept for a look.
        """
        code = self._process.wait(timeout_s)
        self._process.end()
        if code != 0:
            why = f"ran longer than {timeout_s:g} s" if code is None else f"ended with {code}"
            end = tail(self._process.stderr, self._process.stdout)
            raise HarnessError(f"workload {self.command} {why}; see {self._home}\n{end}")
        result = json.loads(self._process.stdout.read_text(encoding="utf-8").splitlines()[-1])
        shutil.rmtree(self._home)
        return cast("dict[str, Any]", result)

    def kill(self) -> None:
        """End it with SIGKILL, whatever it is doing, and forget its files; harmless when it has ended."""
        if self.running:
            self._process.end()
            shutil.rmtree(self._home)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it still runs."""
        self.kill()
