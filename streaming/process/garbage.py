"""When Python looks for cyclic garbage in a command.

Modules and kernels are half a million objects, none of them garbage. With Python's threshold of 700 the collector scans
them again and again while they are loaded, which takes a quarter of a command's start-up. A command that runs for years
must not leave it at that: pyspark leaves its objects in cycles, and each keeps an object in the JVM alive.
"""

from __future__ import annotations

import gc

_WHILE_LOADING = 100_000
_usual: list[tuple[int, int, int]] = []


def look_seldom() -> None:
    """Have the collector look seldom, while a command loads what it needs."""
    _usual.append(gc.get_threshold())
    gc.set_threshold(_WHILE_LOADING)


def look_as_usual() -> None:
    """Have the collector look as before `look_seldom`, and not at what is loaded; does nothing without that call."""
    while _usual:
        gc.freeze()
        gc.set_threshold(*_usual.pop())
