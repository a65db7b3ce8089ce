"""Settings by which a 5.x broker keeps queues or keys in RocksDB, and what reput makes of its records then."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.logs import varied_messages
from support.record_writer import write_log

from reput.streaming.config.broker import light_queues_in_rocksdb, logic_needs, rocksdb_needs, unseen_queues
from reput.streaming.config.pipeline import PipelineConfig, load_config

LIGHT = "enableMultiDispatch=true\nenableLmq=true\n"
TWICE = "rocksdbCQDoubleWriteEnable=true\n"
IN_ROCKSDB = "combineCQUseRocksdbForLmq=true\n"


def config_of(tmp_path: Path, conf: str, *overrides: str) -> PipelineConfig:
    if not (tmp_path / "store").exists():
        write_log(tmp_path / "store" / "commitlog", varied_messages(3), 1 << 16)
    (tmp_path / "broker.conf").write_text(conf)
    return load_config(tmp_path / "store", broker_conf=tmp_path / "broker.conf", overrides=overrides)


@pytest.mark.parametrize(
    ("conf", "version", "is_in_files"),
    [
        (LIGHT, "5.5.0", True),
        (LIGHT + TWICE, "5.5.0", True),
        (LIGHT + IN_ROCKSDB, "5.5.0", True),  # without double writing it has no effect
        (LIGHT + TWICE + IN_ROCKSDB, "5.5.0", False),
        (LIGHT + TWICE + IN_ROCKSDB, "5.3.3", True),
        (LIGHT + TWICE + IN_ROCKSDB, "4.9.3", True),
    ],
)
def test_where_light_queues_are(conf: str, version: str, is_in_files: bool, tmp_path: Path) -> None:
    """``MultiDispatchUtils#checkMultiDispatchQueue`` asks both settings."""
    config = config_of(tmp_path, conf, f"brokerVersion={version}")
    assert (logic_needs(config, config.store).multi_dispatch is not None) is is_in_files


def test_what_is_not_seen_is_said(tmp_path: Path) -> None:
    version = "brokerVersion=5.5.0"
    assert unseen_queues(config_of(tmp_path, LIGHT, version), tmp_path / "store") == ""
    twice = unseen_queues(config_of(tmp_path, LIGHT + TWICE, version), tmp_path / "store")
    assert twice.startswith("the queues are also in RocksDB (rocksdbCQDoubleWriteEnable)")
    light = config_of(tmp_path, LIGHT + TWICE + IN_ROCKSDB, version)
    assert light_queues_in_rocksdb(light, (5, 5, 0))
    assert unseen_queues(light, light.store).startswith("light queues (%LMQ%...) are in RocksDB alone")
    selective = LIGHT + TWICE + "rocksdbCQSelectiveDoubleWriteEnable=true\n"
    folders = {
        version: config_of(tmp_path, selective, f"brokerVersion={version}").rocksdb_folder
        for version in ("5.5.0", "5.5.1")
    }
    assert folders == {"5.5.0": "consumequeue", "5.5.1": None}  # which topics are LITE ones is not known
    queues = tmp_path / "store" / "consumequeue" / "T" / "0"
    queues.mkdir(parents=True)
    (queues / f"{0:020d}").write_bytes(bytes(20))
    for name in ("CURRENT", "MANIFEST-000005"):
        (tmp_path / "store" / "consumequeue" / name).write_bytes(b"")
    found = unseen_queues(config_of(tmp_path, "brokerId=0"), tmp_path / "store")
    assert found.startswith(f"{tmp_path}/store/consumequeue also has a RocksDB database")


@pytest.mark.parametrize(
    ("conf", "overrides", "has_files"),
    [
        ("indexFileWriteEnable=false", ("brokerVersion=5.5.0",), False),
        ("indexFileWriteEnable=no\nindexRocksDBEnable=true", ("brokerVersion=5.5.0",), False),
        ("indexFileWriteEnable=true\nindexRocksDBEnable=true", ("brokerVersion=5.5.0",), True),
        ("indexRocksDBEnable=true", ("brokerVersion=5.5.0",), True),
        ("messageIndexEnable=false", ("brokerVersion=5.5.0",), False),
        ("indexFileWriteEnable=false", ("brokerVersion=4.9.3",), True),
        ("indexFileWriteEnable=false", ("brokerVersion=5.5.0", "messageIndexEnable=true"), True),
    ],
)
def test_whether_there_are_index_files(conf: str, overrides: tuple[str, ...], has_files: bool, tmp_path: Path) -> None:
    """``CommitLogDispatcherBuildIndex`` asks both settings; the command line is stronger."""
    assert config_of(tmp_path, conf, *overrides).index.message_index_enable is has_files


@pytest.mark.parametrize(
    ("topic", "names", "expected"),
    [
        ("T", "%LMQ%a,other", [(b"%LMQ%a", 0, 5), (b"other", 3, 6)]),
        ("T", "a/b,%LMQ%a/b", [(b"a/b", 3, 5), (b"%LMQ%a/b", 0, 6)]),
        ("%DLQ%g", "%LMQ%a,%LMQ%b", []),
        ("%RETRY%g", "%LMQ%a,%LMQ%b", []),
        ("T", "%LMQ%a", []),
    ],
)
def test_further_queues_in_rocksdb(
    tmp_path: Path, topic: str, names: str, expected: list[tuple[bytes, int, int]]
) -> None:
    """``RocksDBConsumeQueueStore#dispatchLMQ`` takes any name, needs enableLmq alone, and passes over dead letters."""
    needs = rocksdb_needs(config_of(tmp_path, "enableLmq=true\n"), tmp_path / "store")
    assert needs.multi_dispatch is not None
    assert needs.multi_dispatch.queues(topic, 3, names, "5,6", 0) == expected
    assert rocksdb_needs(config_of(tmp_path, "enableMultiDispatch=true\n"), tmp_path / "store").multi_dispatch is None


@pytest.mark.parametrize(("version", "has_light"), [("5.2.0", False), ("5.3.2", True), ("5.5.1", True), ("auto", True)])
def test_light_queues_in_rocksdb_by_release(version: str, has_light: bool, tmp_path: Path) -> None:
    config = config_of(tmp_path, LIGHT, f"brokerVersion={version}")
    assert (rocksdb_needs(config, config.store).multi_dispatch is not None) is has_light
