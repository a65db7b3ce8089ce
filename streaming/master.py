"""What ``sparkMaster`` means: processes of this machine, or a cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path

from reput.source.errors import OptionError

_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")


def processes_of(master: str) -> int | None:
    """How many processes ``local``, ``local[N]`` or ``local[*]`` means; None for a master that is elsewhere."""
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    if found[1] == "*":
        return len(os.sched_getaffinity(0))
    return max(1, int(found[1] or 1))


def check_paths_on(master: str, **paths: Path | None) -> None:
    """Raise OptionError for a relative path where `master` is elsewhere: its tasks have directories of their own."""
    for name, path in paths.items():
        if path is not None and not path.is_absolute() and processes_of(master) is None:
            msg = f"--{name} {path}: the tasks of {master} work in other directories, an absolute path is wanted"
            raise OptionError(msg)
