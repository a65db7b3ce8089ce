"""`reput backup`: a restore point of a store, or one after another beside a running broker.

Nothing is written into the store, and a running broker is not asked anything: its log and its files are read from the
disk as they are.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from reput.sinks.backup.backup_store import Backup, Proof
from reput.sinks.backup.backup_writer import BLOCK_BYTES, BackupWriter
from reput.sinks.backup.restore_point import RestorePoint
from reput.sinks.files.store_lock import StoreLock
from reput.sinks.table.location import TableLocation
from reput.source.errors import OptionError, StoreError, StoreLockedError
from reput.source.log.log_reader import LogReader, record_at
from reput.source.options import values_of
from reput.source.printable import counted, printable_json
from reput.source.record.damage import QUARANTINE, STOP
from reput.source.times import time_text
from reput.streaming.config.made_for import made_for
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.status.batch_report import duration_text, size_text

_log = logging.getLogger("reput")

#: Whether the queues were in RocksDB alone; the other settings of a restore point are options.
IN_ROCKSDB: Final = "queuesInRocksDB"
_DELAYS: Final = "messageDelayLevel"
# A setting that is not in broker.conf.
_VERSION: Final = "brokerVersion"


def settings_of(config: PipelineConfig) -> dict[str, Any]:
    """Return the settings that a restore point records, by the names of options, and `IN_ROCKSDB`."""
    delays = " ".join(f"{delay // 1000}s" for delay in values_of(config.source)[_DELAYS])
    made = made_for(config, config.store, queues=True, index=True)
    return {**made, _DELAYS: delays, IN_ROCKSDB: config.makes_rocksdb}


def settings_at(point: RestorePoint, given: Sequence[str], broker_conf: Path | None) -> list[str]:
    """Return the settings with which a restore point is restored; see `settings_in`.

    Raises
    ------
    OptionError
        The queues were in RocksDB, and no broker.conf says where.
    """
    if broker_conf is None and point.settings.get(IN_ROCKSDB):
        raise OptionError(
            f"the queues of {point.store} were in RocksDB, and nothing says where", advice="give --broker-conf"
        )
    return settings_in(point, given, broker_conf)


def settings_in(point: RestorePoint, given: Sequence[str], broker_conf: Path | None) -> list[str]:
    """Return the settings of a restore point as ``name=value``, without those that are `given` or in broker.conf."""
    stated = {text.partition("=")[0].strip().lower() for text in given} | {IN_ROCKSDB.lower()}
    names = point.settings if broker_conf is None else [_VERSION]
    return [f"{name}={str(point.settings[name]).lower()}" for name in names if name.lower() not in stated]


def log_of(config: PipelineConfig) -> LogReader:
    """Return a reader of the log that passes over damaged records: they are backed up as they are."""
    damage = QUARANTINE if config.source.on_damage == STOP else config.source.on_damage
    return LogReader(config.log_options(onDamage=damage))


@dataclass(frozen=True)
class Retention:
    """The restore points to keep: the newest `points`, and those that the last `days` need; None of both keeps all."""

    points: int | None = None
    days: float | None = None

    def apply(self, backup: Backup, *, is_alone: bool) -> list[int]:
        """Remove restore points that need not stay; return their numbers. The errors are those of `expire`."""
        keep_ms = None if self.days is None else int(self.days * 86_400_000)
        now_ms = time.time_ns() // 1_000_000
        return backup.expire(now_ms, keep_points=self.points, keep_ms=keep_ms, is_alone=is_alone)


class BackupRun:
    """A backup of the store of `config` to a location, where no other backup writes meanwhile."""

    def __init__(
        self, config: PipelineConfig, target: TableLocation, retention: Retention, *, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._config = config
        #: The newest restore point, as far as it is known.
        self.last: RestorePoint | None = None
        self._backup = Backup(target)
        self._retention = retention
        self._block_bytes = block_bytes
        self._lock: StoreLock | None = None
        self._writer: BackupWriter | None = None

    @contextmanager
    def opened(self) -> Iterator[BackupRun]:
        """Check the store and the place, and keep other backups out meanwhile.

        Raises
        ------
        OptionError
            The place is in the store.
        StoreError
            The store has something that a backup does not keep.
        StoreLockedError
            Another backup writes to the place.
        OutputError
            The place cannot be written.
        """
        _check(self._config, self._backup.location)
        with _locked(self._backup.location) as self._lock:
            self._backup.prepare()
            yield self

    def step(self) -> RestorePoint | None:
        """Make a restore point; None if nothing has changed since the last. The errors are those of the writer.

        After an error the next step begins with the present contents of the backup.
        """
        if self._lock is not None:
            self._lock.check_in_place()
        writer, self._writer = self._writer, None
        if writer is None:
            settings, open_log = settings_of(self._config), partial(log_of, self._config)
            writer = BackupWriter(self._backup, open_log, self._config.store, settings, block_bytes=self._block_bytes)
            self.last = writer.last
        point = writer.step()
        self.last, self._writer = writer.last, writer
        return point

    def unprotected(self) -> Unprotected:
        """Return the part of the log that the backup does not have yet; the errors are those of ``LogReader.end``."""
        log = log_of(self._config) if self._writer is None else self._writer.log
        begin = log.queue().min_offset if self.last is None else self.last.end
        return unprotected(log, self.last, log.end(begin))

    def expire(self) -> list[int]:
        """Remove restore points that need not stay; return their numbers."""
        return self._retention.apply(self._backup, is_alone=isinstance(self._backup.location, Path))


def _check(config: PipelineConfig, target: TableLocation) -> None:
    if isinstance(target, Path):
        for directory in (config.store, *config.log_directories):
            if directory.resolve() in (target.resolve(), *target.resolve().parents):
                raise OptionError(f"--to {target} is in the store, where nothing is written", advice="give another one")
    if config.source.enable_dledger_commit_log:
        raise StoreError(f"{config.store} has a log of DLedger, which a backup does not keep", file=config.store)


@contextmanager
def _locked(target: TableLocation) -> Iterator[StoreLock | None]:
    """Keep other backups on this machine out; on S3 the number of a restore point decides who was first."""
    if not isinstance(target, Path):
        yield None
        return
    try:
        lock = StoreLock(target)
    except StoreLockedError as error:
        raise StoreLockedError(
            f"another backup writes to {target}", advice="stop it first, or give another --to", file=target
        ) from error
    with lock:
        yield lock


class Unprotected(NamedTuple):
    """The log that no restore point has: its bytes, and how long ago the first message of it was stored."""

    bytes: int
    seconds: float


def unprotected(log: LogReader, point: RestorePoint | None, end: int) -> Unprotected:
    """Return the log up to `end` that `point` does not have; the errors are those of ``LogReader.queue``."""
    queue = log.queue()
    begin = max(queue.min_offset, point.end if point is not None else 0)
    if end <= begin:
        return Unprotected(0, 0.0)
    for file in queue.files:
        if file.end > begin and (record := record_at(file, max(begin, file.file_from_offset))) is not None:
            return Unprotected(end - begin, max(0.0, time.time() - record.store_timestamp / 1000))
    return Unprotected(end - begin, 0.0)


@dataclass(frozen=True)
class BackupStatus:
    """A backup beside its store: the newest restore point (None without one), and the log that it lacks."""

    point: RestorePoint | None
    left: Unprotected

    def to_json(self) -> str:
        """The status as one JSON object."""
        point = None if self.point is None else point_fields(self.point)
        return json.dumps(
            {
                "newest": point,
                **{f"unprotected{name.capitalize()}": value for name, value in self.left._asdict().items()},
            }
        )

    def text(self) -> str:
        """The status for people."""
        newest = "there is no restore point" if self.point is None else point_line(self.point)
        if not self.left.bytes:
            return f"{newest}\nall is in the backup"
        seconds = duration_text(self.left.seconds)
        return f"{newest}\n{size_text(self.left.bytes)} and {seconds} of messages are not in the backup"


def status_of(config: PipelineConfig, source: TableLocation) -> BackupStatus:
    """Compare a backup with its store; the errors are those of ``Backup.last_point`` and of ``LogReader``."""
    point = Backup(source).last_point()
    log = log_of(config)
    return BackupStatus(point, unprotected(log, point, log.settled_end(log.queue().min_offset)))


# ----------------------------------------------------------------------------------------------------------------------
# The output of the commands.


def point_fields(point: RestorePoint) -> dict[str, Any]:
    """A restore point in a few fields, for JSON."""
    return {
        "point": point.number,
        "created": time_text(point.created_ms),
        "begin": point.begin,
        "end": point.end,
        "lastStored": None if point.last_stored_ms is None else time_text(point.last_stored_ms),
        "parts": len(point.parts),
        "configFiles": len(point.config),
        "bytes": sum(part.size for part in point.parts),
    }


def point_line(point: RestorePoint) -> str:
    """A restore point in a line."""
    last = "no message" if point.last_stored_ms is None else f"last message {time_text(point.last_stored_ms)}"
    return (
        f"restore point {point.number} of {time_text(point.created_ms)}: offsets {point.begin} to {point.end}, {last}, "
        f"{size_text(sum(part.size for part in point.parts))}"
    )


def describe_fields(point: RestorePoint) -> dict[str, Any]:
    """Return everything about a restore point, for JSON."""
    config = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in point.config]
    parts = [{"name": part.name, "size": part.size, "sha256": part.sha256} for part in point.parts]
    made: Mapping[str, Any] = {"store": point.store, "reput": point.reput, "settings": dict(point.settings)}
    return {**point_fields(point), **made, "mappedFileSize": point.mapped_file_size, "config": config, "log": parts}


def describe_lines(point: RestorePoint) -> Iterator[str]:
    """Yield everything that matters about a restore point, for people."""
    yield point_line(point)
    yield f"  store     {point.store}, segments of {size_text(point.mapped_file_size)}"
    yield f"  made by   reput {point.reput}"
    yield "  settings  " + ", ".join(f"{name}={value}" for name, value in sorted(point.settings.items()))
    yield f"  log       {counted(len(point.parts), 'part')}, {size_text(point.end - point.begin)} uncompressed"
    for before, after in zip(point.parts, point.parts[1:], strict=False):
        if before.end != after.begin:
            yield f"  log       the store had no segment with offsets {before.end} to {after.begin}"
    for file in point.config:
        yield f"  {file.path}  {size_text(file.size)}"


def proof_json(proof: Proof, sample: Mapping[str, Any] | None = None) -> str:
    """Return the result of `reput backup verify` as one JSON object, with that of a restored `sample`, if any."""
    faults = [{"file": each.file, "what": each.what, "points": list(each.points)} for each in proof.faults]
    counts = {"points": proof.points, "files": proof.files, "bytes": proof.bytes, "logBytes": proof.log_bytes}
    found = {**counts, "broken": proof.broken, "faults": faults}
    return printable_json(found if sample is None else {**found, "sample": sample})


def proof_lines(proof: Proof) -> Iterator[str]:
    """The result of `reput backup verify` for people."""
    yield (
        f"{counted(proof.points, 'restore point')}, {counted(proof.files, 'file')}, {size_text(proof.bytes)}, "
        f"{size_text(proof.log_bytes)} of the log"
    )
    for fault in proof.faults:
        first, more = fault.points[0], len(fault.points) - 1
        others = f" and {more} more" if more else ""
        yield f"{fault.file}: {fault.what} (restore point {first}{others})"
    if not proof.points:
        yield "there is no restore point"
    elif proof.faults:
        yield f"{counted(len(proof.broken), 'restore point')} cannot be restored"
    else:
        yield "every restore point can be restored"


def list_json(points: list[RestorePoint]) -> str:
    """Restore points as one JSON array."""
    return json.dumps([point_fields(point) for point in points])
