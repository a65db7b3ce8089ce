"""One step of queues, index and checkpoint over a log, as `tail` takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.outputs import config_of
from support.record_writer import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Message
from support.sink_runner import SMALL, dispatch_store, write_log

from reput.sinks.store_checkpoint import StoreCheckpoint

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
