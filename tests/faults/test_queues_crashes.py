"""`reput queues`, and a rebuild in RocksDB, stopped before any call that changes the disk.

The store always has one whole set of queues.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from faults.fault_files import Stopped, stopped_at
from support.broker_stores import unpack
from support.rebuild_runner import rebuild
from support.sink_runner import files_below, no_fsync

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.swap import finish_swap
from reput.sinks.queue.rocksdb_queue import RocksDBQueues
from reput.source.log.store_layout import rocksdb_queues
from reput.streaming.config.pipeline import load_config
from reput.streaming.rebuild.queues import FILES, ROCKSDB, QueueMove


def queues_of(store: Path) -> Any:
    """The queues in place: the bytes of files, or all entries in RocksDB."""
    database = rocksdb_queues(store)
    if database is None:
        return files_below(store / "consumequeue")
    with RocksDBQueues.open(database) as queues:
        entries = {queue: [(n.tolist(), u.tobytes()) for n, u in queues.entries(queue)] for queue in queues.last}
        return entries, queues.last, queues.dispatched_to


def convert(home: Path, to: str) -> None:
    config = load_config(home / "store", broker_conf=home / "broker.conf", knows_rocksdb=True)
    with no_fsync():
        QueueMove(config, to).run()


def stop_at_calls(start: Path, home: Path, run: Callable[[Path], object], step: int) -> int:
    """Run on a copy of `start` in `home`, stopped at every `step`-th call; returns how many calls there were."""
    old = queues_of(start / "store")
    shutil.copytree(start, home)
    run(home)
    new = queues_of(home / "store")
    assert new != old
    for number in itertools.count(1, step):
        shutil.rmtree(home)
        shutil.copytree(start, home)
        store = home / "store"
        try:
            with stopped_at(number):
                run(home)
            lived = True
        except Stopped:
            lived = False
        if (store / "reput" / "rebuild" / "swap.json").exists():
            assert (store / "abort").exists(), "a broker would take a part of the queues for all"
            shutil.copytree(store, home / "taken")
            files = DurableFiles(home / "taken")
            assert finish_swap(files)
            files.close()
            assert queues_of(home / "taken") == new
        else:
            assert queues_of(store) in (old, new)
        run(home)
        assert queues_of(store) == new
        assert not (store / "reput" / "rebuild").exists()
        if lived:
            return number
    raise AssertionError


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("to", [FILES, ROCKSDB])
def test_stopped_at_calls(to: str, step: int, tmp_path: Path) -> None:
    start = unpack("golden-b", tmp_path)
    if to == FILES:
        convert(start, ROCKSDB)
    assert stop_at_calls(start, tmp_path / "home", partial(convert, to=to), step) > 15
    assert not (tmp_path / "home" / "store" / "abort").exists()


def make_again(home: Path, *exclude: str) -> None:
    config = load_config(home / "store", broker_conf=home / "broker.conf", knows_rocksdb=True)
    with no_fsync():
        rebuild(config, home / "store", only="consumequeue", exclude=exclude)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rebuild_stopped_at_calls(step: int, tmp_path: Path) -> None:
    """A database that lacks a topic is replaced by one that has it."""
    start = unpack("v5-rocksdb", tmp_path)
    make_again(start, "PlainKp")
    assert stop_at_calls(start, tmp_path / "home", make_again, step) > 20
