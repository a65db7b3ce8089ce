"""Sizes of files: those in the settings, and those that the files of a store or an output have.

If all files of a kind have another size than the settings say, the settings are another broker's, or were forgotten
(``source.log.store_layout``). Commands that only read then go by the files, and say so in a line; commands that write
are refused.
"""

from __future__ import annotations

import logging
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from reput.sinks.files.store_path import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, REBUILD_SWAP
from reput.sinks.formats.consume_queue import BATCH_STORE_UNIT_SIZE, CQ_STORE_UNIT_SIZE
from reput.sinks.formats.index_file import index_file_size
from reput.sinks.index.index_reader import deduced_sizes, index_file_names
from reput.sinks.queue.consume_queue import rounded_file_size
from reput.sinks.queue.queue_reader import ends_full, queue_rows
from reput.source.errors import ForeignSettingsError
from reput.source.log.store_layout import OtherSize, log_ends_full, other_size, row_of
from reput.streaming.config.broker import broker_version
from reput.streaming.config.broker_conf import NUMBERS, BrokerConf, broker_conf_of
from reput.streaming.config.pipeline import PipelineConfig, options_of_broker
from reput.streaming.config.settings import IndexOptions

_log = logging.getLogger(__name__)

_SEGMENT: Final = "mappedFileSizeCommitLog"
_QUEUE: Final = "mappedFileSizeConsumeQueue"
_EXT: Final = "mappedFileSizeConsumeQueueExt"
_BATCH: Final = "mapperFileSizeBatchConsumeQueue"
_SLOTS: Final = "maxHashSlotNum"
_KEYS: Final = "maxIndexNum"
_GIVE: Final = "give the --broker-conf that the broker is started with"


class Kind(Enum):
    """A kind of files, with the word for one of them."""

    SEGMENT = "segment"
    QUEUE = "queue file"
    EXT = "ConsumeQueueExt file"
    BATCH = "batch queue file"
    INDEX = "index file"


_OF_OUTPUT: Final = (Kind.QUEUE, Kind.EXT, Kind.BATCH, Kind.INDEX)
# The settings that shape a store's files.
_SHAPES: Final = (
    *(_QUEUE, _EXT, _BATCH, _SLOTS, _KEYS),
    *("enableDLegerCommitLog", "enableMultiDispatch", "enableLmq", "enableConsumeQueueExt", "enableCalcFilterBitMap"),
    *("messageIndexEnable", "messageDelayLevel"),
)


@dataclass(frozen=True)
class Misfit:
    """Settings that contradict the size of all files of a kind below `directory`.

    Attributes
    ----------
    set_to
        The settings and their values.
    stated_in
        Where they are stated; None for the broker's defaults.
    found
        The size that the files have.
    fits
        The values that make files of that size; None if the files do not show them.
    """

    kind: Kind
    directory: Path
    set_to: Mapping[str, int]
    stated_in: str | None
    found: OtherSize
    fits: Mapping[str, int] | None

    def __str__(self) -> str:
        is_one = len(self.set_to) == 1
        size = "" if is_one else f", for files of {index_file_size(*self.set_to.values())} bytes"
        made = "which settings make them is not known"
        if self.fits is not None:
            made = f"as {_values(self.fits)} {'makes' if is_one else 'make'} them"
        return (
            f"{_values(self.set_to)} ({self.stated_in or 'the default'}{size}) {'does' if is_one else 'do'} not fit "
            f"{self.directory}: {self.found.words(self.kind.value)}, {made}"
        )


def misfits(config: PipelineConfig, root: Path, kinds: Collection[Kind] = tuple(Kind)) -> list[Misfit]:
    """Return the settings about the log, and about queues and index below `root`, that all their files contradict.

    Only files of these `kinds` are examined, and none that are switched off.
    """
    found = []
    if Kind.SEGMENT in kinds and config.source.mapped_file_size is not None:
        found.append(_log_misfit(config, config.source.mapped_file_size))
    if config.queue.consume_queue_enable:
        found += _queue_misfits(config, root, kinds)
    if Kind.INDEX in kinds and config.index.message_index_enable:
        found.append(_index_misfit(config, root))
    return [each for each in found if each is not None]


def misfits_at_start(config: PipelineConfig) -> list[Misfit]:
    """Return the same for a broker's start on the store; with a ``broker.conf``, segments always have a set size."""
    found = misfits(config, config.store)
    if config.broker_conf is not None and config.source.mapped_file_size is None:
        of_log = _log_misfit(config, NUMBERS[_SEGMENT])
        found = [*([] if of_log is None else [of_log]), *found]
    return found


def _log_misfit(config: PipelineConfig, size: int) -> Misfit | None:
    row, stated_in = row_of(config.commit_log), config.origins.get(_SEGMENT)
    found = other_size([row], size, is_stated=stated_in is not None, ends_full=log_ends_full)
    if found is None:
        return None
    return Misfit(Kind.SEGMENT, Path(row[0].path).parent, {_SEGMENT: size}, stated_in, found, {_SEGMENT: found.size})


def _queue_misfits(config: PipelineConfig, root: Path, kinds: Collection[Kind]) -> Iterator[Misfit]:
    queue = config.queue
    for kind, top, name, value, unit in (
        (Kind.QUEUE, CONSUME_QUEUE, _QUEUE, queue.mapped_file_size_consume_queue, CQ_STORE_UNIT_SIZE),
        (Kind.EXT, CONSUME_QUEUE_EXT, _EXT, queue.ext_file_size, None),
        (Kind.BATCH, BATCH_CONSUME_QUEUE, _BATCH, queue.mapper_file_size_batch_consume_queue, BATCH_STORE_UNIT_SIZE),
    ):
        if value is None or kind not in kinds:
            continue
        stated_in = config.origins.get(name)
        found = other_size(
            queue_rows(root, top),
            rounded_file_size(value) if kind is Kind.QUEUE else value,
            is_stated=stated_in is not None,
            unit=unit or 1,
            ends_full=partial(ends_full, unit=unit) if unit else None,  # units of an ext file differ in size
        )
        if found is not None:
            yield Misfit(kind, root / top, {name: value}, stated_in, found, {name: found.size})


def _index_misfit(config: PipelineConfig, root: Path) -> Misfit | None:
    slots, keys = config.index.max_hash_slot_num, config.index.max_index_num
    paths = [root / INDEX / name for name in index_file_names(root)]
    sizes = {path: path.stat().st_size for path in paths}
    counts = Counter(size for size in sizes.values() if size)
    wanted = index_file_size(slots, keys)
    if not counts or wanted in counts:
        return None
    most, count = max(counts.items(), key=lambda each: (each[1], each[0]))
    of_size = [path for path, size in sizes.items() if size == most]
    fits = next((found for path in of_size[:3] if (found := deduced_sizes(path, [slots])) is not None), None)
    stated_in = config.origins.get(_SLOTS) or config.origins.get(_KEYS)
    if count == 1 and most < wanted and (fits is None or fits[0] == slots) and (fits or stated_in):
        return None  # one file that was cut
    return Misfit(
        Kind.INDEX,
        root / INDEX,
        {_SLOTS: slots, _KEYS: keys},
        stated_in,
        OtherSize(most, count, sum(counts.values())),
        None if fits is None else {_SLOTS: fits[0], _KEYS: fits[1]},
    )


def index_options_of(options: IndexOptions, path: Path, note: Callable[[str], object]) -> IndexOptions:
    """Return the options for one index file; if its size is another one, use those in it and give `note` a line."""
    slots, keys = options.max_hash_slot_num, options.max_index_num
    size = path.stat().st_size
    if size == index_file_size(slots, keys) or (fits := deduced_sizes(path, [slots])) is None:
        return options
    made = f"{_SLOTS}={slots} and {_KEYS}={keys} make {index_file_size(slots, keys)}"
    found = f"{_SLOTS}={fits[0]} and {_KEYS}={fits[1]}"
    note(f"{path} has {size} bytes where {made}; it is read with {found}, which its entries show")
    return replace(options, max_hash_slot_num=fits[0], max_index_num=fits[1])


def going_by_files(config: PipelineConfig, found: Sequence[Misfit]) -> PipelineConfig:
    """Return the configuration with the sizes that the files have, as far as the files show them."""
    fits = {name: value for each in found if each.fits is not None for name, value in each.fits.items()}
    queue, index = config.queue, config.index
    return replace(
        config,
        source=replace(config.source, mapped_file_size=None) if _SEGMENT in fits else config.source,
        queue=replace(
            queue,
            mapped_file_size_consume_queue=fits.get(_QUEUE, queue.mapped_file_size_consume_queue),
            mapped_file_size_consume_queue_ext=fits.get(_EXT, queue.mapped_file_size_consume_queue_ext),
            mapper_file_size_batch_consume_queue=fits.get(_BATCH, queue.mapper_file_size_batch_consume_queue),
        ),
        index=replace(
            index,
            max_hash_slot_num=fits.get(_SLOTS, index.max_hash_slot_num),
            max_index_num=fits.get(_KEYS, index.max_index_num),
        ),
    )


def read_by_files(config: PipelineConfig, root: Path, kinds: Collection[Kind] = tuple(Kind)) -> PipelineConfig:
    """Return the configuration for a command that only reads `root`, by the sizes of its files; warn of each misfit."""
    found = misfits(config, root, kinds)
    if not found:
        return config
    advice = way_out(config, found)
    for each in found:
        done = "the files are read by the size they have" if each.fits is not None else "the files are read as it says"
        _log.warning("%s; %s; %s", each, done, advice)
    return going_by_files(config, found)


def check_fits_files(config: PipelineConfig, output: Path, *, replaces: bool = False) -> None:
    """Check the settings of a command that writes to `output`, before it writes anything.

    With `replaces`, the command replaces everything in an output that is not the store.

    Raises
    ------
    ForeignSettingsError
        All files of a kind in the output, or in the store if that is the output, have another size; or the output is
        the store, settings were left to their defaults, and a ``broker.conf`` that names the store has others.
    """
    if output.joinpath(*REBUILD_SWAP).exists():
        return  # a rebuild was checked before, and its files are put in place first
    store = config.store
    is_store = output.resolve() == store.resolve()
    found = []
    if is_store or not replaces:
        found = misfits(config, output, tuple(Kind) if is_store else _OF_OUTPUT)
    if found:
        raise ForeignSettingsError(
            f"nothing was changed: {'; '.join(map(str, found))}", advice=way_out(config, found), file=found[0].directory
        )
    if is_store:
        _check_not_forgotten(config)
        return
    others = misfits(config, store, _OF_OUTPUT)
    for each in others:
        _log.warning("%s; %s gets files of the set size; %s", each, output, way_out(config, others))


def _check_not_forgotten(config: PipelineConfig) -> None:
    found = forgotten(config)
    if found is not None:
        raise ForeignSettingsError(
            f"nothing was changed: {found}",
            advice=f"give --broker-conf {shlex.quote(str(found.path))}, or say with --option which values are right",
            file=found.path,
        )


@dataclass(frozen=True)
class ForgottenConf:
    """A ``broker.conf`` that names the store but was not given, and the settings in it that have other values here."""

    path: Path
    store: Path
    names: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.path} names the store {self.store} and was not given: it sets {', '.join(self.names)}, which have "
            "other values here"
        )


def forgotten(config: PipelineConfig) -> ForgottenConf | None:
    """Return the store's own ``broker.conf`` if none was given and it differs in settings that shape files."""
    if config.broker_conf is not None:
        return None
    broker = broker_conf_of(config.store, broker_version(config.broker.version, config.store), lambda _: True)
    if broker is None or broker.path is None:
        return None
    values = config.values
    options = options_of_broker(broker, config.origins)
    names = tuple(name for name, value in options.items() if name in _SHAPES and value != values[name])
    return ForgottenConf(broker.path, config.store, names) if names else None


def way_out(config: PipelineConfig, found: Sequence[Misfit]) -> str:
    """Return advice about settings that do not fit, with the store's ``broker.conf`` if it is found."""
    path = fitting_conf(config, found)
    return _GIVE if path is None else f"give --broker-conf {shlex.quote(str(path))}"


def fitting_conf(config: PipelineConfig, found: Sequence[Misfit]) -> Path | None:
    """Return the path of the store's ``broker.conf`` with the sizes that its files have; None if it is not found."""

    def fits(conf: BrokerConf) -> bool:
        return all(_value(conf, name) == value for each in found for name, value in (each.fits or {}).items())

    broker = broker_conf_of(config.store, broker_version(config.broker.version, config.store), fits)
    return None if broker is None else broker.path


def _value(conf: BrokerConf, name: str) -> int:
    value = conf.number(name) if name in conf else NUMBERS[name]
    return rounded_file_size(value) if name == _QUEUE else value


def _values(values: Mapping[str, int]) -> str:
    return " and ".join(f"{name}={value}" for name, value in values.items())
