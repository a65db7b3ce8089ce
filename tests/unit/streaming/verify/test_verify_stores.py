"""`reput verify` on spoilt copies of real brokers' stores: ext units, inner batches, further queues, expiry."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import BrokerStore
from support.outputs import overwrite
from support.verified import found_in, notes_of, told, verify

from reput.sinks.formats.consume_queue import BATCH_ENTRY, ENTRY
from reput.streaming.config.pipeline import PipelineConfig, load_config

GetCopy = Callable[[str], BrokerStore]


@pytest.fixture
def copy(broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> GetCopy:
    """A store to be spoilt; its log and settings are the broker's."""

    def make(name: str) -> BrokerStore:
        store = broker_store(name)
        shutil.copytree(store.root, tmp_path / "store", ignore=shutil.ignore_patterns("timer*", "compaction"))
        return replace(store, root=tmp_path / "store")

    return make


def settings_of(store: BrokerStore, *more: str, bytes_a_range: str = "500k") -> PipelineConfig:
    """Several ranges, which are put together."""
    overrides = ["tailGuardMs=0", f"maxBytesPerPartition={bytes_a_range}", *more]
    return load_config(store.root, broker_conf=store.broker_conf, overrides=overrides)


def flip(path: Path, at: int) -> None:
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 1]))


@pytest.mark.parametrize("name", ["golden-b", "v4-expired", "v4-lmq", "v5-batchcq", "v4-sql92", "v4-tx-delay-retry"])
def test_many_ranges(name: str, copy: GetCopy) -> None:
    """Where ranges end does not matter."""
    store = copy(name)
    assert told(verify(settings_of(store, bytes_a_range="50k"), store.root)) == []


# --- ConsumeQueueExt ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "what"), [(1, "unit"), (9, "tags code"), (17, "store time"), (19, "a size of")])
def test_an_ext_unit(at: int, what: str, copy: GetCopy) -> None:
    store = copy("v4-sql92-rebuilt")
    path = store.root / "consumequeue_ext" / "SqlTopic" / "1" / f"{0:020d}"
    size = int.from_bytes(path.read_bytes()[:2], "big")
    flip(path, size + at)
    sections = verify(settings_of(store), store.root)
    assert "ext_unit" in found_in(sections)
    (difference,) = [d for d in told(sections) if d.kind == "ext_unit"]
    assert difference.queue_offset == 1
    assert what in difference.text


def test_a_bitmap_is_of_its_moment(copy: GetCopy) -> None:
    """Who was subscribed when the message was dispatched is not known: a note."""
    store = copy("v4-sql92-rebuilt")
    flip(store.root / "consumequeue_ext" / "SqlTopic" / "1" / f"{0:020d}", 22)
    sections = verify(settings_of(store), store.root)
    assert (found_in(sections), notes_of(sections)) == ({}, {"bit_map_of_other_subscriptions": 1})


def test_an_ext_file_of_another_size(copy: GetCopy) -> None:
    store = copy("v4-sql92-rebuilt")
    path = store.root / "consumequeue_ext" / "SqlTopic" / "1" / f"{0:020d}"
    path.write_bytes(path.read_bytes() + b"\0")
    assert found_in(verify(settings_of(store), store.root)) == {"ext_file": 1}


def test_an_address_where_tags_are_expected(copy: GetCopy) -> None:
    """With enableConsumeQueueExt off, addresses are wrong entries: the settings do not fit."""
    store = copy("v4-sql92-rebuilt")
    sections = verify(settings_of(store, "enableConsumeQueueExt=false"), store.root)
    assert found_in(sections) == {"entry_changed": sections[1].compared["entries"]}


# --- BatchConsumeQueue, multi dispatch ---------------------------------------------------------------------


@pytest.mark.parametrize("field", list(BATCH_ENTRY.names or ()))
@pytest.mark.parametrize("number", [0, 50, -1])
def test_a_batch_entry(field: str, number: int, copy: GetCopy) -> None:
    store = copy("v5-batchcq")
    path = min((store.root / "batchconsumequeue" / "BatchQ" / "2").iterdir())
    units = np.frombuffer(path.read_bytes(), BATCH_ENTRY)
    count = int(np.count_nonzero(units["msg_size"]))
    kind, start = (BATCH_ENTRY.fields or {})[field][:2]
    flip(path, (number % count) * BATCH_ENTRY.itemsize + start + kind.itemsize - 1)
    sections = verify(settings_of(store), store.root)
    assert found_in(sections) == {"entry_changed": 1}
    assert told(sections)[0].queue_offset == number % count
    assert told(sections)[0].file == str(path.relative_to(store.root))


def test_a_further_queue(copy: GetCopy) -> None:
    store = copy("v4-lmq")
    path = store.root / "consumequeue" / "%LMQ%device_3" / "0" / f"{0:020d}"
    flip(path, 27)
    sections = verify(settings_of(store), store.root)
    assert found_in(sections) == {"entry_changed": 1}
    assert "%LMQ%device_3-0, entry 1:" in told(sections)[0].text


def test_further_queues_without_their_switch(copy: GetCopy) -> None:
    store = copy("v4-lmq")
    found = found_in(verify(settings_of(store, "enableMultiDispatch=false"), store.root))
    assert found == {"entry_without_record": 9017 - 4000}


# --- expired records ---------------------------------------------------------------------------------------


def test_entries_of_expired_records(copy: GetCopy) -> None:
    """They cannot be compared, but they lie in order, in front of the others."""
    store = copy("v4-expired")
    path = min((store.root / "consumequeue" / "ExpOld" / "0").iterdir())
    units = np.frombuffer(path.read_bytes(), ENTRY).copy()
    units["physical_offset"][1] = units["physical_offset"][0]
    path.write_bytes(units.tobytes())
    sections = verify(settings_of(store), store.root)
    assert found_in(sections) == {"entry_order": 1}
    assert notes_of(sections)["expired_entries"] == 1603


def test_an_expired_entry_in_the_middle_is_none(copy: GetCopy) -> None:
    store = copy("v4-expired")
    path = max((store.root / "consumequeue" / "Exp0" / "0").iterdir())
    overwrite(path, 20, (5).to_bytes(8, "big"))
    assert found_in(verify(settings_of(store), store.root)) == {"entry_changed": 1}


# --- an unclean store --------------------------------------------------------------------------------------


def test_a_dead_brokers_queues_may_be_behind(copy: GetCopy) -> None:
    """With an abort file, records after the last entry of all queues are dispatched at the next start; else not."""
    store = copy("v4-killed")
    last = max(
        (path for path in (store.root / "consumequeue").glob("*/*/*")),
        key=lambda path: int(np.frombuffer(path.read_bytes(), ENTRY)["physical_offset"].max()),
    )
    units = np.frombuffer(last.read_bytes(), ENTRY).copy()
    units[np.argmax(units["physical_offset"])] = np.zeros(1, ENTRY)[0]
    last.write_bytes(units.tobytes())
    sections = verify(settings_of(store), store.root)
    assert found_in(sections) == {}
    assert notes_of(sections).keys() == {"not_dispatched_yet", "keys_behind_the_end"}
    (store.root / "abort").unlink()
    assert found_in(verify(settings_of(store), store.root)) == {"entry_missing": 1}


@pytest.mark.parametrize("directory", ["consumequeue/BatchQ/0", "batchconsumequeue/PlainQ/0"])
def test_an_empty_queue_of_the_wrong_kind(directory: str, copy: GetCopy) -> None:
    """With such a directory 5.5.0 does not start; a topic's own directory alone does not matter."""
    store = copy("v5-batchcq")
    topics = store.root / "config" / "topics.json"
    topics.write_text(topics.read_text().replace('"topicConfigTable":{', '"topicConfigTable":{"PlainQ":{},', 1))
    (store.root / directory).parent.mkdir(parents=True)
    assert found_in(verify(settings_of(store), store.root)) == {}
    (store.root / directory).mkdir()
    sections = verify(settings_of(store), store.root)
    assert found_in(sections) == {"queue_kind": 1}
    assert [difference.file for difference in told(sections)] == [directory]
