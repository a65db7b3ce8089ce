"""Detects when queue entries and commits of the table appear on disk, from outside reput."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE, ENTRY

QUEUE_POLL_S = 0.003
COMMIT_POLL_S = 0.01
ROUNDS_A_LISTING = 50
READ_BYTES = CQ_STORE_UNIT_SIZE * 16_384

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


class QueueFollower:
    """The entries of one queue directory, each given out once, in order."""

    def __init__(self, directory: Path, file_size: int) -> None:
        self._directory = directory
        self._file_size = file_size
        self._logic_offset = 0
        self._descriptor: int | None = None

    def new_offsets(self) -> Int64s:
        """Physical offsets of the entries that were written since the last call."""
        found = []
        while (entries := self._read()).size:
            found.append(entries["physical_offset"].astype(np.int64))
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def close(self) -> None:
        """Let the file go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> np.ndarray:
        place = self._logic_offset % self._file_size
        if self._descriptor is None:
            name = f"{self._logic_offset - place:020d}"
            try:
                self._descriptor = os.open(self._directory / name, os.O_RDONLY)
            except FileNotFoundError:
                return np.empty(0, ENTRY)
        data = os.pread(self._descriptor, min(READ_BYTES, self._file_size - place), place)
        entries = np.frombuffer(data[: len(data) // CQ_STORE_UNIT_SIZE * CQ_STORE_UNIT_SIZE], ENTRY)
        unused = np.flatnonzero(entries["msg_size"] == 0)
        entries = entries[: unused[0]] if unused.size else entries
        self._logic_offset += entries.size * CQ_STORE_UNIT_SIZE
        if entries.size and self._logic_offset % self._file_size == 0:
            self.close()
        return entries


class _Watch(threading.Thread):
    """Looks again and again, from entering to leaving."""

    def __init__(self, poll_s: float) -> None:
        super().__init__(daemon=True)
        self._poll_s = poll_s
        self._done = threading.Event()

    def look(self) -> None:
        """Look once."""
        raise NotImplementedError

    def run(self) -> None:
        """Look until told to stop, and once more."""
        while not self._done.wait(self._poll_s):
            self.look()
        self.look()

    def __enter__(self) -> None:
        """Begin."""
        self.start()

    def __exit__(self, *_: object) -> None:
        """End."""
        self._done.set()
        self.join()


class QueueWatch(_Watch):
    """When each entry below a ``consumequeue`` directory was first seen."""

    def __init__(self, consume_queue: Path, file_size: int) -> None:
        super().__init__(QUEUE_POLL_S)
        self._root = consume_queue
        self._file_size = file_size
        self._queues: dict[Path, QueueFollower] = {}
        self._rounds = 0
        self._seen: list[tuple[float, Int64s]] = []

    def look(self) -> None:
        """Ask each queue; list the directories only now and then."""
        if self._rounds % ROUNDS_A_LISTING == 0:
            for directory in self._root.glob("*/*"):
                self._queues.setdefault(directory, QueueFollower(directory, self._file_size))
        self._rounds += 1
        for queue in self._queues.values():
            offsets = queue.new_offsets()
            if offsets.size:
                self._seen.append((time.time() * 1000, offsets))

    def __exit__(self, *_: object) -> None:
        """End with a look that misses no directory, and let the files go."""
        super().__exit__()
        self._rounds = 0
        self.look()
        for queue in self._queues.values():
            queue.close()

    def delays(self, stored_offsets: Int64s, stored_ms: Int64s) -> Float64s:
        """Milliseconds from store timestamp to entry of the messages that were stored, sorted by offset.

        Raises
        ------
        ValueError
            Some of them have no entry.
        """
        offsets = np.concatenate([offsets for _, offsets in self._seen])
        seen_ms = np.concatenate([np.full(offsets.size, at) for at, offsets in self._seen])
        order = np.argsort(offsets)
        places = np.searchsorted(offsets, stored_offsets, sorter=order)
        found = order[np.minimum(places, offsets.size - 1)]
        missing = np.count_nonzero(offsets[found] != stored_offsets)
        if missing:
            raise ValueError(f"{missing} of {stored_offsets.size} messages have no queue entry")
        return seen_ms[found] - stored_ms


class DurableWatch(_Watch):
    """When all entries before an offset of the log were durable, as the queues' progress record says.

    For more queues than can be looked at every few milliseconds.
    """

    def __init__(self, record: Path) -> None:
        super().__init__(QUEUE_POLL_S)
        self._record = record
        self._seen: list[tuple[int, float]] = []

    def look(self) -> None:
        """Read the record."""
        end = int(json.loads(self._record.read_text())["end_offset"])
        if not self._seen or end > self._seen[-1][0]:
            self._seen.append((end, time.time() * 1000))

    def delays(self, stored_offsets: Int64s, stored_ms: Int64s) -> Float64s:
        """Return the milliseconds from store timestamp to the record that makes the message's entry durable.

        Raises
        ------
        ValueError
            Some messages are after the last record.
        """
        return _delays_of_ends(self._seen, stored_offsets, stored_ms)


class CommitWatch(_Watch):
    """When each commit of a Delta table was first seen."""

    def __init__(self, table: Path) -> None:
        super().__init__(COMMIT_POLL_S)
        self._log = table / "_delta_log"
        self._seen: dict[str, float] = {}

    def look(self) -> None:
        """List the commits."""
        if self._log.is_dir():
            now = time.time() * 1000
            for path in self._log.iterdir():
                if path.suffix == ".json" and path.stem.isdigit():
                    self._seen.setdefault(path.name, now)

    def delays(self, stored_offsets: Int64s, stored_ms: Int64s) -> Float64s:
        """Return the milliseconds from store timestamp to the commit that has the message's row.

        A commit's transaction version is the end offset in the log.

        Raises
        ------
        ValueError
            Some messages are after the last commit.
        """
        commits = sorted((end, self._seen[name]) for name in self._seen for end in self._versions(name))
        return _delays_of_ends(commits, stored_offsets, stored_ms)

    def _versions(self, name: str) -> list[int]:
        actions = [json.loads(line) for line in (self._log / name).read_text(encoding="utf-8").splitlines()]
        return [int(action["txn"]["version"]) for action in actions if "txn" in action]


def _delays_of_ends(seen: list[tuple[int, float]], stored_offsets: Int64s, stored_ms: Int64s) -> Float64s:
    """Milliseconds to the first end of `seen` (end, ms), which are ascending, that is behind each message."""
    ends = np.array([end for end, _ in seen], np.int64)
    places = np.searchsorted(ends, stored_offsets, side="right")
    if places.size and places.max() == ends.size:
        raise ValueError(f"{np.count_nonzero(places == ends.size)} messages are behind the last commit or record")
    return np.array([at for _, at in seen])[places] - stored_ms
