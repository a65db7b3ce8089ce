"""The directory of this run: where Spark, its workers and its scratch files are while a command runs.

Its processes work in it, so nothing they make or read by a relative name is in the user's directory. It goes when the
command ends. What a kill leaves, the next command of the same user removes.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PREFIX = "reput-run-"
_LOCK = "lock"
_ENDED_WITHIN_S = 5.0
_LOOKED_FOR_S = 0.02


class RunDirectory:
    """One run's directory, for as long as its lock is held; the system frees the lock when the process dies."""

    def __init__(self) -> None:
        """Remove what runs that died have left, and make a directory that only this user can enter."""
        root = Path(tempfile.gettempdir())
        for leftover in root.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                _remove_if_dead(leftover)
        self._process = os.getpid()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
            self._descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            if (self.path / _LOCK).exists():
                break
            os.close(self._descriptor)  # a run that cleans up was quicker than the lock, and took it for a dead one's

    def remove(self) -> None:
        """End the processes that still work in it, and remove it; a fork of its process leaves it alone."""
        if os.getpid() != self._process:
            return
        end_processes_in(self.path)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


_runs: list[RunDirectory] = []


def run_directory() -> Path:
    """The directory of this process, made when it is first asked for and removed when the process ends."""
    if not _runs:
        _runs.append(RunDirectory())
        atexit.register(remove_run_directory)
    return _runs[0].path


def remove_run_directory() -> None:
    """Remove it now, if there is one; it is made anew when it is asked for again."""
    if _runs:
        _runs.pop().remove()
        atexit.unregister(remove_run_directory)


def end_processes_in(directory: Path) -> None:
    """Kill the processes whose working directory is `directory` or below, and wait until they are gone."""
    deadline = time.monotonic() + _ENDED_WITHIN_S
    while (processes := list(_processes_in(directory))) and time.monotonic() < deadline:
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_LOOKED_FOR_S)


def _processes_in(directory: Path) -> Iterator[int]:
    """Processes that ended and are waited for by their parent have no working directory any more."""
    below = f"{os.path.realpath(directory)}/"
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if f"{(entry / 'cwd').readlink()}/".startswith(below):
                    yield int(entry.name)


def _remove_if_dead(directory: Path) -> None:
    """Remove the directory of a run whose process has died."""
    if directory.is_symlink() or directory.stat().st_uid != os.getuid():
        return
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        end_processes_in(directory)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(descriptor)
