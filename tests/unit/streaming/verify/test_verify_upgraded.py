"""A store whose broker was upgraded: keys of tags are in the index from the first record of 5.4.0 or later on."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.outputs import SETTINGS, config_of
from support.record_writer import Message, write_log
from support.sink_runner import LogBatches, no_fsync

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexSink
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification


def verified(root: Path, tagged: list[bool]) -> StoreSection:
    """Verify an index as 5.5.0's; the tags of the records at these places are in it."""
    messages = [Message(queue_offset=at, properties={"KEYS": f"k{at}", "TAGS": "t"}) for at in range(len(tagged))]
    records = write_log(root / "store" / "commitlog", messages, 100_000)
    batches = {tags: LogBatches(root / "store" / "commitlog", needs=LogicNeeds(index_tags=tags)) for tags in (0, 1)}
    with no_fsync():
        sink = IndexSink(DurableFiles(root / "out"), SETTINGS.max_hash_slot_num, SETTINGS.max_index_num)
        sink.recover(0)
        for record, tags in zip(records, tagged, strict=True):
            sink.write(batches[tags](record.physical_offset, record.physical_offset + record.msg_size))
    sink.finish()
    more = ["brokerVersion=5.5.0", "consumeQueueEnable=false", "mappedFileSizeCommitLog=100000"]
    config = config_of(root / "store", SETTINGS, *more, "maxBytesPerPartition=1k")
    return StoreVerification(config, root / "out").run(SerialTasks())[2]


@pytest.mark.parametrize("before", [1, 7, 20, 39, 40])
def test_keys_before_the_upgrade(before: int, tmp_path: Path) -> None:
    found = verified(tmp_path, [at >= before for at in range(40)]).findings
    assert not found.differences
    assert len(found.remarks) == 1
    assert "were written by a release that does not index tags" in found.remarks[0]


def test_a_tag_that_is_missing_later(tmp_path: Path) -> None:
    """It is a difference, at any place but the very beginning."""
    found = verified(tmp_path, [at >= 7 and at != 30 for at in range(40)]).findings
    assert found.counts == {"key_missing": 1}
    sound = verified(tmp_path / "sound", [True] * 40).findings
    assert not sound.differences
    assert not sound.remarks
