"""The limits of this process (``ulimit``): compared before anything begins, and named where one is reached."""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from reput.source.errors import EnvironmentSetupError

_GIB: Final = 1024 * 1024 * 1024
_KIB: Final = 1024
# A user's limit above this is enough for any command.
_THREADS_LOOKED_AT: Final = 8192
_FILES_ENOUGH: Final = 65536
_STACK_BYTES: Final = 256 * _KIB


@dataclass(frozen=True)
class Needs:
    """What a command needs at least: bytes of address space, open files, threads."""

    what: str
    address_space: int
    files: int
    threads: int


SPARK: Final = Needs("Spark", 8 * _GIB, 1024, 256)
PROCESSES: Final = Needs("reput's processes", 3 * _GIB, 1024, 32)
READING: Final = Needs("reput", _GIB, 64, 8)


def check_limits(needs: Needs) -> None:
    """Check that this process may have what `needs` lists; the soft limit of open files is raised for it.

    Raises
    ------
    EnvironmentSetupError
        A limit is below what is needed; the message has its ``ulimit``.
    """
    files = _open_files()
    if files < needs.files:
        raise _too_low("ulimit -n", files, f"{needs.what} needs {needs.files} open files")
    space = _limit(resource.RLIMIT_AS)
    if space < needs.address_space:
        wanted = f"{needs.what} needs {needs.address_space // _KIB} (KiB of address space, most of it never used)"
        raise _too_low("ulimit -v", int(space) // _KIB, wanted)
    threads = _limit(resource.RLIMIT_NPROC)
    if threads < _THREADS_LOOKED_AT and os.geteuid() != 0 and not _can_start(needs.threads):
        wanted = f"{needs.what} needs {needs.threads} threads beside what this user runs already"
        raise _too_low("ulimit -u", int(threads), wanted)


def limit_reached(error: OSError) -> tuple[str, str | None] | None:
    """The limit that caused the system's error, and what to do; None where the cause is something else."""
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process may open no more files (ulimit -n is {limit})", "allow it more"
    if error.errno == errno.ENFILE:
        return "the machine has as many open files as it may have (sysctl fs.file-max)", "allow it more"
    if error.errno == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY:
            return f"no file may have more than {limit} bytes (ulimit -f)", "allow larger ones"
        return "the file system takes no file so large", "give another one, or smaller sizes of files"
    if error.errno == errno.ENOMEM:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            return f"this process may take no more memory (ulimit -v is {limit // _KIB} KiB)", "allow it more"
        return "the machine has no memory left", None
    return None


def _limit(which: int) -> float:
    soft, _ = resource.getrlimit(which)
    return float("inf") if soft == resource.RLIM_INFINITY else soft


def _open_files() -> float:
    """How many files this process may open, raised as far as the user may without asking, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _FILES_ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _FILES_ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < enough:
        with suppress(OSError, ValueError):  # a container's own rule
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
    return _limit(resource.RLIMIT_NOFILE)


def _too_low(name: str, limit: float, wanted: str) -> EnvironmentSetupError:
    return EnvironmentSetupError(
        f"{name} is {limit:.0f}, and {wanted}",
        advice="raise it, in the shell or in the unit or container that starts reput",
    )


def _can_start(count: int) -> bool:
    ready = threading.Event()
    started = []
    before = threading.stack_size(_STACK_BYTES)
    try:
        for _ in range(count):
            thread = threading.Thread(target=ready.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        return False
    finally:
        ready.set()
        for thread in started:
            thread.join()
        threading.stack_size(before)
    return True
