"""A part of one core for some processes: what a machine with more cores would do, on one with few."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

_CONTROLLER = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000
_GONE_S, _POLL_S = 10.0, 0.1


class CpuQuota:
    """A control group (Linux, version 1, as root) whose processes get `cores` of a core's time together."""

    def __init__(self, name: str, cores: float) -> None:
        self._directory = _CONTROLLER / name
        self._quota_us = round(cores * _PERIOD_US)

    @staticmethod
    def is_possible() -> bool:
        """Whether this machine lets this user make such groups."""
        return os.access(_CONTROLLER / "cpu.cfs_quota_us", os.W_OK)

    def __enter__(self) -> Self:
        """Make the group."""
        self._directory.mkdir()
        (self._directory / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (self._directory / "cpu.cfs_quota_us").write_text(str(self._quota_us))
        return self

    @property
    def prefix(self) -> list[str]:
        """The words before a command that put it, and all that it starts, into the group."""
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self._directory / "cgroup.procs")]

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the group, whose processes were ended: the kernel may still be at it."""
        deadline = time.monotonic() + _GONE_S
        while True:
            try:
                self._directory.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
            else:
                return
