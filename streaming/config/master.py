"""What ``sparkMaster`` means: processes of this machine, or a cluster."""

from __future__ import annotations

import os
import re
from pathlib import Path

from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError
from reput.source.options import INT_MAX

# Each is a process, or a Spark thread with a Python process.
_PROCESSES_MAX = 1024
MASTER_ALLOWED = f"local, local[N] (N from 1 to {_PROCESSES_MAX}, or *), spark://HOST:PORT, yarn, k8s://URL"

_LOCAL_MASTER = re.compile(r"local(?:\[(\*|[0-9]+)(?:\s*,\s*([0-9]+))?\])?")
_HOST_AND_PORT = r"(?:[^\s/:,@?#\[\]]+|\[[0-9a-fA-F:]+\]):[0-9]{1,5}"
_CLUSTER_MASTERS = (
    re.compile(r"local-cluster\[\s*[1-9][0-9]{0,3}\s*,\s*[1-9][0-9]{0,3}\s*,\s*[1-9][0-9]{0,6}\s*\]"),
    re.compile(rf"spark://{_HOST_AND_PORT}(?:,{_HOST_AND_PORT})*"),
    re.compile(r"k8s://\S+"),
    re.compile(r"yarn"),
)


def master_url(text: str) -> str:
    """Parse a Spark master URL; raises ValueError for one that Spark, or this machine, cannot start."""
    master = text.strip()
    local = _LOCAL_MASTER.fullmatch(master)
    if local is not None:
        count, failures = local[1] or "1", local[2] or "1"
        if count != "*" and not 1 <= int(count) <= _PROCESSES_MAX:
            raise ValueError(text)
        if not 1 <= int(failures) <= INT_MAX:
            raise ValueError(text)
    elif not any(pattern.fullmatch(master) for pattern in _CLUSTER_MASTERS):
        raise ValueError(text)
    return master


def processes_of(master: str) -> int | None:
    """How many processes ``local``, ``local[N]`` or ``local[*]`` means; None for a master elsewhere."""
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    if found[1] == "*":
        return len(os.sched_getaffinity(0))
    return int(found[1] or 1)


def check_paths_on(master: str, **paths: TableLocation | None) -> None:
    """Raise OptionError for a relative path if `master` is elsewhere: its tasks work in other directories."""
    for name, path in paths.items():
        if isinstance(path, Path) and not path.is_absolute() and processes_of(master) is None:
            msg = f"--{name} {path}: the tasks of {master} work in other directories, an absolute path is wanted"
            raise OptionError(msg)
