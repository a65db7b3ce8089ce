"""A store that grows, as a broker's does, and its backup."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from support.logs import varied_messages
from support.record_writer import CommitLogWriter, StoredRecord

from reput.sinks.backup.backup_store import Backup
from reput.sinks.backup.backup_writer import BackupWriter
from reput.sinks.backup.restore_point import RestorePoint
from reput.sinks.table.location import TableLocation
from reput.streaming.backup.backup import log_of, settings_at, settings_of
from reput.streaming.backup.restore import Restored, RestoreRequest, restore
from reput.streaming.config.pipeline import PipelineConfig, load_config

SEGMENT, BLOCK = 4096, 1500
FIRST_MS = 1_700_000_000_000
#: Restore points of a store that has grown.
STEPS = 10
#: Small files, which roll often; the last record is trusted at once.
OPTIONS = (
    *("mappedFileSizeConsumeQueue=200", "maxHashSlotNum=7", "maxIndexNum=20", "tailGuardMs=0"),
    *("brokerVersion=5.5.0", "sparkMaster=local[1]"),
)


class GrowingStore:
    """A store in `root`/store, whose backup is in `root`/backup or at a location; a message is stored every 10 ms."""

    def __init__(self, root: Path, seed: int = 0, location: TableLocation | None = None) -> None:
        self.root = root
        self.store, self.backup = root / "store", Backup(location or root / "backup")
        self.messages = varied_messages(2000, seed=seed)
        self.log = CommitLogWriter(self.store / "commitlog", SEGMENT, preallocate=True)
        self.count = 0
        self.rng = random.Random(seed)
        self.backup.prepare()

    @property
    def now_ms(self) -> int:
        """The time of day: that of the next message."""
        return FIRST_MS + 10 * self.count

    def append(self, count: int) -> Sequence[StoredRecord]:
        """Store this many messages; return them."""
        for message in self.messages[self.count : self.count + count]:
            self.log.append(replace(message, store_timestamp=self.now_ms))
            self.count += 1
        self.log.close()
        return self.log.records[len(self.log.records) - count :]

    def put_config(self, name: str, value: object) -> None:
        """Save a file of configuration."""
        path = self.store / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))

    def put_offsets(self) -> None:
        """Have a group consume all that is stored, and more: its offsets lead beyond the log."""
        queues = {(record.message.topic, record.message.queue_id) for record in self.log.records}
        table: dict[str, dict[str, int]] = {}
        for topic, queue_id in sorted(queues):
            offset = self.log.next_queue_offset(topic, queue_id)
            table.setdefault(f"{topic}@group", {})[str(queue_id)] = offset
        self.put_config("consumerOffset.json", {"offsetTable": table})

    def config(self, store: Path | None = None) -> PipelineConfig:
        """The settings of the store, or of another one."""
        return load_config(store or self.store, overrides=OPTIONS)

    def writer(self) -> BackupWriter:
        """A writer that knows what the backup has."""
        config = self.config()
        return BackupWriter(
            self.backup,
            lambda: log_of(config),
            self.store,
            settings_of(config),
            block_bytes=BLOCK,
            now_ms=lambda: self.now_ms,
        )

    def step(self) -> RestorePoint | None:
        """A step of a new process."""
        return self.writer().step()

    def grow(self, steps: int) -> list[RestorePoint]:
        """Back up after each of several times that messages are stored and configuration is saved."""
        points = []
        for _ in range(steps):
            self.append(self.rng.randint(1, 12))
            self.put_offsets()
            self.put_config("topics.json", {"count": self.count})
            point = self.step()
            assert point is not None
            points.append(point)
        return points

    def bytes_of_log(self, begin: int, end: int) -> bytes:
        """The bytes `[begin, end)` of the store's log; zeros where a file is missing."""
        return log_bytes_of(self.store, begin, end)

    def restore(self, target: Path, **moment: int) -> Restored:
        """Restore the backup into a directory."""
        return restore(RestoreRequest(self.backup.location, target, **moment), self.load)

    @staticmethod
    def load(work: Path, point: RestorePoint) -> PipelineConfig:
        """The settings for `restore`."""
        return load_config(work, overrides=[*settings_at(point, OPTIONS, None), *OPTIONS])


def log_bytes_of(store: Path, begin: int, end: int) -> bytes:
    """The bytes `[begin, end)` of a store's log; zeros where a file is missing."""
    found = bytearray()
    for at in range(begin - begin % SEGMENT, end, SEGMENT):
        path = store / "commitlog" / f"{at:020d}"
        found += path.read_bytes() if path.exists() else bytes(SEGMENT)
    first = begin % SEGMENT
    return bytes(found[first : first + end - begin])
