"""Where a store keeps its log, and stores whose log or queues are kept in another way."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.logs import varied_messages
from support.record_writer import write_log

from reput.source.errors import OptionError, StoreError
from reput.source.log.log_reader import LogReader
from reput.source.log.store_layout import has_queue_files, rocksdb_queues
from reput.source.options import SourceOptions
from reput.streaming.config.pipeline import PipelineConfig, load_config

SIZE = 1 << 16


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A DLedger store."""
    write_log(tmp_path / "store" / "dledger-n0" / "data", varied_messages(10), SIZE, dledger=True)
    return tmp_path / "store"


def config_of(store: Path, conf: str | None = None, *overrides: str) -> PipelineConfig:
    """The configuration with a broker.conf of these lines."""
    path = None
    if conf is not None:
        path = store.parent / "broker.conf"
        path.write_text(f"storePathRootDir={store}\n{conf}\n")
    return load_config(store, broker_conf=path, overrides=overrides)


def paths_of(config: PipelineConfig) -> list[str]:
    return [str(path.relative_to(config.store)) for path in config.commit_log]


@pytest.mark.parametrize(
    ("conf", "overrides"),
    [
        (None, ["enableDLegerCommitLog=true"]),
        ("enableDLegerCommitLog=true", []),
        ("enableDLegerCommitLog=true\ndLegerSelfId=n0", []),
        ("enableDLegerCommitLog=false", ["enabledlegercommitlog=TRUE"]),
        ("storePathCommitLog=elsewhere", ["enableDLegerCommitLog=true"]),
    ],
)
def test_a_dledger_store(store: Path, conf: str | None, overrides: list[str]) -> None:
    """Its log is DLedger's directory alone; one that broker.conf names and that is not there is none."""
    config = config_of(store, conf, *overrides)
    assert paths_of(config) == ["dledger-n0/data"]
    assert store / "dledger-n0" in config.log_directories
    log = LogReader(SourceOptions.parse(config.source_options()))
    assert log.settled_end(0) > 1000


def test_a_store_that_went_over_to_dledger(store: Path) -> None:
    """The old directory comes first, wherever broker.conf has it."""
    write_log(store / "log", varied_messages(3), SIZE)
    conf = f"enableDLegerCommitLog=true\nstorePathCommitLog={store}/log"
    assert paths_of(config_of(store, conf)) == ["log", "dledger-n0/data"]
    (store / "commitlog").mkdir()
    assert paths_of(config_of(store, None, "enableDLegerCommitLog=true")) == ["dledger-n0/data"]


@pytest.mark.parametrize(("version", "found"), [("4.9.3", "dledger-n0/data"), ("5.5.0", "entries")])
def test_a_dledger_log_elsewhere(version: str, found: str, store: Path) -> None:
    """``storePathDLedgerCommitLog`` names the directory of the segments; 4.9.3 does not have this setting."""
    (store / "entries").mkdir()
    conf = f"enableDLegerCommitLog=true\nstorePathDLedgerCommitLog={store}/entries"
    config = config_of(store, conf, f"brokerVersion={version}")
    assert paths_of(config) == [found]
    assert config.log_directories[-1] == store / "dledger-n0"


def test_several_dledger_directories(store: Path) -> None:
    """broker.conf says which is meant; without it, none is guessed."""
    (store / "dledger-n1" / "data").mkdir(parents=True)
    with pytest.raises(OptionError, match="holds dledger-n0, dledger-n1: give the --broker-conf whose dLegerSelfId"):
        config_of(store, None, "enableDLegerCommitLog=true")
    assert paths_of(config_of(store, "enableDLegerCommitLog=true\ndLegerSelfId=n1")) == ["dledger-n1/data"]


def test_a_self_id_is_no_pattern(store: Path) -> None:
    """A text in broker.conf is a name, even if it looks like a pattern."""
    with pytest.raises(StoreError, match=r"it has no directory dledger-n\*; give"):
        config_of(store, "enableDLegerCommitLog=true\ndLegerSelfId=n*")


@pytest.mark.parametrize("conf", [None, "dLegerSelfId=n7"])
def test_no_dledger_directory(tmp_path: Path, conf: str | None) -> None:
    """The directory that is missing is named."""
    write_log(tmp_path / "store" / "commitlog", varied_messages(3), SIZE)
    name = "dledger-SELFID" if conf is None else "dledger-n7"
    with pytest.raises(StoreError, match=f"no DLedger commitlog in .*: it has no directory {name}; give"):
        config_of(tmp_path / "store", conf, "enableDLegerCommitLog=true")


def test_a_dledger_store_is_never_taken_for_a_plain_one(store: Path) -> None:
    """Without a setting it is refused; if the plain log beside it is meant, the setting must say so."""
    words = "holds a DLedger commitlog: set enableDLegerCommitLog=true to read it"
    for conf, overrides in ((None, []), ("", []), ("enableDLegerCommitLog=false", []), (None, ["checkCrc=all"])):
        with pytest.raises(OptionError, match=words):
            config_of(store, conf, *overrides)
    write_log(store / "commitlog", varied_messages(3), SIZE)
    with pytest.raises(OptionError, match=words):
        config_of(store)
    assert paths_of(config_of(store, "brokerId=0")) == ["commitlog"]
    assert paths_of(config_of(store, None, "enableDLegerCommitLog=false")) == ["commitlog"]


def test_a_dledger_directory_without_a_log_says_nothing(tmp_path: Path) -> None:
    """A broker that tried DLedger and wrote nothing there."""
    write_log(tmp_path / "store" / "commitlog", varied_messages(3), SIZE)
    (tmp_path / "store" / "dledger-n0" / "data").mkdir(parents=True)
    assert paths_of(config_of(tmp_path / "store")) == ["commitlog"]


# --- RocksDB ---------------------------------------------------------------------------------------------


@pytest.fixture
def rocksdb_store(tmp_path: Path) -> Path:
    """A store whose queues are in RocksDB."""
    write_log(tmp_path / "store" / "commitlog", varied_messages(3), SIZE)
    queues = tmp_path / "store" / "consumequeue"
    queues.mkdir()
    for name in ("CURRENT", "MANIFEST-000005", "000004.log", "IDENTITY"):
        (queues / name).write_bytes(b"MANIFEST-000005\n")
    return tmp_path / "store"


@pytest.mark.parametrize("store_type", ["defaultRocksDB", "DEFAULTROCKSDB"])
def test_a_store_type_of_rocksdb(tmp_path: Path, store_type: str) -> None:
    """Named by broker.conf; the table needs no queues."""
    write_log(tmp_path / "store" / "commitlog", varied_messages(3), SIZE)
    with pytest.raises(OptionError) as raised:
        config_of(tmp_path / "store", f"storeType={store_type}")
    assert str(raised.value) == (
        f"{tmp_path}/broker.conf has storeType={store_type}: this broker keeps its queues in RocksDB, not in the "
        "ConsumeQueue files that reput writes; consumeQueueEnable=false keeps the other sinks, among them the table"
    )
    config_of(tmp_path / "store", f"storeType={store_type}", "consumeQueueEnable=false")


def test_queues_that_are_a_rocksdb_database(rocksdb_store: Path) -> None:
    """Recognised in the store, if no setting says otherwise."""
    words = f"{rocksdb_store}/consumequeue is a RocksDB database: this broker keeps its queues in RocksDB"
    for conf in (None, "brokerId=0"):
        with pytest.raises(OptionError) as raised:
            config_of(rocksdb_store, conf)
        assert str(raised.value).startswith(words)
    config_of(rocksdb_store, None, "consumeQueueEnable=false")
    with pytest.raises(OptionError, match="is a RocksDB database"):
        config_of(rocksdb_store, "storeType=somethingElse")
    config_of(rocksdb_store, "storeType=default")


@pytest.mark.parametrize("gone", ["CURRENT", "MANIFEST-000005"])
def test_queues_that_are_files(rocksdb_store: Path, gone: str) -> None:
    """A topic may be called CURRENT; it is a directory, and there is no manifest."""
    assert rocksdb_queues(rocksdb_store) == rocksdb_store / "consumequeue"
    (rocksdb_store / "consumequeue" / gone).unlink()
    if gone == "CURRENT":
        (rocksdb_store / "consumequeue" / gone / "0").mkdir(parents=True)
    assert rocksdb_queues(rocksdb_store) is None
    config_of(rocksdb_store)


def test_files_beside_a_rocksdb_database(rocksdb_store: Path) -> None:
    """Written twice (``rocksdbCQDoubleWriteEnable``): the files count, whatever broker.conf says about them."""
    put_queue_file(rocksdb_store)
    assert has_queue_files(rocksdb_store)
    for conf in (None, "brokerId=0", "rocksdbCQDoubleWriteEnable=true"):
        config_of(rocksdb_store, conf)
    with pytest.raises(OptionError, match="has storeType=defaultRocksDB: this broker keeps its queues in RocksDB"):
        config_of(rocksdb_store, "storeType=defaultRocksDB\nrocksdbCQDoubleWriteEnable=true")


def test_a_database_in_a_folder_of_its_own(rocksdb_store: Path) -> None:
    """``useSeparateStorePathForRocksdbCQ``."""
    (rocksdb_store / "consumequeue").rename(rocksdb_store / "consumequeue_rocksdb")
    with pytest.raises(OptionError, match=r"consumequeue_rocksdb is a RocksDB database: this broker keeps its queues"):
        config_of(rocksdb_store)
    put_queue_file(rocksdb_store)
    config_of(rocksdb_store)


@pytest.mark.parametrize(
    ("types", "version", "has_files"),
    [
        ("default;defaultRocksDB", "5.5.0", True),
        (" DEFAULT ; x", "5.5.0", True),
        ("defaultRocksDB", "5.5.0", False),
        ("default,defaultRocksDB", "5.5.0", False),
        ("defaultRocksDB", "5.3.3", True),
    ],
)
def test_the_kinds_of_queues_that_a_broker_loads(
    rocksdb_store: Path, types: str, version: str, has_files: bool
) -> None:
    """``combineCQLoadingCQTypes``, as ``StoreType#fromString`` reads it; brokers before 5.4.0 do not know it."""
    put_queue_file(rocksdb_store)
    conf = f"rocksdbCQDoubleWriteEnable=true\ncombineCQLoadingCQTypes={types}"
    if has_files:
        config_of(rocksdb_store, conf, f"brokerVersion={version}")
        return
    with pytest.raises(OptionError, match=r"has combineCQLoadingCQTypes=.*: this broker keeps its queues"):
        config_of(rocksdb_store, conf, f"brokerVersion={version}")
    config_of(rocksdb_store, f"combineCQLoadingCQTypes={types}")  # without double writing they are not asked for


def put_queue_file(store: Path) -> None:
    path = store / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(20))
