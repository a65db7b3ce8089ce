"""The sinks against the files that 4.9.3 brokers left: the same log gives the same bytes, wherever batches end."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.model import Record, Settings, read_entries, read_log
from support.sink_runner import (
    LogBatches,
    SinkRun,
    check_output,
    index_contents,
    no_fsync,
    queue_files,
    record_bounds,
    run_sinks,
)

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.store_checkpoint import StoreCheckpoint, load_store_checkpoint, store_checkpoint

if TYPE_CHECKING:
    from conftest import BrokerStore

STORES = ["golden-a", "golden-b", "v4-plain", "v4-tx-delay-retry", "v4-killed-rebuilt", "v4-expired-rebuilt"]
STORES += ["v4-dledger"]
DLEDGER_DATA = Path("dledger-n0", "data")
GetStore = Callable[[str], "BrokerStore"]


def settings_of(store: BrokerStore) -> Settings:
    lines = store.broker_conf.read_text(encoding="utf-8").splitlines()
    conf = dict(line.split("=", 1) for line in lines if "=" in line)
    return Settings(*(int(conf[name]) for name in ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum")))


@functools.cache
def records_of(root: Path) -> list[Record]:
    segments = {int(path.name): path.read_bytes() for path in sorted(log_of(root).iterdir())}
    return list((read_entries if is_dledger(root) else read_log)(segments))


def is_dledger(root: Path) -> bool:
    return (root / DLEDGER_DATA).is_dir()


def log_of(root: Path) -> Path:
    return root / (DLEDGER_DATA if is_dledger(root) else "commitlog")


def batches_of(store: BrokerStore) -> LogBatches:
    dledger = is_dledger(store.root)
    return LogBatches(log_of(store.root), range_bytes=100_000, window_bytes=40_000, dledger=dledger)


def bounds_of(root: Path) -> list[int]:
    """Where batches may begin and end in the store's log."""
    return record_bounds(records_of(root), frame=48 if is_dledger(root) else 0)


def index_files(root: Path) -> dict[str, bytes]:
    return {f"index/{path.name}": path.read_bytes() for path in (root / "index").iterdir()}


def one_batch(allowed: list[int]) -> list[int]:
    return [allowed[0], allowed[-1]]


def many_batches(allowed: list[int]) -> list[int]:
    return [allowed[0], *sorted(random.Random(1).sample(allowed[1:-1], min(40, len(allowed) - 2))), allowed[-1]]


def records_one_by_one(allowed: list[int]) -> list[int]:
    return [*allowed[:60], *allowed[-30:]] if len(allowed) > 90 else allowed


CUTS = [one_batch, many_batches, records_one_by_one]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", STORES)
def test_bytes_equal_the_brokers(
    name: str, cut: Callable[[list[int]], list[int]], broker_store: GetStore, tmp_path: Path
) -> None:
    """ConsumeQueue files and IndexFile contents are the broker's, byte for byte, and nothing else is written."""
    store = broker_store(name)
    records, settings = records_of(store.root), settings_of(store)
    with no_fsync():
        run_sinks(tmp_path, batches_of(store), cut(bounds_of(store.root)), settings)
    assert queue_files(tmp_path) == queue_files(store.root)
    assert index_contents(tmp_path) == index_contents(store.root)
    check_output(tmp_path, records, settings)


@pytest.mark.parametrize("name", STORES)
def test_other_sizes_follow_the_model(name: str, broker_store: GetStore, tmp_path: Path) -> None:
    """Small files, rolled often, hold what the model of the broker says."""
    store = broker_store(name)
    records = records_of(store.root)[:2000]
    settings = Settings(mapped_file_size_consume_queue=201, max_hash_slot_num=7, max_index_num=50)
    with no_fsync():
        allowed = [offset for offset in bounds_of(store.root) if offset <= records[-1][0] + records[-1][2]]
        run_sinks(tmp_path, batches_of(store), many_batches(allowed), settings)
    check_output(tmp_path, records, settings)


@pytest.mark.parametrize("name", STORES)
def test_goes_on_behind_the_brokers_files(name: str, broker_store: GetStore, tmp_path: Path) -> None:
    """Given a broker's own files, the sinks find where they end and change no byte."""
    store = broker_store(name)
    records = records_of(store.root)
    for path, data in {**queue_files(store.root), **index_files(store.root)}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    before = {**queue_files(tmp_path), **index_files(tmp_path)}
    with SinkRun(tmp_path, settings_of(store)) as run:
        allowed = bounds_of(store.root)
        start = max(offset for offset in allowed if offset <= run.end)
        assert start > records[0][0]
        assert run.end <= allowed[-1]
        run.write(batches_of(store)(start, allowed[-1]))
    assert {**queue_files(tmp_path), **index_files(tmp_path)} == before


@pytest.mark.parametrize("name", STORES)
def test_checkpoint_equals_the_brokers(name: str, broker_store: GetStore, tmp_path: Path) -> None:
    """A clean broker's checkpoint survives decode and encode, and a run leaves its queue and index times."""
    store = broker_store(name)
    records = records_of(store.root)
    brokers = (store.root / "checkpoint").read_bytes()
    assert StoreCheckpoint.decode(brokers).encode() == brokers
    run_sinks(tmp_path, batches_of(store), many_batches(bounds_of(store.root)), settings_of(store))
    ours = StoreCheckpoint.decode((tmp_path / "checkpoint").read_bytes())
    # A broker takes the first field from its own flushes, which may be older than the last record.
    assert ours.physic_msg_timestamp == records[-1][1].store_timestamp
    physic = StoreCheckpoint.decode(brokers).physic_msg_timestamp
    ours = ours.with_logics_physical_offset(0)  # a field of 5.5.0
    assert replace(ours, physic_msg_timestamp=physic).encode() == brokers


def test_checkpoint_bytes(tmp_path: Path) -> None:
    """Three big-endian longs and zeros to 4096 bytes; a missing or short file reads as zeros."""
    checkpoint = StoreCheckpoint(5000, 9000, 7)
    expected = bytes.fromhex("0000000000001388 0000000000002328 0000000000000007").ljust(4096, b"\0")
    assert checkpoint.encode() == expected
    assert StoreCheckpoint.decode(expected[:20]) == StoreCheckpoint(5000, 9000, 0)
    files = DurableFiles(tmp_path)
    assert load_store_checkpoint(files) == StoreCheckpoint()
    store_checkpoint(files, checkpoint)
    assert load_store_checkpoint(files) == checkpoint
    assert (tmp_path / "checkpoint").read_bytes() == expected
