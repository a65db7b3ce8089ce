"""The options about how a run goes: its micro-batches, waves, pauses and processes, its logs and metrics.

Among them is ``sparkMaster``: processes of this machine, or a cluster.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError
from reput.source.options import (
    INT_MAX,
    WAIT_MS_MAX,
    byte_count,
    bytes_allowed,
    number_allowed,
    option,
    options_of,
    text,
    whole_number,
)
from reput.streaming.process.process_log import LOG_BYTES_MAX

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
    """Return how many processes ``local``, ``local[N]`` or ``local[*]`` means; None for a master elsewhere."""
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    if found[1] == "*":
        return len(os.sched_getaffinity(0))
    return int(found[1] or 1)


def check_paths_on(master: str, **paths: TableLocation | None) -> None:
    """Raise OptionError for a relative path if `master` is elsewhere, because its tasks work in other directories."""
    for name, path in paths.items():
        if isinstance(path, Path) and not path.is_absolute() and processes_of(master) is None:
            msg = f"--{name} {path}: the tasks of {master} work in other directories, an absolute path is wanted"
            raise OptionError(msg)


_BYTES = bytes_allowed(1)
_WAIT_MS = f"milliseconds: {number_allowed(0, WAIT_MS_MAX)}"
# Spark needs 450 MiB; the JVM gets the value as -Xmx.
_HEAP = re.compile(r"([0-9]+)([kmgt])", re.IGNORECASE)
_SPARK_LOG_MIN = 64 * 1024
_SQL_MEMORY_MIN = 64 * 1024 * 1024
_HEAP_MIN, _HEAP_MAX = 512 * 1024 * 1024, 1024 * 1024 * 1024 * 1024


def _heap(text: str) -> str:
    if not _HEAP.fullmatch(text.strip()):
        raise ValueError(text)
    byte_count(_HEAP_MIN, _HEAP_MAX)(text)
    return text.strip()


@dataclass(frozen=True)
class LogicOptions:
    """The `logic` query of `reput tail`, which keeps queues and index; verify also uses ``maxBytesPerPartition``."""

    max_bytes_per_trigger: int = option(
        "maxBytesPerTrigger",
        byte_count(1),
        _BYTES,
        2 * 1024 * 1024 * 1024,
        "of the logic query: large enough to hide a micro-batch's fixed cost; a stop waits for the current one, which "
        "two cores read in a second or two, with the table in three",
    )
    max_bytes_per_partition: int = option(
        "maxBytesPerPartition",
        byte_count(1),
        _BYTES,
        256 * 1024 * 1024,
        "of the logic query, at most: a task takes a tenth of a second, which is much beside what Spark needs to start "
        "one; every core gets a range of a full batch, where that leaves 32m or more to each",
    )
    trigger_ms: int = option(
        "logicTriggerMs",
        whole_number(0, WAIT_MS_MAX),
        _WAIT_MS,
        50,
        "a micro-batch costs the same 20 ms of Spark's, however little it holds: twenty a second take a quarter of "
        "a core less than as many as there is time for, and entries come 15 ms later; 0: the next micro-batch begins "
        "when the last one ends",
    )
    clean_resource_interval: int = option(
        "cleanResourceInterval",
        whole_number(0, WAIT_MS_MAX),
        _WAIT_MS,
        10_000,
        "the broker's default; how often reput tail looks where the log begins, and removes queue and index files that "
        "have expired with it; 0: never, which leaves that to reput expire",
    )


@dataclass(frozen=True)
class TailOptions:
    """`reput tail` as a whole: how long it waits for temporary failures, and where it logs and serves its state."""

    retry_for_ms: int = option(
        "retryForMs",
        whole_number(0, WAIT_MS_MAX),
        _WAIT_MS,
        600_000,
        "of reput tail without --available-now: for so long a query that failed for a reason that may pass is opened "
        "again without getting anywhere; then the run ends with exit code 75. In ten minutes a server is rebooted, or "
        "there is room again; 0 ends the run at once",
    )
    metrics_port: int = option(
        "metricsPort",
        whole_number(0, 65_535),
        number_allowed(0, 65_535),
        0,
        "0: none; otherwise /metrics, /healthz, /readyz, /status and a page for people are served at this port",
    )
    metrics_host: str = option(
        "metricsHost",
        text,
        "a host name or an address of this machine",
        "localhost",
        "only this machine sees them; 0.0.0.0 serves all who reach the port, without a password",
    )
    progress_every_ms: int = option(
        "progressEveryMs",
        whole_number(0, WAIT_MS_MAX),
        _WAIT_MS,
        60_000,
        "the log gets a line a query for so long, one at once where something was found, and none while nothing comes; "
        "0, and --available-now: a line a micro-batch",
    )


@dataclass(frozen=True)
class RebuildOptions:
    """`reput rebuild`."""

    max_bytes_per_wave: int = option(
        "rebuildMaxBytesPerWave",
        byte_count(1),
        _BYTES,
        2 * 1024 * 1024 * 1024,
        "of reput rebuild: the log that is read at once, and written in waves of an eighth of it or more; on a cluster "
        "a range for each core at least, and waves of a half; scratch files take about a third of it at most, and a "
        "wave lost to a crash is read again",
    )
    max_bytes_per_partition: int = option(
        "rebuildMaxBytesPerPartition",
        byte_count(1),
        _BYTES,
        128 * 1024 * 1024,
        "of reput rebuild, without a table: a task's range; a wave should have one for every core at least, and two "
        "are read at once; on a cluster, Spark's own work for a task is a tenth of a range of 64m",
    )


@dataclass(frozen=True)
class SparkOptions:
    """The place of the work."""

    master: str = option(
        "sparkMaster",
        master_url,
        MASTER_ALLOWED,
        "local[*]",
        "all cores of this machine; reput rebuild and verify take local[N] as N processes of their own, without Spark",
    )
    driver_memory: str = option(
        "sparkDriverMemory",
        _heap,
        "a whole number with k, m, g or t, from 512m to 1t",
        "2g",
        "room for a micro-batch's entries beside Spark itself",
    )
    log_max_bytes: int = option(
        "sparkLogMaxBytes",
        byte_count(_SPARK_LOG_MIN),
        bytes_allowed(_SPARK_LOG_MIN),
        LOG_BYTES_MAX,
        "of OUTPUT/reput/spark.log, what Spark's processes print; a full one becomes spark.log.1, and three such are "
        "kept; without errors there are 2k a start",
    )


@dataclass(frozen=True)
class SqlOptions:
    """`reput sql` without Spark."""

    max_memory: int = option(
        "sqlMaxMemory",
        byte_count(_SQL_MEMORY_MIN),
        bytes_allowed(_SQL_MEMORY_MIN),
        2 * 1024 * 1024 * 1024,
        "of reput sql without Spark: what a query may hold at once, as a sort or a grouping of everything does; it "
        "ends with exit code 75 where that is too little, and nothing is written to a disk instead",
    )


#: The names of the options that apply to the whole process, whatever the number of its brokers.
OF_PROCESS: Final = frozenset({"metricsPort", "metricsHost", *(spec.name for spec in options_of(SparkOptions))})
