"""A real broker boots on the files that `reput tail` made, and takes every byte of them as its own.

The short form boots 4.9.3 on one store. All stores, and a changed byte in each field of a queue entry and in an index
slot, in the first, a middle and the last one (about 20 minutes)::

    python -m pytest tests/test_boot.py -m "slow or not slow"

One store by hand, from the directory `tests`, printed as a line of a table::

    python -m broker boot 4.9.3 STORE OUTPUT
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from broker.boot_check import boot_check
from broker.rocketmq import RocketMQ
from pyspark.sql import SparkSession
from support.broker_stores import unpack
from support.tail_runs import run_tail

pytestmark = [pytest.mark.broker, pytest.mark.spark]

GetRelease = Callable[[str], RocketMQ]
QUERIES_MAX = 500
UNIT_BYTES, INDEX_HEADER_BYTES, SLOT_BYTES = 20, 40, 4
# The last byte of each field of a queue entry.
QUEUE_FIELDS = {"offset": 7, "size": 11, "tags code": 19}
PLACES = {"first": 0.0, "middle": 0.5, "last": 1.0}


V4 = ("v4-tx-delay-retry", "v4-killed-rebuilt", "v4-expired-rebuilt", "v4-lmq", "v4-dledger", "v4-sql92-rebuilt")
V5 = ("v5-plain", "v5-propcrc", "v5-batchcq", "v5-longtopic")
STORES = [
    ("v4-plain", "4.9.3"),
    *(pytest.param(name, "4.9.3", marks=pytest.mark.slow) for name in V4),
    *(pytest.param(name, "5.5.0", marks=pytest.mark.slow) for name in V5),
]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Unpack a store of tests/data and let `reput tail` build its files, once a run: store's home and output."""
    results: dict[str, tuple[Path, Path]] = {}

    def make(name: str) -> tuple[Path, Path]:
        if name not in results:
            directory = tmp_path_factory.mktemp("boot")
            home, output = unpack(name, directory), directory / "output"
            run_tail(spark, home / "store", output, conf=home / "broker.conf")
            results[name] = home, output
        return results[name]

    return make


@pytest.mark.parametrize(("name", "version"), STORES)
def test_a_broker_takes_the_files_as_its_own(
    name: str, version: str, release: GetRelease, made: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """No warning, nothing dispatched again, no file changed; every message, filtered subset and key is found."""
    home, output = made(name)
    report = boot_check(release(version), home, output, tmp_path, QUERIES_MAX)
    assert report.accepted, str(report)
    assert report.audit is not None
    assert 0 < report.audit.consumed.expected == report.audit.consumed.found
    assert 0 < report.audit.filtered.expected == report.audit.filtered.found
    assert 0 < report.audit.keys.expected == report.audit.keys.found


@pytest.mark.parametrize(
    ("field", "place"),
    [pytest.param(field, place, marks=pytest.mark.slow) for field in (*QUEUE_FIELDS, "index slot") for place in PLACES],
)
def test_a_changed_byte_is_noticed(
    field: str, place: str, release: GetRelease, made: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    """One bit of one used unit is enough for the check to fail."""
    home, output = made("v4-plain")
    changed = tmp_path / "changed"
    shutil.copytree(output, changed, ignore=shutil.ignore_patterns("reput"))
    if field == "index slot":
        change_index_slot(changed, PLACES[place])
    else:
        change_queue_entry(changed, PLACES[place], QUEUE_FIELDS[field])
    queries_max = None if field == "index slot" else 1
    report = boot_check(release("4.9.3"), home, changed, tmp_path / "boot", queries_max)
    assert not report.accepted
    assert report.problems, "only the broker's log tells it"


def change_queue_entry(output: Path, place: float, byte: int) -> None:
    """Flip a bit in a queue of many files, in the unit at `place` of those in use."""
    files = sorted((output / "consumequeue" / "TopicA" / "5").iterdir())
    used = [
        (path, at)
        for path in files
        for data in [path.read_bytes()]
        for at in range(0, len(data), UNIT_BYTES)
        if struct.unpack_from(">i", data, at + 8)[0] > 0
    ]
    path, at = used[round(place * (len(used) - 1))]
    flip(path, at + byte)


def change_index_slot(output: Path, place: float) -> None:
    """Flip a bit in the slot at `place` of those in use in the oldest index file."""
    path = min((output / "index").iterdir())
    data = path.read_bytes()
    slots = range(INDEX_HEADER_BYTES, INDEX_HEADER_BYTES + 1000 * SLOT_BYTES, SLOT_BYTES)
    used = [at for at in slots if struct.unpack_from(">i", data, at)[0] > 0]
    flip(path, used[round(place * (len(used) - 1))] + SLOT_BYTES - 1)


def flip(path: Path, at: int) -> None:
    """Change the lowest bit of one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
