"""One step of queues, index and checkpoint over a log, as `tail` takes it."""

from __future__ import annotations

import shutil
from contextlib import closing, nullcontext
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.outputs import config_of, messages_of
from support.rebuild_runner import LocalTasks, tasks_write_all
from support.record_writer import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Message
from support.sink_runner import (
    SMALL,
    dispatch_store,
    files_below,
    index_contents,
    no_fsync,
    record_bounds,
    take_step,
    write_log,
)

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.effects.logic_step import LogicStep
from reput.streaming.output.logic_sinks import LogicSinks

STORED = 1_700_000_000_000


@pytest.mark.parametrize("ext", ["true", "false"], ids=["record by record", "at once"])
@pytest.mark.parametrize("last", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
@pytest.mark.parametrize(("queues", "expected"), [("true", STORED + 1), ("false", 0)])
def test_the_checkpoints_times(ext: str, last: int, queues: str, expected: int, tmp_path: Path) -> None:
    """A record without a queue entry moves the log's time, and not the queues' (``setLogicsMsgTimestamp``)."""
    messages = [Message(sys_flag=flag, store_timestamp=STORED + at) for at, flag in enumerate((0, 0, last))]
    write_log(tmp_path / "commitlog", messages)
    config = config_of(tmp_path, SMALL, f"enableConsumeQueueExt={ext}", f"consumeQueueEnable={queues}")
    dispatch_store(config, tmp_path / "out")
    found = StoreCheckpoint.decode((tmp_path / "out" / "checkpoint").read_bytes())
    assert found == StoreCheckpoint(STORED + 2, expected, 0)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_what_tasks_write_is_what_the_step_writes(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """In any steps, some of which tasks write, with their scratch files removed now and then; and by the next run."""
    rng = Random(seed)
    root = tmp_path_factory.mktemp("step")
    records = write_log(root / "commitlog", messages_of(rng, 40))
    config = config_of(root, SMALL)
    dispatch_store(config, root / "here")
    log = LogReader(SourceOptions.parse(config.source_options()))
    cuts = sorted({0, *rng.sample(record_bounds(records), rng.randrange(1, 6)), log.settled_end(0)})
    with no_fsync(), closing(DurableFiles(root / "there")) as files:
        logic = step = None
        for start, end in pairwise(cuts):
            if step is None or rng.random() < 0.2:
                logic = LogicSinks.open(config, files)
                for sink in logic.sinks:
                    sink.recover(0)
                step = LogicStep(logic, files, log.decode_options, tasks=LocalTasks(rng.randrange(99)))
            with tasks_write_all() if rng.random() < 0.7 else nullcontext():
                take_step(step, log, start, end)
            if rng.random() < 0.3:
                step.clear_scratch()
                assert files_below(root / "there" / "reput" / "scratch") == {}
    here, there = (files_below(root / name) for name in ("here", "there"))
    for kind in ("consumequeue/", "checkpoint"):
        assert {path: data for path, data in there.items() if path.startswith(kind)} == {
            path: data for path, data in here.items() if path.startswith(kind)
        }
    assert index_contents(root / "here") == index_contents(root / "there")
    shutil.rmtree(root)
