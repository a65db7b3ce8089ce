"""Which topics have a BatchConsumeQueue: from ``topics.json``, its ``.bak`` or RocksDB, and never guessed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict
from support.broker_stores import unpack

from reput.source.errors import OptionError, ReputError, StoreError
from reput.streaming.config.broker import TopicsWatch, batch_topics
from reput.streaming.config.pipeline import load_config

V2, B, S = "v5-config-v2-batchcq", "BatchCQ", "SimpleCQ"


def topic(name: str, kind: str | None = None) -> dict[str, Any]:
    return {"topicName": name, "perm": 6, "attributes": {} if kind is None else {"queue.type": kind}}


def table(**kinds: str | None) -> str:
    return json.dumps({"topicConfigTable": {name: topic(name, kind) for name, kind in kinds.items()}})


def batch(store: Path, *options: str, conf: str | None = None) -> set[str]:
    path = None if conf is None else store / "broker.conf"
    if path is not None:
        path.write_text(conf or "")
    config = load_config(store, overrides=options, broker_conf=path)
    return {name.decode() for name in batch_topics(config, store)}


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def rocksdb(path: Path, values: dict[bytes, bytes]) -> None:
    path.mkdir(parents=True)
    database = Rdict(str(path), Options(raw_mode=True))
    for key, value in values.items():
        database[key] = value
    database.close()


def v2_key(name: str) -> bytes:
    return b"\x01\0\x03\x02" + len(name).to_bytes(2, "big") + name.encode()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path


def write_json(store: Path, text: str, *, backup: bool = False) -> None:
    (store / "config" / ("topics.json.bak" if backup else "topics.json")).write_text(text)


def test_no_topics(store: Path) -> None:
    assert batch(store) == set()


def test_topics_json(store: Path) -> None:
    """Those with the attribute; a table that cannot be read is an error."""
    text = '{"topicConfigTable":{"B":{"attributes":{"queue.type":"BatchCQ"}},"N":{"attributes":null},"M":{}}}'
    write_json(store, text)
    assert batch(store) == {"B"}
    write_json(store, "{}")
    assert batch(store) == set()
    for broken in ("{", "[]", '{"topicConfigTable": 1}', '{"topicConfigTable": {"T": 1}}'):
        write_json(store, broken)
        with pytest.raises(StoreError, match=r"topics\.json does not hold a broker's topics"):
            batch(store)


def test_the_backup_stands_in(store: Path) -> None:
    write_json(store, table(B=B, S=S), backup=True)
    assert batch(store) == {"B"}
    write_json(store, table(B=B)[:-3])
    assert batch(store) == {"B"}
    write_json(store, table(S=S))
    assert batch(store) == set()


def test_a_type_that_no_broker_knows(store: Path) -> None:
    """``CQType#valueOf`` is also case-sensitive; the backup does not replace such a file."""
    write_json(store, table(T="batchcq"))
    write_json(store, table(T=B), backup=True)
    with pytest.raises(OptionError, match=r"queue\.type of the topic T is batchcq, which no broker knows"):
        batch(store)


def test_a_broker_s_rocksdb(tmp_path: Path) -> None:
    """``configManagerVersion=v2``, as 5.5.0 left it; nothing is written into the store."""
    home = unpack(V2, tmp_path)
    store, before = home / "store", contents(home)
    assert batch(store) == {"Bq"}
    config = load_config(store, broker_conf=home / "broker.conf")
    assert batch_topics(config, store) == {b"Bq"}
    assert contents(home) == before


def test_what_a_broker_of_v2_passes_over(store: Path) -> None:
    """Other tables, and values that are not JSON (``TopicConfigManagerV2#parseTopicConfig``)."""
    value = json.dumps(topic("B", B)).encode()
    rocksdb(
        store / "config" / "rdb",
        {
            v2_key("B"): b"\x01" + value,
            v2_key("P"): b"\x02" + value,
            b"\x01\0\x03\x01data_version": bytes(24),
            b"\x01\0\x04\x02\0\x01G": b"\x01{}",
        },
    )
    assert batch(store) == {"B"}


def test_rocksdb_of_v1(store: Path) -> None:
    """``config/topics/``, which a broker with ``storeType=defaultRocksDB`` has."""
    rocksdb(store / "config" / "topics", {b"B": json.dumps(topic("B", B)).encode(), b"S": b'{"attributes":{}}'})
    assert batch(store) == {"B"}


def test_rocksdb_that_cannot_be_read(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reput.sinks.files.config_manager._PAUSE_S", 0.0)
    rocksdb(store / "config" / "rdb", {v2_key("B"): b"\x01{"})
    with pytest.raises(StoreError, match="rdb does not hold a broker's topics"):
        batch(store)
    (store / "config" / "rdb" / "CURRENT").write_text("x")
    with pytest.raises(StoreError, match=r"cannot read the RocksDB database .*rdb: .*CURRENT"):
        batch(store)


def test_two_accounts(store: Path) -> None:
    """The settings say which one the broker reads; without them the two must name the same batch queues."""
    write_json(store, table(A=B))
    rocksdb(store / "config" / "rdb", {v2_key("B"): b"\x01" + json.dumps(topic("B", B)).encode()})
    for options in ((), ("configManagerVersion=auto",)):
        with pytest.raises(OptionError, match=r"do not name the same topics .* --option configManagerVersion=v1 or v2"):
            batch(store, *options)
    assert batch(store, "configManagerVersion=v1") == batch(store, conf="brokerId=0\n") == {"A"}
    assert batch(store, "configManagerVersion=v2") == batch(store, conf="configManagerVersion=v2\n") == {"B"}
    assert batch(store, "configManagerVersion=v2", conf="configManagerVersion=v1\n") == {"B"}
    assert batch(store, conf="configManagerVersion=V2\n") == {"A"}
    write_json(store, table(B=B))
    assert batch(store) == {"B"}


@pytest.mark.parametrize("stated", ["v1", "v2"])
def test_settings_that_do_not_fit_the_store(stated: str, store: Path) -> None:
    """A broker would start without topics."""
    if stated == "v1":
        rocksdb(store / "config" / "rdb", {v2_key("B"): b"\x01{}"})
    else:
        write_json(store, table(B=B))
    with pytest.raises(OptionError, match=f"configManagerVersion={stated} does not read that"):
        batch(store, f"configManagerVersion={stated}")


@pytest.mark.parametrize("text", [None, table(S=S)])
def test_a_batch_queue_of_a_topic_that_is_not_known(text: str | None, store: Path) -> None:
    """Its kind may not be guessed: topics were lost, or a backup is older than the topic."""
    (store / "batchconsumequeue" / "B" / "0").mkdir(parents=True)
    if text is not None:
        write_json(store, text)
    with pytest.raises(StoreError, match=r"queues of the topic B, which .*topics\.json does not name"):
        batch(store)
    assert batch(store, "consumeQueueEnable=false") == set()
    write_json(store, table(B=B))
    assert batch(store) == {"B"}


def test_no_library(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rocksdb(store / "config" / "rdb", {v2_key("B"): b"\x01{}"})
    monkeypatch.setitem(__import__("sys").modules, "rocksdict", None)
    with pytest.raises(ReputError, match="pip install rocksdict"):
        batch(store)
    shutil.rmtree(store / "config" / "rdb")
    assert batch(store) == set()


def test_the_watch_of_topics_json(store: Path) -> None:
    """It tells a change of the file or of its ``.bak``, and nothing else."""
    watch = TopicsWatch(store)
    assert [watch.has_changed() for _ in range(3)] == [True, False, False]
    write_json(store, table(B=B))
    assert [watch.has_changed() for _ in range(2)] == [True, False]
    write_json(store, table(B=B), backup=True)
    (store / "config" / "consumerOffset.json").touch()
    assert [watch.has_changed() for _ in range(2)] == [True, False]


def test_the_watch_of_rocksdb(store: Path) -> None:
    """It reports topics, but not consumers' offsets, which a broker of v2 writes all the time."""
    path = store / "config" / "rdb"
    rocksdb(path, {})
    watch = TopicsWatch(store)
    database = Rdict(str(path), Options(raw_mode=True))
    assert watch.has_changed()
    for number in range(50):
        database[b"\x01\0\x01\x02" + bytes([number])] = bytes(8)
        assert not watch.has_changed()
    for number in range(3):
        database[b"\x01\0\x03\x01data_version"] = bytes([number])
        database[v2_key(f"T{number}")] = b"\x01" + json.dumps(topic("T", B)).encode()
        assert [watch.has_changed() for _ in range(2)] == [True, False]
    assert batch(store) == {"T0", "T1", "T2"}
    database.flush()
    assert watch.has_changed()
    database.close()
