"""The process and its machine: memory that is given back, limits (``ulimit``), libraries without threads or pandas.

Two things keep the memory of a command from growing: when Python looks for garbage, and what the system gets back.

Modules and kernels are half a million objects, none of them garbage. With Python's threshold of 700 the collector scans
them again and again while they are loaded, which takes a quarter of a command's start-up. A command that runs for years
cannot leave the collector idle: pyspark leaves its objects in cycles, and each keeps an object in the JVM alive.

A merge of table files takes 200 MB for a second. An allocator keeps freed memory, in pieces for each thread: Arrow's
own keeps 60 MB even when it releases what is unused. So a command that runs for long has Arrow use the system's
allocator, which takes each large buffer from the system and gives it back when it is freed. The rest of the freed
memory goes back after merges, and once a minute. So does memory that only a cycle of objects keeps: few objects are
made, so Python by itself would look for these cycles once in many minutes.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import shlex
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, Final

from reput.source.errors import EnvironmentSetupError


def pip_install(package: str) -> str:
    """Return the command that installs a package, as PyPI calls it, for the Python of this process."""
    return f"{shlex.quote(sys.executable)} -m pip install {shlex.quote(package)}"


# ----------------------------------------------------------------------------------------------------------------------
# The C library's allocator and freed memory.
#
# These functions work with glibc and do nothing with other C libraries.

# <malloc.h>; the threshold is the greatest that glibc accepts on 64 bits.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MMAP_THRESHOLD_MAX, _NEVER = 32 * 1024 * 1024, 2**31 - 1
# A little less than the largest block that comes from the heap, and stays there when it is freed.
_BLOCK_BYTES = _MMAP_THRESHOLD_MAX - 1024 * 1024
# Larger than the buffers that Python and its libraries ask for all the time.
_APART_BYTES = 256 * 1024


def _function(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except OSError:
        return None


_mallopt, _malloc_trim = _function("mallopt"), _function("malloc_trim")
#: Whether `give_back_freed_memory` does anything.
GIVES_BACK: Final = _malloc_trim is not None


def keep_freed_memory() -> None:
    """Keep freed memory for the next allocations; forks inherit this.

    Each range takes about the memory that the range before it freed. By default, glibc would give it back to the system
    in between. The system clears each page before it gives it out again, which costs a fifth of all processor time with
    rows for the table, and more on a virtual machine whose host also takes unused pages.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_MAX)
        _mallopt(_M_TRIM_THRESHOLD, _NEVER)


@lru_cache(maxsize=1)
def take_memory(blocks: int) -> None:
    """Take `blocks` blocks of 31 MiB from the system, once, for later allocations; call `keep_freed_memory` before.

    A range that takes its memory bit by bit spends half of its time waiting for the system.
    """
    # Written, because the system gives memory only when it is written; all at once, to get different blocks.
    taken = [b"\1" * _BLOCK_BYTES for _ in range(blocks)]
    del taken


def keep_large_buffers_apart() -> None:
    """Take each buffer of 256 KiB and more from the system by itself, so that it goes back when it is freed.

    By default, glibc does so only with buffers that are larger than any that was freed before.
    """
    if _mallopt is not None:
        _mallopt(_M_MMAP_THRESHOLD, _APART_BYTES)


def give_back_freed_memory() -> None:
    """Give all pages that hold only freed memory back to the system; it takes some milliseconds."""
    if _malloc_trim is not None:
        _malloc_trim(0)


# ----------------------------------------------------------------------------------------------------------------------
# The limits of this process (``ulimit``): compared before anything begins, and named in the error if one is reached.

_GIB: Final = 1024 * 1024 * 1024
_KIB: Final = 1024
# A user's limit above this is enough for any command.
_THREADS_LOOKED_AT: Final = 8192
_FILES_ENOUGH: Final = 65536
_STACK_BYTES: Final = 256 * _KIB


@dataclass(frozen=True)
class Needs:
    """The least that a command needs: bytes of address space, open files, threads."""

    what: str
    address_space: int
    files: int
    threads: int


SPARK: Final = Needs("Spark", 8 * _GIB, 1024, 256)
PROCESSES: Final = Needs("reput's processes", 3 * _GIB, 1024, 32)
READING: Final = Needs("reput", _GIB, 64, 8)


def check_limits(needs: Needs) -> None:
    """Check that this process may have what `needs` lists; raise the soft limit of open files for it.

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
    """The limit that caused the system's error, and what to do; None if the cause is something else."""
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
    """The number of files that this process may open, raised as far as the user may without asking, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _FILES_ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _FILES_ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < enough:
        with suppress(OSError, ValueError):  # a container may forbid it
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


def open_unnoticed(path: str) -> int:
    """A descriptor to read the file; its access time does not change where the system allows that."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # O_NOATIME is for the file's owner only
        return os.open(path, flags)


# ----------------------------------------------------------------------------------------------------------------------
# The preparations of a process that reads ranges of the log, once, before the first one.

# <sys/prctl.h>
_PR_SET_PDEATHSIG = 1
# Libraries that start threads when they are loaded, for what reput does not use.
_WITHOUT_THREADS = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


def load_without_threads() -> None:
    """Have numpy and pyarrow start no threads when they are loaded, here and in processes that are started later.

    Only a process with a single thread can be forked without danger.
    """
    for name, value in _WITHOUT_THREADS.items():
        os.environ.setdefault(name, value)


class _PandasHider(MetaPathFinder):
    is_hidden = False

    def find_spec(self, fullname: str, *_: Any) -> ModuleSpec | None:
        """Refuse pandas while it is hidden, and leave the rest to the others."""
        if self.is_hidden and fullname == "pandas":
            raise ModuleNotFoundError(fullname)
        return None


_pandas_hider = _PandasHider()


def hide_pandas() -> None:
    """Let no library find pandas: pyarrow loads it for its first array of Python values, which takes 0.2 s."""
    _pandas_hider.is_hidden = True
    if _pandas_hider not in sys.meta_path:
        sys.meta_path.insert(0, _pandas_hider)


def show_pandas() -> None:
    """End `hide_pandas`: pyspark demands pandas. If pyarrow has looked for it before, pyarrow continues without it."""
    # The finder stays: if it were removed, a thread that imports meanwhile would skip the one after it in the list.
    _pandas_hider.is_hidden = False


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Have the system send this process a signal when its parent dies, which it would not notice otherwise.

    With other C libraries, nothing changes.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))


@lru_cache(maxsize=1)
def settle_worker() -> None:
    """Exclude everything that is loaded by now from garbage collection; call it when the modules are imported.

    pyspark's daemon collects all garbage after every task, which costs 45 ms with pandas, pyarrow and numba loaded:
    more than most tasks.
    """
    gc.collect()
    gc.freeze()


_WHILE_LOADING = 100_000
#: For `give_back` after work that takes much memory; a process may do such work for many brokers.
BEHIND_MUCH_S = 5.0
_USUALLY_S = 60.0
_usual: list[tuple[int, int, int]] = []
_given_back_at = 0.0
_is_kept_small = False
_lock = threading.Lock()


def look_seldom() -> None:
    """Have the collector look seldom, while a command loads its modules."""
    _usual.append(gc.get_threshold())
    gc.set_threshold(_WHILE_LOADING)


def look_as_usual() -> None:
    """Have the collector look as before `look_seldom`, without objects loaded by now; no effect without that call."""
    while _usual:
        gc.freeze()
        gc.set_threshold(*_usual.pop())


def keep_small() -> None:
    """Prepare a command for a long run: `look_as_usual`, and let `give_back` include Arrow's memory and garbage.

    It does nothing without `look_seldom`: in a program that runs a tail, collector and allocator are the program's.
    Each of several tails may call it, in its thread.
    """
    import pyarrow as pa  # noqa: PLC0415  commands call `look_seldom` before they load it

    global _is_kept_small  # noqa: PLW0603  a process has one memory
    with _lock:
        if not _usual:
            return
        look_as_usual()
        _is_kept_small = True
        if GIVES_BACK:
            keep_large_buffers_apart()
            pa.set_memory_pool(pa.system_memory_pool())


def give_back(*, after_s: float = _USUALLY_S) -> None:
    """Give the process's freed memory back to the system, unless that was done within `after_s` seconds.

    After `keep_small` it collects garbage first. It takes some milliseconds. Every thread may call it.
    """
    global _given_back_at  # noqa: PLW0603  a process has one memory
    now = time.monotonic()
    if now - _given_back_at >= after_s:
        _given_back_at = now
        if _is_kept_small:
            gc.collect()
        give_back_freed_memory()
