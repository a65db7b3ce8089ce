"""The pipeline's configuration: defaults, then ``reput.toml``, then ``broker.conf``, then the command line.

A broker's own section of ``reput.toml`` comes between ``broker.conf`` and the command line. The record of what an
output was made for beats the defaults, but nothing that is stated. The options themselves are in ``settings``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reput.sinks.formats.index_file import index_file_size
from reput.sinks.table.retention import RowRetention
from reput.source import releases
from reput.source.errors import OptionError
from reput.source.log.store_layout import (
    CONSUME_QUEUE,
    JAVA_BLANKS,
    check_no_dledger,
    check_store,
    commit_log_paths,
    dledger_directory,
    has_queue_files,
    rocksdb_queues,
    with_dledger,
)
from reput.source.options import INT_MAX, SourceOptions, filled, parse_given, parse_value, shown, values_of
from reput.source.record.message_properties import parse_delay_levels
from reput.streaming.config.broker import broker_version
from reput.streaming.config.broker_conf import (
    DLEDGER_LOG,
    FILE_STORE,
    NO_CHANGES,
    NUMBERS,
    PATHS,
    SWITCHES,
    BrokerConf,
)
from reput.streaming.config.config_file import Configuration
from reput.streaming.config.made_for import check_stated, makes_all_of, recorded_in, warn_of_newer
from reput.streaming.config.run_options import SparkOptions, SqlOptions, TailOptions
from reput.streaming.config.settings import (
    AUTO,
    CONFIG_MANAGER_V1,
    CONFIG_MANAGER_V2,
    GROUPS,
    PIPELINE_OPTIONS,
    IndexOptions,
    Settings,
    TableOptions,
)

__all__ = [
    "COMMAND_LINE",
    "PIPELINE_OPTIONS",
    "RANGES_OF_A_LOG_MAX",
    "PipelineConfig",
    "check_range_count",
    "load_config",
    "load_file_options",
    "load_process_options",
    "load_sql_options",
    "load_table_options",
    "options_of_broker",
]

_log = logging.getLogger(__name__)

#: Where an option was stated.
COMMAND_LINE = "the command line"

_DLEDGER = "enableDLegerCommitLog"

# Most ranges of a wave: each is a task of its own.
_RANGES_MAX = 10_000
#: Most ranges of a whole log, each of which leaves a result: 25 TB of the usual size.
RANGES_OF_A_LOG_MAX = 100_000

# Each reader of a log sets these itself.
_SET_BY_READER = {"startingOffset", "startingTimestamp", "maxMessagesPerTrigger"}


@dataclass(frozen=True)
class PipelineConfig(Settings):
    """One run's configuration; see ``settings`` for units, limits and reasons.

    Attributes
    ----------
    commit_log
        The directories to read.
    log_directories
        The directories where nothing must ever be written.
    origins
        Where each option was stated, in words; an option that is missing has its default.
    broker_conf
        The ``broker.conf`` that was given.
    rocksdb_folder
        The folder of a store or output with the broker's queues in RocksDB, for a command that knows them.
        ``consumeQueueEnable``, which is about files, is off if RocksDB alone has queues.
    changes
        Settings that are tried as if ``broker.conf`` had them.
    backup
        The name of a backup. `store` then has only the configuration, and the log is read from a restore point
        (``backup.opened``).
    """

    store: Path = field(kw_only=True)
    commit_log: tuple[Path, ...] = field(kw_only=True)
    log_directories: tuple[Path, ...] = field(kw_only=True)
    origins: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    broker_conf: Path | None = field(default=None, kw_only=True)
    rocksdb_folder: str | None = field(default=None, kw_only=True)
    changes: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    backup: str | None = field(default=None, kw_only=True)

    @property
    def makes_rocksdb(self) -> bool:
        """Whether the broker keeps its queues only in RocksDB, so that a rebuild makes them there."""
        return self.rocksdb_folder is not None and not self.queue.consume_queue_enable

    def source_options(self, **more: object) -> dict[str, str]:
        """Return the options of the Spark source, as texts, with those of `more`."""
        options: dict[str, str] = {"path": ",".join(str(path) for path in self.commit_log)}
        for name, value in values_of(self.source).items():
            if value is not None and name not in _SET_BY_READER:
                options[name] = str(value).lower()
        options["messageDelayLevel"] = " ".join(f"{delay // 1000}s" for delay in self.source.delays_ms) or " "
        options.update({name: str(value) for name, value in more.items() if value is not None})
        return options

    def log_options(self, **more: object) -> SourceOptions:
        """Return the same options for a reader in this process."""
        return SourceOptions.parse(self.source_options(**more))


def load_config(
    store: Path,
    *,
    config_file: Path | Configuration | None = None,
    broker_conf: Path | None = None,
    overrides: Sequence[str] = (),
    output: Path | None = None,
    makes_all: bool = False,
    only_reads: bool = False,
    knows_rocksdb: bool = False,
    changes: Mapping[str, str] = NO_CHANGES,
) -> PipelineConfig:
    """Load the configuration; `overrides` are ``name=value`` texts of the command line.

    Of a `config_file` with sections, that of the broker with this store counts, and its ``brokerConf`` unless a
    `broker_conf` is given.

    The record of what `output` was made for (``made_for``) counts where no other value is stated; a rebuild that
    `makes_all` of it may change these settings. With `only_reads`, or for a command that `knows_rocksdb`, a store may
    have its queues only in RocksDB. `changes` are settings to try: they beat ``broker.conf``, and count as if they were
    in it.

    A warning is logged for each setting that means something else to the broker than its text suggests, and for each
    setting that reput does not follow although it changes what a broker writes.

    Raises
    ------
    OptionError
        A file cannot be read, an option is unknown or its value not allowed, the broker's settings ask for something
        that reput does not write, the output was made with another setting than the stated one, the store's log is
        DLedger's and enableDLegerCommitLog is off, or the file has sections but none with this store.
    StoreError
        `store` is not a directory, or enableDLegerCommitLog is on and it has no DLedger commitlog.
    """
    check_store(store)
    recorded = {} if output is None else recorded_in(output, store)
    on_command_line = _on_command_line(overrides)
    file = config_file if isinstance(config_file, Configuration) else Configuration.read(config_file)
    section = file.section_of(store)
    of_section = {} if section is None else section.options
    if section is not None and broker_conf is None:
        broker_conf = section.broker_conf
    beats_broker_conf = {**of_section, **on_command_line}
    stated = {**file.options, **beats_broker_conf}
    for name in ("brokerVersion", "configManagerVersion"):
        if stated.get(name) == AUTO:  # states nothing
            del stated[name]
    broker = BrokerConf()
    if broker_conf is not None or changes:
        version = {**recorded, **stated}.get("brokerVersion", AUTO)
        broker = BrokerConf.read(broker_conf, broker_version(version, store), changes)
        stated |= options_of_broker(broker, beats_broker_conf)
    if broker_conf is not None:
        is_given = beats_broker_conf.get("configManagerVersion", AUTO) != AUTO
        if not is_given and ("configManagerVersion" in broker or "configManagerVersion" not in stated):
            # Without the setting a broker has v1.
            stated["configManagerVersion"] = _config_manager_version(broker)
        broker.note_ignored()
    given = {**recorded, **stated}
    settings = Settings(**{name: filled(group, given) for name, group in GROUPS.items()})

    def where(name: str) -> str:
        if name in on_command_line:
            return COMMAND_LINE
        if section is not None and name in of_section:
            return section.where
        return broker.where(name) if name in broker else str(file.path or broker_conf)

    if output is not None and not (makes_all and makes_all_of(settings, recorded)):
        check_stated(output, recorded, stated, where)
    if output is not None and "brokerVersion" not in stated and not only_reads:
        warn_of_newer(output, recorded, store)
    _check_index_size(settings.index)
    folder = None
    if settings.queue.consume_queue_enable and (knows_rocksdb or not only_reads):
        why_none, folder = _why_no_queue_files(broker, store), broker.rocksdb_folder
        if why_none and not knows_rocksdb:
            raise OptionError(
                f"{why_none}: this broker keeps its queues in RocksDB, not in the ConsumeQueue files that reput "
                "writes; consumeQueueEnable=false keeps the other sinks, among them the table"
            )
        if why_none and (folder is None or broker.without_queue_files()):
            folder = folder or (rocksdb_queues(store) or store / CONSUME_QUEUE).name
            settings = replace(settings, queue=replace(settings.queue, consume_queue_enable=False))
    is_stated = _DLEDGER in stated or broker_conf is not None
    is_tried = _DLEDGER in changes
    config = _with_log(store, broker, settings, is_stated=is_stated, is_tried=is_tried)
    for note in broker.notes:
        _log.warning("%s", note)
    origins = dict.fromkeys(recorded, "what the output was made with") | {name: where(name) for name in stated}
    return replace(config, origins=origins, broker_conf=broker_conf, rocksdb_folder=folder, changes=changes)


def load_file_options(config_file: Path | None, broker_conf: Path | None, overrides: Sequence[str]) -> Settings:
    """Load the settings for reading a single file of a store, without the store; errors as in `load_config`."""
    on_command_line = _on_command_line(overrides)
    stated = {**Configuration.read(config_file).options}
    if broker_conf is not None:
        version = broker_version({**stated, **on_command_line}.get("brokerVersion", AUTO), broker_conf.parent)
        stated |= options_of_broker(BrokerConf.read(broker_conf, version), on_command_line)
    stated |= on_command_line
    settings = Settings(**{name: filled(group, stated) for name, group in GROUPS.items()})
    _check_index_size(settings.index)
    return settings


def load_process_options(file: Configuration, overrides: Sequence[str]) -> tuple[TailOptions, SparkOptions]:
    """Load the options of the whole process for the brokers of `file`; errors as in `load_config`."""
    given = {**file.options, **_on_command_line(overrides)}
    return filled(TailOptions, given), filled(SparkOptions, given)


def load_sql_options(config_file: Path | None, overrides: Sequence[str]) -> tuple[SqlOptions, SparkOptions]:
    """Load the options of `reput sql`, for either engine; errors as in `load_config`."""
    given = {**Configuration.read(config_file).options, **_on_command_line(overrides)}
    return filled(SqlOptions, given), filled(SparkOptions, given)


def load_table_options(config_file: Path | None, overrides: Sequence[str]) -> RowRetention:
    """Load how long a table keeps rows; errors as in `load_config`."""
    given = {**Configuration.read(config_file).options, **_on_command_line(overrides)}
    return filled(TableOptions, given).retention


def check_range_count(name: str, bytes_a_range: int, bytes_at_once: int, most: int = _RANGES_MAX) -> None:
    """Raise OptionError if the option `name` cuts `bytes_at_once` into more than `most` ranges."""
    if bytes_at_once > bytes_a_range * most:
        least = -(-bytes_at_once // most)
        msg = f"{name}={bytes_a_range}: too small for {bytes_at_once} bytes of the log at once; at least {least} wanted"
        raise OptionError(msg)


def _on_command_line(texts: Sequence[str]) -> dict[str, Any]:
    given: dict[str, tuple[str, str]] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        name = name.strip()
        if not separator:
            msg = f"option '{shown(text)}': name=value wanted"
            raise OptionError(msg)
        _, before = given.setdefault(name.lower(), (name, value))
        if before != value:
            twice = f"option {shown(name)} is given twice: {shown(before)} and {shown(value)}"
            raise OptionError(twice, advice="give one of them")
    return parse_given(PIPELINE_OPTIONS, dict(given.values()))


def options_of_broker(broker: BrokerConf, beaten_by: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that `broker` sets, except those that are `beaten_by` others; errors as in `load_config`."""
    specs = {spec.name: spec for spec in PIPELINE_OPTIONS}
    found: dict[str, Any] = {}
    wanted = {*broker.properties} - {*beaten_by}
    for name in NUMBERS:
        if name in wanted:
            found[name] = parse_value(specs[name], str(broker.number(name)), f"{broker.where(name)}: ")
    found.update((name, broker.switch(name)) for name in SWITCHES if name in wanted)
    if not broker.writes_index_files and "messageIndexEnable" not in beaten_by:
        found["messageIndexEnable"] = False
    if "brokerName" in wanted and "broker" not in beaten_by:
        found["broker"] = broker.text("brokerName")
        parse_value(specs["broker"], found["broker"], f"{broker.where('brokerName')}: brokerName is the option ")
    if "messageDelayLevel" in wanted:
        text = broker.text("messageDelayLevel")
        try:
            found["messageDelayLevel"] = parse_delay_levels(text)
        except ValueError:
            allowed = specs["messageDelayLevel"].allowed
            msg = f"{broker.where('messageDelayLevel')}: messageDelayLevel='{shown(text)}': {allowed} wanted"
            raise OptionError(f"{msg}; a broker does not start with it either", file=broker.path) from None
    return found


def _config_manager_version(broker: BrokerConf) -> str:
    """Return the version that `broker` sets; a broker takes any text but v2 as v1."""
    is_v2 = broker.text("configManagerVersion") == CONFIG_MANAGER_V2
    return CONFIG_MANAGER_V2 if is_v2 else CONFIG_MANAGER_V1


def _with_log(
    store: Path, broker: BrokerConf, settings: Settings, *, is_stated: bool, is_tried: bool
) -> PipelineConfig:
    """Add the directories of the log; `is_stated` as in ``check_no_dledger``, which is skipped for settings to try."""
    texts = broker.texts(*PATHS)
    beside = broker.path.parent if broker.path else store
    commit_log = commit_log_paths(store, texts, beside)
    log_directories = commit_log
    if settings.source.enable_dledger_commit_log:
        is_elsewhere = broker.version > releases.FIRST and bool(texts.get(DLEDGER_LOG, "").strip(JAVA_BLANKS))
        own = commit_log_paths(store, texts, beside, DLEDGER_LOG) if is_elsewhere else ()
        log_directories = (*commit_log, *own, dledger_directory(store, texts))
        commit_log = with_dledger(commit_log, store, texts, own)
    elif not is_tried:
        check_no_dledger(commit_log, store, is_stated=is_stated)
    groups = {name: getattr(settings, name) for name in GROUPS}
    return PipelineConfig(**groups, store=store, commit_log=commit_log, log_directories=log_directories)


def _check_index_size(index: IndexOptions) -> None:
    slots, keys = index.max_hash_slot_num, index.max_index_num
    size = index_file_size(slots, keys)
    if size > INT_MAX:
        msg = (
            f"maxHashSlotNum={slots} and maxIndexNum={keys} make index files of {size} bytes, and a broker's have at "
            f"most {INT_MAX}: give the sizes that the broker has"
        )
        raise OptionError(msg)


def _why_no_queue_files(broker: BrokerConf, store: Path) -> str | None:
    """Return why a store has its queues only in RocksDB; None for files. broker.conf counts more than the store."""
    setting = broker.without_queue_files()
    database = rocksdb_queues(store)
    if setting is not None:
        return f"{broker.path} has {setting}"
    if broker.text("storeType").lower() != FILE_STORE and database is not None and not has_queue_files(store):
        return f"{database} is a RocksDB database"
    return None
