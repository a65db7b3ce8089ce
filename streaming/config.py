"""The pipeline's configuration: defaults, then ``reput.toml``, then ``broker.conf``, then the command line.

Every option is in ``conf/reput.toml`` with its unit, default and reason; a test keeps that file and this table equal.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import javaproperties

from reput.sinks.consume_queue import MAPPED_FILE_SIZE_CONSUME_QUEUE
from reput.sinks.index_service import MAX_HASH_SLOT_NUM, MAX_INDEX_NUM
from reput.source.errors import OptionError
from reput.source.options import SOURCE_OPTIONS, Option, boolean, byte_count, parse_options, whole_number
from reput.source.store_layout import (
    COMMIT_LOG,
    CONSUME_QUEUE,
    check_no_dledger,
    commit_log_paths,
    dledger_directory,
    has_rocksdb_queues,
    with_dledger,
)
from reput.streaming.broker_settings import BROKER_OPTIONS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_DEFAULT_BROKER = "DEFAULT_BROKER"
_SOURCE = {spec.name: spec for spec in SOURCE_OPTIONS}
_BYTES = _SOURCE["maxBytesPerTrigger"].allowed


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError(text)
    return text.strip()


PIPELINE_OPTIONS = (
    Option(
        "broker",
        _text,
        "a name",
        _DEFAULT_BROKER,
        "tells brokers apart in one table; brokerName of broker.conf, and RocketMQ's own word without one",
    ),
    _SOURCE["startingOffset"],
    _SOURCE["startingTimestamp"],
    _SOURCE["failOnDataLoss"],
    _SOURCE["checkCrc"],
    _SOURCE["onDamage"],
    _SOURCE["tailGuardMs"],
    _SOURCE["mappedFileSizeCommitLog"],
    _SOURCE["enableDLegerCommitLog"],
    _SOURCE["messageDelayLevel"],
    Option(
        "maxBytesPerTrigger",
        byte_count(1),
        _BYTES,
        512 * 1024 * 1024,
        "of the logic query: large enough to hide a micro-batch's fixed cost, 100 MB of entries in the driver",
    ),
    _SOURCE["maxMessagesPerTrigger"],
    Option(
        "maxBytesPerPartition",
        byte_count(1),
        _BYTES,
        _SOURCE["maxBytesPerPartition"].default,
        _SOURCE["maxBytesPerPartition"].reason,
    ),
    Option(
        "logicTriggerMs",
        whole_number(0),
        "milliseconds: a whole number from 0",
        0,
        "0: the next micro-batch begins when the last one ends; consumers wait for queue entries",
    ),
    Option("consumeQueueEnable", boolean, "true or false", True, "queues are what brokers and consumers miss first"),
    Option("messageIndexEnable", boolean, "true or false", True, "the broker's own switch and default"),
    Option(
        "mappedFileSizeConsumeQueue",
        byte_count(1),
        _BYTES,
        MAPPED_FILE_SIZE_CONSUME_QUEUE,
        "the broker's default: 300,000 entries; rounded up to whole entries as the broker does",
    ),
    Option(
        "maxFirstQueueOffset",
        whole_number(0),
        "a queue offset: a whole number from 0",
        None,
        "unset: a queue may begin anywhere, as in the broker, which fills one file's front; a bound finds lies",
    ),
    Option(
        "maxHashSlotNum",
        whole_number(1),
        "a whole number from 1",
        MAX_HASH_SLOT_NUM,
        "the broker's default",
    ),
    Option("maxIndexNum", whole_number(2), "a whole number from 2", MAX_INDEX_NUM, "the broker's default"),
    Option(
        "tableTriggerMs",
        whole_number(0),
        "milliseconds: a whole number from 0",
        10_000,
        "each micro-batch leaves a file in the table, and small files cost for ever",
    ),
    Option(
        "tableMaxBytesPerTrigger",
        byte_count(1),
        _BYTES,
        1024 * 1024 * 1024,
        "a commit of the table holds at most so much of the log",
    ),
    Option(
        "tableMaxBytesPerPartition",
        byte_count(1),
        _BYTES,
        128 * 1024 * 1024,
        "one Parquet file each: few files, and enough tasks for every core",
    ),
    Option(
        "rebuildMaxBytesPerWave",
        byte_count(1),
        _BYTES,
        2 * 1024 * 1024 * 1024,
        "of reput rebuild: the log that is read at once, then placed and written; scratch files, of three waves at "
        "most, are about a third of it, and a wave lost to a crash is read again",
    ),
    Option(
        "rebuildMaxBytesPerPartition",
        byte_count(1),
        _BYTES,
        128 * 1024 * 1024,
        "of reput rebuild, without a table: a task's range; a wave should have one for every core at least, and two "
        "are read at once; on a cluster, Spark's own work for a task is a tenth of a range of 64m",
    ),
    Option(
        "sparkMaster",
        _text,
        "a Spark master URL",
        "local[*]",
        "all cores of this machine; reput rebuild and verify take local[N] as N processes of their own, without Spark",
    ),
    Option(
        "sparkDriverMemory",
        _text,
        "a size as Spark writes it, such as 2g",
        "2g",
        "room for a micro-batch's entries beside Spark itself",
    ),
    *BROKER_OPTIONS,
)

# What the source must be told as it is set here.
_SOURCE_SETTINGS = (
    "failOnDataLoss",
    "tailGuardMs",
    "checkCrc",
    "onDamage",
    "mappedFileSizeCommitLog",
    "enableDLegerCommitLog",
)

# What broker.conf calls them, where that differs, or where it has no such setting.
_BROKER_CONF_NAMES = {
    "brokerName": "broker",
    **{
        name: name
        for name in (
            "mappedFileSizeCommitLog",
            "enableDLegerCommitLog",
            "mappedFileSizeConsumeQueue",
            "messageDelayLevel",
            "messageIndexEnable",
            "maxHashSlotNum",
            "maxIndexNum",
            *(option.name for option in BROKER_OPTIONS if option.name != "brokerVersion"),
        )
    },
}


@dataclass(frozen=True)
class PipelineConfig:
    """One run's configuration; see `PIPELINE_OPTIONS` for units, limits and reasons.

    `commit_log` are the directories to read, `log_directories` those where nothing may ever be written.
    """

    store: Path
    commit_log: tuple[Path, ...]
    log_directories: tuple[Path, ...]
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def source_options(self, **more: object) -> dict[str, str]:
        """Options of the Spark source, as text; `more` adds to them."""
        options: dict[str, str] = {"path": ",".join(str(path) for path in self.commit_log)}
        for name in _SOURCE_SETTINGS:
            if self[name] is not None:
                options[name] = str(self[name]).lower()
        options["messageDelayLevel"] = " ".join(f"{delay // 1000}s" for delay in self["messageDelayLevel"])
        options.update({name: str(value) for name, value in more.items() if value is not None})
        return options


def load_config(
    store: Path,
    *,
    config_file: Path | None = None,
    broker_conf: Path | None = None,
    overrides: Sequence[str] = (),
) -> PipelineConfig:
    """Put the configuration together; `overrides` are ``name=value`` texts of the command line.

    Raises
    ------
    OptionError
        A file cannot be read, an option is unknown or its value not allowed, the broker's settings ask for something
        that reput does not write, or the store's log is DLedger's and enableDLegerCommitLog is off.
    StoreError
        enableDLegerCommitLog is on, and the store has no DLedger commitlog.
    """
    given: dict[str, str] = {}
    if config_file is not None:
        given.update(_read_toml(config_file))
    commit_log: tuple[Path, ...] = (store / COMMIT_LOG,)
    broker: dict[str, str] = {}
    if broker_conf is not None:
        broker = _read_properties(broker_conf)
        given.update({ours: broker[name] for name, ours in _BROKER_CONF_NAMES.items() if name in broker})
        commit_log = commit_log_paths(store, broker, broker_conf.parent)
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator:
            msg = f"option {override!r}: name=value wanted"
            raise OptionError(msg)
        given = {known: text for known, text in given.items() if known.lower() != name.lower()}
        given[name] = value
    values = parse_options(PIPELINE_OPTIONS, given)
    if values["consumeQueueEnable"]:
        _refuse_rocksdb(broker, broker_conf, store)
    log_directories = commit_log
    if values["enableDLegerCommitLog"]:
        log_directories = (*commit_log, dledger_directory(store, broker))
        commit_log = with_dledger(commit_log, store, broker)
    else:
        named = {name.lower() for name in given}
        check_no_dledger(commit_log, store, is_stated="enabledlegercommitlog" in named or broker_conf is not None)
    return PipelineConfig(store, commit_log, log_directories, values)


def _read_toml(path: Path) -> dict[str, str]:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        msg = f"cannot read the configuration {path}: {error}"
        raise OptionError(msg) from error
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.items()}


def _read_properties(path: Path) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8") as file:
            return {name: value.strip() for name, value in javaproperties.load(file).items()}
    except (OSError, ValueError) as error:
        msg = f"cannot read the broker's configuration {path}: {error}"
        raise OptionError(msg) from error


def _refuse_rocksdb(broker: Mapping[str, str], path: Path | None, store: Path) -> None:
    """Refuse queues of a store that keeps them in RocksDB; what broker.conf says beats what the store looks like."""
    store_type = broker.get("storeType", "")
    if "rocksdb" in store_type.lower():
        where = f"{path} has storeType={store_type}"
    elif not store_type and has_rocksdb_queues(store):
        where = f"{store / CONSUME_QUEUE} is a RocksDB database"
    else:
        return
    msg = (
        f"{where}: this broker keeps its queues in RocksDB, not in the ConsumeQueue files that reput writes; "
        "consumeQueueEnable=false keeps the other sinks, among them the table"
    )
    raise OptionError(msg)
