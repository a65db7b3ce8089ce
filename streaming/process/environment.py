"""The surroundings of a command: the directory of this run, Python's warnings, and the JVM of ``spark-submit``.

While a command runs, Spark, its workers and its scratch files are in the directory of this run. It is the working
directory of Spark's processes, so relative names never lead into the user's directory. It is removed when the command
ends. If the command is killed, the next command of the same user removes it.

If ``spark-submit`` started this process, environment variables say how to reach its JVM, which is this process's
parent, and pyspark would use that JVM. reput removes them at once: a process that it starts later must not take that
JVM for its own.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from reput.source.log.store_layout import is_on_s3
from reput.source.system import end_with_parent

_PREFIX = "reput-run-"
_LOCK = "lock"
_ENDED_WITHIN_S = 5.0
_LOOKED_FOR_S = 0.02


class RunDirectory:
    """One run's directory, in use as long as its lock is held; the system frees the lock when the process dies."""

    def __init__(self) -> None:
        """Remove the directories of runs that died, and make one that only this user can enter."""
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
            os.close(self._descriptor)  # another run took it for a dead one and removed it before it was locked

    def clear(self) -> None:
        """End the processes that still work in it, and remove all but the lock."""
        end_processes_in(self.path)
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                with suppress(OSError):
                    path.unlink()

    def remove(self) -> None:
        """End the processes that still work in it, and remove it; in a fork of its process, do nothing."""
        if os.getpid() != self._process:
            return
        end_processes_in(self.path)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


_runs: list[RunDirectory] = []


def run_directory() -> Path:
    """Return the directory of this process, made on the first call and removed when the process ends."""
    if not _runs:
        _runs.append(RunDirectory())
        atexit.register(remove_run_directory)
    return _runs[0].path


def remove_run_directory() -> None:
    """Remove the run's directory now, if there is one; the next call of `run_directory` makes a new one."""
    if _runs:
        _runs.pop().remove()
        atexit.unregister(remove_run_directory)


def clear_run_directory() -> None:
    """End the processes that work in this run's directory, and remove the files that they left there."""
    for run in _runs:
        run.clear()


def end_processes_in(directory: Path) -> None:
    """Kill the processes whose working directory is `directory` or below, and wait until they are gone."""
    deadline = time.monotonic() + _ENDED_WITHIN_S
    while (processes := list(_processes_in(directory))) and time.monotonic() < deadline:
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_LOOKED_FOR_S)


def _processes_in(directory: Path) -> Iterator[int]:
    """Yield the processes that work in `directory`, without those that have ended and wait for their parents."""
    below = f"{os.path.realpath(directory)}/"
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if f"{(entry / 'cwd').readlink()}/".startswith(below):
                    yield int(entry.name)


def _remove_if_dead(directory: Path) -> None:
    if directory.is_symlink() or directory.stat().st_uid != os.getuid():
        return
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        end_processes_in(directory)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(descriptor)


# ----------------------------------------------------------------------------------------------------------------------
# The current directory is the user's: paths are relative to it, but code and settings are never read from it.
#
# Python, numba, Spark and the JVM look for modules and settings in the directory that they are started in, and Spark
# would write there. So a command leaves it as soon as it is started.

# Only the administrator can put anything there.
_NEUTRAL = "/"
# Variables that hold one or more paths and are read later or by another process.
_PATH_VARIABLES = (
    *("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    *("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR", "TMP", "TEMP", "PYTHONPATH", "PYTHONPYCACHEPREFIX"),
)
_started_in: list[Path] = []


def leave() -> None:
    """Go to a neutral directory; make relative paths in the environment absolute for processes started later."""
    try:
        start = Path.cwd()
    except OSError:  # it was removed, so only absolute paths lead anywhere
        start = Path(_NEUTRAL)
    _started_in[:] = [start]
    for name in _PATH_VARIABLES:
        if value := os.environ.get(name):
            separator = "," if name == "SPARK_LOCAL_DIRS" else os.pathsep
            os.environ[name] = separator.join(str(start / path) for path in value.split(separator) if path)
    os.chdir(_NEUTRAL)


def made_absolute(value: Any) -> Any:
    """Return a path of the command line as an absolute one; a place on S3 and other values are returned as they are."""
    if isinstance(value, Path) and not (value.is_absolute() or is_on_s3(value)):
        return (_started_in[0] if _started_in else Path.cwd()) / value
    return value


#: The variable that says which warnings a process of Python prints.
WARNINGS = "PYTHONWARNINGS"


def hide_warnings() -> None:
    """Have Python print no warnings, here and in processes that are started later: Spark's workers, the source's.

    They are printed if ``PYTHONWARNINGS`` or an option of Python asks for them.
    """
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        os.environ[WARNINGS] = "ignore"


_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_taken: list[tuple[int, str]] = []


def take_up() -> bool:
    """Have this process use the JVM of ``spark-submit``; return False if there is none.

    When that JVM ends, the system asks this process to stop, because no other process would.
    """
    port, secret = os.environ.pop(_PORT, ""), os.environ.pop(_SECRET, "")
    if not (port.isdecimal() and secret):
        return False
    _taken[:] = [(int(port), secret)]
    end_with_parent(signal.SIGTERM)
    return True


def submit_gateway() -> tuple[int, str] | None:
    """Return the port and the secret of the JVM that ``spark-submit`` started; None without one."""
    return _taken[0] if _taken else None
