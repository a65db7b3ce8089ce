"""`reput verify` on a small output, in this process and as a command; what it found, and where an output has what."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from support.command_line import invoke
from support.outputs import SETTINGS, Output
from typer.testing import Result

from reput.sinks.findings import Difference
from reput.sinks.formats.consume_queue import ENTRY
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification

ENTRIES_AT = 40 + 4 * SETTINGS.max_hash_slot_num
STORES = ["golden-a", "golden-b", "v4-plain", "v4-tx-delay-retry", "v4-killed", "v4-killed-rebuilt", "v4-expired"]
STORES += ["v4-expired-rebuilt", "v4-lmq", "v4-sql92", "v4-sql92-rebuilt", "v4-dledger"]
STORES += ["v5-plain", "v5-longtopic", "v5-batchcq", "v5-propcrc"]
#: Notes that real brokers' stores give, and nothing else may.
NOTES = {
    "v4-expired": {"expired_entries": 1603, "expired_keys": 309},
    "v4-sql92": {"bit_map_of_other_subscriptions": 200},
}
SIZES = [
    *("-o", f"mappedFileSizeConsumeQueue={SETTINGS.mapped_file_size_consume_queue}", "-o", "tailGuardMs=0"),
    *("-o", f"maxHashSlotNum={SETTINGS.max_hash_slot_num}", "-o", f"maxIndexNum={SETTINGS.max_index_num}"),
]


def run_verify(output: Output, *arguments: str | Path) -> Result:
    """Run `reput verify` as a command on an output with its settings."""
    words = ["verify", "--store", output.store, "--output", output.out, *SIZES, *arguments]
    return invoke([str(word) for word in words])


def verify(config: PipelineConfig, output: Path) -> list[StoreSection]:
    return StoreVerification(config, output).run(SerialTasks())


def found_in(sections: list[StoreSection]) -> dict[str, int]:
    """The kinds of differences of all sections, counted."""
    counts: Counter[str] = Counter()
    for section in sections:
        counts += section.findings.counts
    return dict(counts)


def notes_of(sections: list[StoreSection]) -> dict[str, int]:
    return {cause: count for section in sections for cause, count in section.findings.notes.items()}


def told(sections: list[StoreSection]) -> list[Difference]:
    return [difference for section in sections for difference in section.findings.first]


@dataclass(frozen=True)
class QueueFile:
    """A queue with several files, and its entries."""

    directory: Path
    entries: np.ndarray
    file_size: int

    def file(self, number: int) -> tuple[Path, int]:
        at = number * ENTRY.itemsize
        return self.directory / f"{at - at % self.file_size:020d}", at % self.file_size


def queue_of(output: Output) -> QueueFile:
    """The queue with the most entries."""
    found = []
    for directory in sorted((output.out / "consumequeue").glob("*/*")):
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        units = np.frombuffer(data, ENTRY)
        found.append((int(np.count_nonzero(units["msg_size"])), directory, units))
    count, directory, units = max(found, key=lambda known: known[0])
    assert count > 2 * 5
    return QueueFile(directory, units[:count], SETTINGS.mapped_file_size_consume_queue)


def index_of(output: Output, at: int = 0) -> Path:
    return sorted((output.out / "index").iterdir())[at]


def state_of(root: Path) -> dict[str, tuple[int, int, int, str]]:
    """Every path below a directory: mtime, ctime, size, digest."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, digest)
    return found
