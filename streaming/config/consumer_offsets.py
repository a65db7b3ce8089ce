"""The offsets of a broker's consumer groups, read from its files repeatedly while the broker runs.

A broker writes ``config/consumerOffset.json`` every five seconds (``lmqConsumerOffset.json`` with ``enableLmq``), and
with ``configManagerVersion=v2`` the RocksDB database ``config/rdb`` (``ConsumerOffsetManagerV2``).
"""

from __future__ import annotations

import logging
import os
import re
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reput.sinks.files.config_manager import (
    LONG_MAX,
    backup_of,
    consumer_of,
    is_rocksdb,
    json_of,
    load_config_file,
    number_of,
    read_rocksdb,
)
from reput.source.errors import StoreError
from reput.source.options import shown
from reput.streaming.config.settings import CONFIG_MANAGER_V1, CONFIG_MANAGER_V2, Settings

if TYPE_CHECKING:
    from reput.sinks.table.consumption import Offsets

CONSUMER_OFFSETS: Final = "consumerOffset.json"
LMQ_CONSUMER_OFFSETS: Final = "lmqConsumerOffset.json"
_TABLE, _LMQ_TABLE = "offsetTable", "lmqOffsetTable"
# table prefix, table id, record prefix; then group and topic, each between its length and one byte, and the queue
_ROCKSDB_KEYS: Final = b"\x01\x00\x01\x02"
_ROCKSDB_LOOKED_AT_S: Final = 5.0
# A broker makes the text of all offsets before it writes the file, in less time than this.
_WRITTEN_WITHIN_MS: Final = 1000
# The file system's clock may lag by a tick of the kernel.
_TICK_MS: Final = 20

_BEGIN: Final = re.compile(rb'"offsetTable"\s*:\s*\{')
_GROUP: Final = re.compile(
    rb'[\s,]*"([^"@]+)@([^"@]+)"\s*:\s*\{\s*((?:"?-?\d{1,10}"?\s*:\s*-?\d{1,19}\s*(?:,\s*|\Z))*)'
)
_OTHER: Final = re.compile(rb'[\s,]*"[^"]*"\s*:\s*\{[\s\d:,"-]*')

_log = logging.getLogger("reput")


class Seen(NamedTuple):
    """All offsets as they were at one time between `least_ms` (None is unknown) and `most_ms`, in ms since 1970 UTC."""

    offsets: Offsets
    least_ms: int | None
    most_ms: int


class ConsumerOffsetsWatch:
    """Watches the offsets of a broker's groups; a look costs little while nothing changes."""

    def __init__(self, settings: Settings, store: Path) -> None:
        self._config = store / "config"
        self._with_lmq = settings.broker.enable_lmq
        self._stated = settings.broker.config_manager_version
        self._stamp: object = None
        self._bad: object = None
        self._told: object = None
        self._rocksdb_read_at = -_ROCKSDB_LOOKED_AT_S
        # The bytes of each group in the last file, with the offsets in them.
        self._groups: dict[bytes, tuple[tuple[str, str], dict[int, int]] | None] = {}
        # The bytes of the whole last file, with the offsets in them.
        self._text, self._offsets = b"", dict[tuple[str, str], dict[int, int]]()

    def forget(self) -> None:
        """Have the next look read the file again, even if it has not changed."""
        self._stamp = None

    def look(self, *, takes_backup: bool) -> Seen | None:
        """Return the offsets if they may have changed; None if not, or if there is nothing to read.

        A file that is damaged in two looks is logged once. If it `takes_backup`, the ``.bak`` is read instead, as by a
        broker at its start. That is not for a running broker, which writes the file again, and whose ``.bak`` is older
        than what was seen.
        """
        try:
            if self._has_rocksdb():
                return self._look_at_rocksdb()
            return self._look_at_file(takes_backup=takes_backup)
        except StoreError as error:
            self._tell(str(error), str(error))
        except OSError as error:
            self._tell(str(error), f"cannot read {error.filename}: {error.strerror}")
        return None

    def _tell(self, what: object, words: str) -> None:
        if what != self._told:
            self._told = what
            _log.warning("consumers' offsets are not watched until this is mended: %s", words)

    def _has_rocksdb(self) -> bool:
        if self._stated == CONFIG_MANAGER_V2:
            return True
        return self._stated != CONFIG_MANAGER_V1 and not self._file.exists() and is_rocksdb(self._config / "rdb")

    @property
    def _file(self) -> Path:
        plain, lmq = self._config / CONSUMER_OFFSETS, self._config / LMQ_CONSUMER_OFFSETS
        return lmq if self._with_lmq else plain

    def _look_at_file(self, *, takes_backup: bool) -> Seen | None:
        path = self._file
        try:
            opened = path.open("rb")
        except FileNotFoundError:
            return self._damaged(path, None, "it is missing", takes_backup=takes_backup)
        with opened as file:
            status = os.fstat(file.fileno())
            stamp = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            if stamp == self._stamp:
                return None
            data = file.read()
        try:
            offsets = self._decoded(data)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, StoreError) as error:
            what = "it is empty" if not data.strip(b"\0 \r\n\t") else str(error)[:200]
            return self._damaged(path, stamp, what, takes_backup=takes_backup)
        self._stamp, self._bad, self._told = stamp, None, None
        written, changed = status.st_mtime_ns // 1_000_000, status.st_ctime_ns // 1_000_000
        now = time.time_ns() // 1_000_000
        return Seen(offsets, min(written, changed, now) - _WRITTEN_WITHIN_MS, changed + _TICK_MS)

    def _damaged(self, path: Path, stamp: object, what: str, *, takes_backup: bool) -> Seen | None:
        """Handle a damaged file: two looks must agree that it is damaged, because a broker may be writing it."""
        bad = stamp, what
        if bad != self._bad:
            self._bad = bad
            return None
        if stamp is None and not backup_of(path).exists():
            return None  # a broker that never had a consumer
        if takes_backup:
            found = load_config_file(
                backup_of(path), self._of_value, "a broker's consumer offsets", advice="restore it"
            )
            if found is not None:
                return Seen(found, None, time.time_ns() // 1_000_000)
        self._tell(bad, f"{path}: {what}")
        return None

    def _decoded(self, data: bytes) -> Offsets:
        quick = None if self._with_lmq else self._quick(data)
        if quick is not None:
            return quick
        found = json_of(data)
        offsets = self._of_value(found)
        if self._with_lmq:
            for name, offset in table_of(found, _LMQ_TABLE).items():
                if (consumer := consumer_of(name)) is not None:
                    offsets.setdefault(consumer, {})[0] = number_of(offset)
        return offsets

    def _of_value(self, value: Any) -> Offsets:
        return offsets_of(table_of(value, _TABLE))

    def _quick(self, data: bytes) -> Offsets | None:
        """Return the offsets of a whole file in the form that brokers write; only groups that have changed are decoded.

        None if the file has another form.
        """
        begin = _BEGIN.search(data)
        if begin is not None and self._text and data[begin.end() :] == self._text:
            return self._offsets
        if begin is None or b"\\" in data or data.count(b"{") != data.count(b"}"):
            return None
        if not data.rstrip(b"\0 \r\n\t").endswith(b"}"):
            return None
        known = self._groups
        groups: dict[bytes, tuple[tuple[str, str], dict[int, int]] | None] = {}
        for text in data[begin.end() :].split(b"}"):
            if not text.strip():
                self._groups, self._text = groups, data[begin.end() :]
                self._offsets = dict(found for found in groups.values() if found is not None)
                return self._offsets
            if text in known:
                groups[text] = known[text]
                continue
            group = _GROUP.fullmatch(text)
            if group is None and _OTHER.fullmatch(text) is None:
                return None
            groups[text] = None if group is None else _quick_group(*group.groups())
        return None

    def _look_at_rocksdb(self) -> Seen | None:
        directory, now = self._config / "rdb", time.monotonic()
        if now - self._rocksdb_read_at < _ROCKSDB_LOOKED_AT_S:
            return None
        self._rocksdb_read_at = now
        stamps = sorted(
            (file.name, status.st_size, status.st_mtime_ns)
            for file, status in ((file, file.stat()) for file in directory.iterdir())
            if file.name.partition(".")[0] not in ("LOG", "LOCK")
        )
        if stamps == self._stamp:
            return None
        written = max((mtime for _, _, mtime in stamps), default=0) // 1_000_000
        offsets: Offsets = {}
        for key, value in read_rocksdb(directory, _ROCKSDB_KEYS).items():
            group, topic, queue_id, offset = _rocksdb_row(directory, key, value)
            offsets.setdefault((group, topic), {})[queue_id] = offset
        self._stamp, self._told = stamps, None
        return Seen(offsets, written - _WRITTEN_WITHIN_MS, time.time_ns() // 1_000_000)


def _quick_group(topic: bytes, group: bytes, queues: bytes) -> tuple[tuple[str, str], dict[int, int]]:
    numbers = list(map(int, queues.replace(b'"', b"").replace(b":", b",").split(b",") if queues else ()))
    if numbers and max(numbers) > LONG_MAX:
        raise ValueError(f"{max(numbers)} is not an offset")
    offsets = dict(zip(numbers[::2], numbers[1::2], strict=True))
    return (group.decode(errors="replace"), topic.decode(errors="replace")), offsets


def offsets_of(table: dict[str, Any]) -> Offsets:
    """Return the offsets in an ``offsetTable``; raise ValueError or TypeError for one that a broker did not write.

    Names other than ``TOPIC@GROUP`` are ignored, as in ``ConsumerOffsetManager``.
    """
    found: Offsets = {}
    for name, offsets in table.items():
        if (consumer := consumer_of(name)) is None:
            continue
        if not isinstance(offsets, dict):
            raise TypeError(f"{shown(name)} has no offsets")
        found[consumer] = {number_of(queue_id): number_of(offset) for queue_id, offset in offsets.items()}
    return found


def table_of(value: Any, name: str) -> dict[str, Any]:
    """Return the table `name` of a file of ``config/``; raise LookupError or TypeError if no broker wrote it."""
    found = value[name]
    if not isinstance(found, dict):
        raise TypeError(f"{name} is not a table")
    return found


def _rocksdb_row(directory: Path, key: bytes, value: bytes) -> tuple[str, str, int, int]:
    names: list[str] = []
    place = len(_ROCKSDB_KEYS)
    for _ in range(2):
        length = int.from_bytes(key[place : place + 2], "big")
        names.append(key[place + 2 : place + 2 + length].decode(errors="replace"))
        place += 2 + length + 1
    if len(key) != place + 4 or len(value) != 8:
        raise StoreError(f"{directory} has a consumer offset of an unknown form", advice="report it", file=directory)
    return names[0], names[1], struct.unpack(">i", key[place:])[0], struct.unpack(">q", value)[0]
