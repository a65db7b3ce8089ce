"""One step of queues, index and checkpoint over a log, as `tail` takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker_stores import unpack
from support.outputs import config_of
from support.rebuild_runner import rebuild
from support.record_writer import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, Message, write_log
from support.sink_runner import SMALL, dispatch_store

from reput.sinks.store_checkpoint import StoreCheckpoint
from reput.streaming.config.pipeline import load_config

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


@pytest.mark.parametrize(("version", "keeps"), [("5.5.0", True), ("5.4.0", False), ("4.9.3", False)])
def test_where_the_last_queued_record_begins(version: str, keeps: bool, tmp_path: Path) -> None:
    """5.5.0 keeps it in the checkpoint (``logicsPhysicalOffset``); a record without an entry does not move it."""
    flags = (0, 0, TRANSACTION_PREPARED, 0, TRANSACTION_ROLLBACK)
    records = write_log(tmp_path / "commitlog", [Message(sys_flag=flag) for flag in flags])
    config = config_of(tmp_path, SMALL, f"brokerVersion={version}")
    dispatch_store(config, tmp_path / "out")
    found = StoreCheckpoint.decode((tmp_path / "out" / "checkpoint").read_bytes())
    assert found.logics_physical_offset == (records[3].physical_offset if keeps else 0)
    rebuild(config, tmp_path / "again")
    again = StoreCheckpoint.decode((tmp_path / "again" / "checkpoint").read_bytes())
    assert again == found


@pytest.mark.parametrize("name", ["v5-plain", "v5-longtopic"])
def test_the_offset_that_a_broker_left(name: str, tmp_path: Path) -> None:
    """A 5.5.0 broker whose last flush of the queues was its last act left the same checkpoint."""
    home = unpack(name, tmp_path)
    config = load_config(home / "store", broker_conf=home / "broker.conf")
    dispatch_store(config, tmp_path / "out")
    theirs, ours = (
        StoreCheckpoint.decode((root / "checkpoint").read_bytes()) for root in (home / "store", tmp_path / "out")
    )
    assert ours.logics_physical_offset == theirs.logics_physical_offset > 0
    assert ours.logics_msg_timestamp == theirs.logics_msg_timestamp
