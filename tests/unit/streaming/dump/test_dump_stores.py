"""`reput dump` on every store of a real broker: the totals are those of `reput verify`, the rows those of `query`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import BrokerStore
from support.verified import NOTES, STORES
from unit.streaming.dump.dumps import Dumped, file_dump, log_dump

from reput.sinks.files.store_path import is_index_file_name
from reput.source.log.log_reader import MessageLookup
from reput.source.record.message_decoder import Message
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.dump.log_dump import Shown
from reput.streaming.query.store_lookup import Found, message_row
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreVerification

GetStore = Callable[[str], BrokerStore]
# Of these, each record is looked up by itself, too: a thousand a second.
LOOKED_UP = ["golden-a", "golden-b", "v4-tx-delay-retry", "v5-batchcq"]


def config_of(store: BrokerStore) -> PipelineConfig:
    return load_config(store.root, broker_conf=store.broker_conf, overrides=["tailGuardMs=0"])


def store_files(root: Path, kind: str) -> Iterator[Path]:
    """The files of a kind, below a store's root."""
    yield from sorted(path for path in (root / kind).rglob("*") if path.is_file())


def files_dumped(store: BrokerStore, config: PipelineConfig, kind: str) -> list[Dumped]:
    """Every file of a kind; each header counts what follows it."""
    found = []
    for path in store_files(store.root, kind):
        dumped = file_dump(path, config)
        counted = {"consumequeue_ext": "units"}.get(kind, "entries")
        assert dumped.header[counted] == dumped.counts.get("ENTRY", 0) == len(dumped.of("ENTRY")), path
        assert sum(each["bytes"] for each in dumped.totals["verdicts"].values()) + unseen(dumped) == path.stat().st_size
        found.append(dumped)
    return found


def unseen(dumped: Dumped) -> int:
    """Return the bytes of an index file that are not entries: header, slots, entry 0."""
    return 40 + 4 * dumped.header["max_hash_slot_num"] + 20 if dumped.header["kind"] == "index" else 0


@pytest.mark.parametrize("name", STORES)
def test_the_totals_are_those_of_verify(name: str, broker_store: GetStore) -> None:
    """Messages, entries and keys; and every byte of the log is a record's, a blank's, or a frame's."""
    store = broker_store(name)
    config = config_of(store)
    verification = StoreVerification(config, store.root)
    log, queues, index, _ = verification.run(SerialTasks())
    assert verification.limit == verification.log_end
    dumped = log_dump(config)
    assert dumped.notes == []
    assert (dumped.totals["begin"], dumped.totals["end"]) == (verification.log_start, verification.log_end)
    assert dumped.counts["MESSAGE"] == log.compared["messages"] == store.facts["totalMessages"]
    assert dumped.totals["topics"] == store.facts["messagesPerTopic"]
    assert dict(Counter(row["topic"] for row in dumped.of("MESSAGE"))) == store.facts["messagesPerTopic"]
    frames = 48 * dumped.counts["MESSAGE"] if name == "v4-dledger" else 0
    counted = sum(each["bytes"] for each in dumped.totals["verdicts"].values())
    assert counted + frames == verification.log_end - verification.log_start
    assert dumped.counts.keys() <= {"MESSAGE", "BLANK"}

    expired = NOTES.get(name, {})
    entries = sum(
        each.counts.get("ENTRY", 0)
        for kind in ("consumequeue", "batchconsumequeue")
        for each in files_dumped(store, config, kind)
    )
    assert entries == queues.compared["entries"] + expired.get("expired_entries", 0)
    keys = files_dumped(store, config, "index")
    assert sum(each.counts.get("ENTRY", 0) for each in keys) == index.compared["keys"] + expired.get("expired_keys", 0)
    assert {each.header["slots_in_use"] for each in keys} == {each.header["chains"] for each in keys}
    files_dumped(store, config, "consumequeue_ext")


@pytest.mark.parametrize("name", LOOKED_UP)
def test_a_record_is_the_row_that_query_shows(name: str, broker_store: GetStore) -> None:
    """Field by field, each found by its physical offset."""
    store = broker_store(name)
    config = config_of(store)
    lookup = MessageLookup(config.commit_log, dledger=config.source.enable_dledger_commit_log)
    for row in log_dump(config, shown=Shown(properties=True)).of("MESSAGE"):
        message = lookup.find(row["physical_offset"])
        assert isinstance(message, Message)
        wanted = message_row(Found(message), with_body=False)
        assert row.items() >= wanted.items()
        assert row.keys() - wanted.keys() == {"verdict", "magic_version", "flags"}


def test_each_segment_by_itself(broker_store: GetStore) -> None:
    """Together they have the log's records, and the last one also has the bytes that are not written yet."""
    for name in ("v4-killed", "v4-dledger", "v5-longtopic"):
        store = broker_store(name)
        config = config_of(store)
        segments = [path for each in config.commit_log for path in sorted(each.iterdir())]
        dumped = [file_dump(path, config) for path in segments]
        assert sum(each.counts.get("MESSAGE", 0) for each in dumped) == store.facts["totalMessages"]
        assert [each.header["file_from_offset"] for each in dumped] == [int(path.name) for path in segments]
        assert dumped[-1].rows[-1]["verdict"] == "EMPTY"
        assert {each.header["is_dledger"] for each in dumped} == {name == "v4-dledger"}


def test_long_topics_are_of_the_second_version(broker_store: GetStore) -> None:
    rows = log_dump(config_of(broker_store("v5-longtopic"))).of("MESSAGE")
    assert {row["magic_version"] for row in rows} == {1, 2}
    assert {row["magic_version"] for row in rows if len(row["topic"]) > 127} == {2}


def test_the_names_of_files_are_known(broker_store: GetStore) -> None:
    """Every file that a dump is for, of every store, is what its path says."""
    for name in ("v4-sql92", "v5-batchcq"):
        root = broker_store(name).root
        for kind in ("commitlog", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index"):
            for path in store_files(root, kind):
                assert path.name.isdecimal()
                assert is_index_file_name(path.name) == (kind == "index")
                assert file_dump(path, config_of(broker_store(name)), limit=1).header["kind"] == kind
        assert file_dump(root / "checkpoint").header["physic_msg_timestamp"] > 0
