"""The logs that are measured: named shapes, each made once and kept."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.make_log import Shape, make_log

MADE = "made.json"
SEGMENT_BYTES = 1 << 30

STANDARD = Shape(
    messages=10_000_000,
    body_bytes=347,
    queues=64,
    topics=8,
    keys=1,
    seed=1,
    mapped_file_size=SEGMENT_BYTES,
    ipv6=False,
    non_ascii=False,
)

#: The differences from the standard shape: records of 517 bytes with a key and a unique key over 64 queues.
SHAPES = {
    "standard": STANDARD,
    "body-100": replace(STANDARD, body_bytes=100),
    "body-4k": replace(STANDARD, body_bytes=4 << 10),
    "body-64k": replace(STANDARD, body_bytes=64 << 10),
    "queue-1": replace(STANDARD, queues=1, topics=1),
    "queues-1000": replace(STANDARD, queues=1000),
    "queues-10000": replace(STANDARD, queues=10_000, topics=100),
    "queues-100000": replace(STANDARD, queues=100_000, topics=100),
    "queues-10": replace(STANDARD, queues=10),
    "keys-0": replace(STANDARD, keys=0),
    "keys-2": replace(STANDARD, keys=2),
    "keys-10": replace(STANDARD, keys=10),
    "ipv6": replace(STANDARD, ipv6=True),
    "non-ascii": replace(STANDARD, non_ascii=True),
    # For questions to the message table: a day of 100 topics.
    "day": replace(STANDARD, messages=30_000_000, body_bytes=100, queues=400, topics=100, us_a_message=2880),
}

#: The shapes of `make bench-all`; the others are points of the curves in docs/scale.md.
ALL = [name for name in SHAPES if name not in {"queues-10", "queues-1000", "queues-100000", "day"}]


@dataclass(frozen=True)
class MadeLog:
    """A log on disk. `store` holds ``commitlog/`` and ``broker.conf``; `size_bytes` counts its records."""

    name: str
    store: Path
    messages: int
    size_bytes: int

    @property
    def commit_log(self) -> Path:
        """The directory of segments."""
        return self.store / "commitlog"


def fitting(shape: Shape, bytes_max: int) -> Shape:
    """The shape with as many messages as stay below `bytes_max`, at most its own; a guess from the body's size."""
    record_bytes = shape.body_bytes + 170 + 24 * shape.keys
    return replace(shape, messages=max(1000, min(shape.messages, bytes_max // record_bytes)))


def made_log(work: Path, name: str, shape: Shape) -> MadeLog:
    """The log of a shape below `work`, made if it is not there yet; the kept one must have the same shape."""
    store = work / "logs" / f"{name}-{shape.messages}"
    marker = store / MADE
    if not marker.exists():
        shutil.rmtree(store, ignore_errors=True)  # what a stopped run had begun
        size_bytes = make_log(store, shape)
        for path in [*(store / "commitlog").iterdir(), store / "broker.conf"]:
            _sync(path)
        marker.write_text(json.dumps({"size_bytes": size_bytes, "shape": asdict(shape)}, indent=1), encoding="utf-8")
    found = json.loads(marker.read_text(encoding="utf-8"))
    if found["shape"] != asdict(shape):
        raise SystemExit(f"{store} was made with another shape, {found['shape']}: remove it")
    return MadeLog(name, store, shape.messages, found["size_bytes"])


def _sync(path: Path) -> None:
    # Writing back in the middle of a run would take the disk from what is measured.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
