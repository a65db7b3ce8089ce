"""What keeps the memory of a command from growing: when Python looks for garbage, and what the system gets back.

Modules and kernels are half a million objects, none of them garbage. With Python's threshold of 700 the collector scans
them again and again while they are loaded, which takes a quarter of a command's start-up. A command that runs for years
must not leave it at that: pyspark leaves its objects in cycles, and each keeps an object in the JVM alive.

A merge of table files takes 200 MB for a second. An allocator keeps what was freed, in pieces for each thread: Arrow's
own keeps 60 MB even where it is told to release what is unused. So a command that runs for long has Arrow use the
system's, which takes large buffers from the system one by one and gives each back as it is freed. What is left of small
ones goes back behind merges, and once a minute, and so does what only a cycle of objects keeps: few objects are made,
so Python by itself would look for these cycles once in many minutes.
"""

from __future__ import annotations

import gc
import threading
import time

from reput.source import system

_WHILE_LOADING = 100_000
#: Behind what is known to have taken much; a process may do that for many brokers.
BEHIND_MUCH_S = 5.0
_USUALLY_S = 60.0
_usual: list[tuple[int, int, int]] = []
_given_back_at = 0.0
_is_kept_small = False
_lock = threading.Lock()


def look_seldom() -> None:
    """Have the collector look seldom, while a command loads what it needs."""
    _usual.append(gc.get_threshold())
    gc.set_threshold(_WHILE_LOADING)


def look_as_usual() -> None:
    """Have the collector look as before `look_seldom`, and not at what is loaded; does nothing without that call."""
    while _usual:
        gc.freeze()
        gc.set_threshold(*_usual.pop())


def keep_small() -> None:
    """Prepare a command for a long run: `look_as_usual`, and `give_back` reaches Arrow's memory and garbage, too.

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
        if system.GIVES_BACK:
            system.keep_large_buffers_apart()
            pa.set_memory_pool(pa.system_memory_pool())


def give_back(*, after_s: float = _USUALLY_S) -> None:
    """Give what is free of the process's memory back to the system, unless that was done within so many seconds.

    In a command for which `keep_small` was called, garbage is looked for before. It takes some milliseconds. Every
    thread may call it.
    """
    global _given_back_at  # noqa: PLW0603  a process has one memory, whoever looks after it
    now = time.monotonic()
    if now - _given_back_at >= after_s:
        _given_back_at = now
        if _is_kept_small:
            gc.collect()
        system.give_back_freed_memory()
