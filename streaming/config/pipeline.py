"""The pipeline's configuration: defaults, then ``reput.toml``, then ``broker.conf``, then the command line.

Every option is in ``conf/reput.toml`` with its unit, default and reason; a test keeps that file and this table equal.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reput.sinks.formats.consume_queue import CQ_STORE_UNIT_SIZE
from reput.sinks.formats.index_file import ENTRY_SIZE, SLOT_SIZE, index_file_size
from reput.sinks.index.index_sink import MAX_HASH_SLOT_NUM, MAX_INDEX_NUM
from reput.sinks.queue.consume_queue import MAPPED_FILE_SIZE_CONSUME_QUEUE
from reput.source.errors import OptionError
from reput.source.options import (
    INT_MAX,
    SOURCE_OPTIONS,
    WAIT_MS_MAX,
    Option,
    boolean,
    byte_count,
    bytes_allowed,
    number_allowed,
    parse_given,
    parse_value,
    shown,
    whole_number,
)
from reput.source.record.message_properties import parse_delay_levels
from reput.source.segments.commit_log_path import check_store
from reput.source.segments.store_layout import (
    CONSUME_QUEUE,
    check_no_dledger,
    commit_log_paths,
    dledger_directory,
    has_rocksdb_queues,
    with_dledger,
)
from reput.streaming.config.broker import BROKER_OPTIONS, broker_version
from reput.streaming.config.broker_conf import NUMBERS, PATHS, SWITCHES, BrokerConf
from reput.streaming.config.config_file import read_toml
from reput.streaming.config.master import MASTER_ALLOWED, master_url

_log = logging.getLogger(__name__)

_DEFAULT_BROKER = "DEFAULT_BROKER"
_FILE_STORE, _ROCKSDB_STORE = "default", "defaultrocksdb"
_SOURCE = {spec.name: spec for spec in SOURCE_OPTIONS}
_BYTES = _SOURCE["maxBytesPerTrigger"].allowed
_WAIT_MS = f"milliseconds: {number_allowed(0, WAIT_MS_MAX)}"

# A broker keeps a file's size in an int: a queue file of whole entries, and an index file of slots and keys.
_QUEUE_FILE_MAX = INT_MAX - INT_MAX % CQ_STORE_UNIT_SIZE
_SLOTS_MIN, _KEYS_MIN = 1, 2
_SLOTS_MAX = (INT_MAX - index_file_size(0, _KEYS_MIN)) // SLOT_SIZE
_KEYS_MAX = (INT_MAX - index_file_size(_SLOTS_MIN, 0)) // ENTRY_SIZE

# Of a wave: each is a piece of work of its own.
_RANGES_MAX = 10_000

# Spark needs 450 MiB; the JVM takes these as -Xmx.
_HEAP = re.compile(r"([0-9]+)([kmgt])", re.IGNORECASE)
_HEAP_MIN, _HEAP_MAX = 512 * 1024 * 1024, 1024 * 1024 * 1024 * 1024


def _text(text: str) -> str:
    if not text.strip() or not text.isprintable():
        raise ValueError(text)
    return text.strip()


def _heap(text: str) -> str:
    if not _HEAP.fullmatch(text.strip()):
        raise ValueError(text)
    byte_count(_HEAP_MIN, _HEAP_MAX)(text)
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
        1024 * 1024 * 1024,
        "of the logic query: large enough to hide a micro-batch's fixed cost, half a second of work for two cores",
    ),
    _SOURCE["maxMessagesPerTrigger"],
    Option(
        "maxBytesPerPartition",
        byte_count(1),
        _BYTES,
        128 * 1024 * 1024,
        "of the logic query: a task takes a tenth of a second, which is much beside what Spark needs to start one",
    ),
    Option(
        "logicTriggerMs",
        whole_number(0, WAIT_MS_MAX),
        _WAIT_MS,
        0,
        "0: the next micro-batch begins when the last one ends; consumers wait for queue entries",
    ),
    Option("consumeQueueEnable", boolean, "true or false", True, "queues are what brokers and consumers miss first"),
    Option("messageIndexEnable", boolean, "true or false", True, "the broker's own switch and default"),
    Option(
        "mappedFileSizeConsumeQueue",
        byte_count(1, _QUEUE_FILE_MAX),
        bytes_allowed(1, _QUEUE_FILE_MAX),
        MAPPED_FILE_SIZE_CONSUME_QUEUE,
        "the broker's default: 300,000 entries; rounded up to whole entries as the broker does",
    ),
    Option(
        "maxFirstQueueOffset",
        whole_number(0),
        f"a queue offset: {number_allowed(0)}",
        None,
        "unset: a queue may begin anywhere, as in the broker, which fills one file's front; a bound finds lies",
    ),
    Option(
        "maxHashSlotNum",
        whole_number(_SLOTS_MIN, _SLOTS_MAX),
        number_allowed(_SLOTS_MIN, _SLOTS_MAX),
        MAX_HASH_SLOT_NUM,
        "the broker's default; with maxIndexNum at most what makes a file of 2 GiB",
    ),
    Option(
        "maxIndexNum",
        whole_number(_KEYS_MIN, _KEYS_MAX),
        number_allowed(_KEYS_MIN, _KEYS_MAX),
        MAX_INDEX_NUM,
        "the broker's default",
    ),
    Option(
        "tableTriggerMs",
        whole_number(0, WAIT_MS_MAX),
        _WAIT_MS,
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
        master_url,
        MASTER_ALLOWED,
        "local[*]",
        "all cores of this machine; reput rebuild and verify take local[N] as N processes of their own, without Spark",
    ),
    Option(
        "sparkDriverMemory",
        _heap,
        "a whole number with k, m, g or t, from 512m to 1t",
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
        options["messageDelayLevel"] = " ".join(f"{delay // 1000}s" for delay in self["messageDelayLevel"]) or " "
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

    Settings that the broker reads as something else than they look like, and those that change what a broker writes
    and that reput does not follow, are told in one warning each.

    Raises
    ------
    OptionError
        A file cannot be read, an option is unknown or its value not allowed, the broker's settings ask for something
        that reput does not write, or the store's log is DLedger's and enableDLegerCommitLog is off.
    StoreError
        `store` is no directory, or enableDLegerCommitLog is on and it has no DLedger commitlog.
    """
    check_store(store)
    values = {spec.name: spec.default for spec in PIPELINE_OPTIONS}
    in_file: dict[str, Any] = {}
    if config_file is not None:
        in_file = parse_given(PIPELINE_OPTIONS, read_toml(config_file), f"{config_file}: ")
    on_command_line = parse_given(PIPELINE_OPTIONS, _overrides(overrides))
    values |= in_file | on_command_line
    broker = BrokerConf()
    if broker_conf is not None:
        broker = BrokerConf.read(broker_conf, broker_version(values["brokerVersion"], store))
        values |= _followed(broker, on_command_line)
        broker.note_ignored()
    _check_index_size(values)
    if values["consumeQueueEnable"]:
        _refuse_rocksdb(broker, store)
    is_stated = "enableDLegerCommitLog" in {*in_file, *on_command_line} or broker_conf is not None
    config = _with_log(store, broker, values, is_stated=is_stated)
    for note in broker.notes:
        _log.warning("%s", note)
    return config


def check_range_count(name: str, bytes_a_range: int, bytes_at_once: int) -> None:
    """Raise OptionError where the option `name` cuts what is read at once into more ranges than can be looked after."""
    if bytes_at_once > bytes_a_range * _RANGES_MAX:
        least = -(-bytes_at_once // _RANGES_MAX)
        msg = f"{name}={bytes_a_range}: too small for {bytes_at_once} bytes of the log at once; at least {least} wanted"
        raise OptionError(msg)


def _overrides(texts: Sequence[str]) -> dict[str, str]:
    given: dict[str, tuple[str, str]] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator:
            msg = f"option '{shown(text)}': name=value wanted"
            raise OptionError(msg)
        _, before = given.setdefault(name.lower(), (name, value))
        if before != value:
            msg = f"option {shown(name)} is given twice: {shown(before)} and {shown(value)}; give one of them"
            raise OptionError(msg)
    return dict(given.values())


def _followed(broker: BrokerConf, beaten_by: Mapping[str, Any]) -> dict[str, Any]:
    """What `broker` says of the options that are its settings, but for those that are `beaten_by` others."""
    specs = {spec.name: spec for spec in PIPELINE_OPTIONS}
    found: dict[str, Any] = {}
    wanted = {*broker.properties} - {*beaten_by}
    for name in NUMBERS:
        if name in wanted:
            found[name] = parse_value(specs[name], str(broker.number(name)), f"{broker.where(name)}: ")
    found.update((name, broker.switch(name)) for name in SWITCHES if name in wanted)
    if "brokerName" in wanted and "broker" not in beaten_by:
        found["broker"] = broker.text("brokerName")
        parse_value(specs["broker"], found["broker"], f"{broker.where('brokerName')}: brokerName is the option ")
    if "messageDelayLevel" in wanted:
        text = broker.text("messageDelayLevel")
        try:
            found["messageDelayLevel"] = parse_delay_levels(text)
        except ValueError:
            allowed = specs["messageDelayLevel"].allowed
            msg = f"{broker.where('messageDelayLevel')}: messageDelayLevel='{shown(text)}': {allowed} wanted; "
            raise OptionError(msg + "a broker does not start with it either") from None
    return found


def _with_log(store: Path, broker: BrokerConf, values: Mapping[str, Any], *, is_stated: bool) -> PipelineConfig:
    """The configuration with the directories of the log; `is_stated` as in ``check_no_dledger``."""
    texts = broker.texts(*PATHS)
    commit_log = commit_log_paths(store, texts, broker.path.parent if broker.path else store)
    if not values["enableDLegerCommitLog"]:
        check_no_dledger(commit_log, store, is_stated=is_stated)
        return PipelineConfig(store, commit_log, commit_log, values)
    log_directories = (*commit_log, dledger_directory(store, texts))
    return PipelineConfig(store, with_dledger(commit_log, store, texts), log_directories, values)


def _check_index_size(values: Mapping[str, Any]) -> None:
    slots, keys = values["maxHashSlotNum"], values["maxIndexNum"]
    size = index_file_size(slots, keys)
    if size > INT_MAX:
        msg = (
            f"maxHashSlotNum={slots} and maxIndexNum={keys} make index files of {size} bytes, and a broker's have at "
            f"most {INT_MAX}: give the sizes that the broker has"
        )
        raise OptionError(msg)


def _refuse_rocksdb(broker: BrokerConf, store: Path) -> None:
    """Refuse queues of a store that keeps them in RocksDB; what broker.conf says beats what the store looks like."""
    store_type = broker.text("storeType")
    if store_type.lower() == _ROCKSDB_STORE:
        where = f"{broker.path} has storeType={store_type}"
    elif store_type.lower() != _FILE_STORE and has_rocksdb_queues(store):
        where = f"{store / CONSUME_QUEUE} is a RocksDB database"
    else:
        return
    msg = (
        f"{where}: this broker keeps its queues in RocksDB, not in the ConsumeQueue files that reput writes; "
        "consumeQueueEnable=false keeps the other sinks, among them the table"
    )
    raise OptionError(msg)
