"""The filters of consumer groups by topic, from the broker's ``config/consumerFilter.json``, and a message's bitmap.

``ConsumerFilterManager#decode`` and ``CommitLogDispatcherCalcBitMap``. The broker registers and drops consumers as they
come and go; the file has the consumers that the broker knew when it last wrote it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import mmh3

from reput.sinks.files.config_manager import load_config_file
from reput.sinks.filter.sql92 import Expression, ExpressionEvaluationError, ExpressionSyntaxError, compile_expression
from reput.source.errors import OptionError

# ----------------------------------------------------------------------------------------------------------------------
# RocketMQ's bloom filter: the bits of a message's bitmap that mean a consumer group's match.
#
# ``filter/util/BloomFilter`` and ``BitsArray``; the hash is Guava's ``murmur3_128``.

_MASK_32 = 2**32 - 1


@dataclass(frozen=True)
class BloomFilter:
    """The filter of one broker.

    Attributes
    ----------
    error_rate
        ``maxErrorRateOfBloomFilter`` in percent, 1 to 99.
    expected
        ``expectConsumerNumUseFilter``, at least 1.
    k
        The number of positions of a text.
    m
        The number of bits of a bitmap, a multiple of 8.

    Raises
    ------
    OptionError
        A setting is outside its limits.
    """

    error_rate: int = 20
    expected: int = 32
    k: int = field(init=False)
    m: int = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.error_rate <= 99:
            raise OptionError(f"maxErrorRateOfBloomFilter is {self.error_rate}; it is a percentage from 1 to 99")
        if self.expected < 1:
            raise OptionError(f"expectConsumerNumUseFilter is {self.expected}; it is at least 1")
        rate = self.error_rate / 100.0
        least = math.ceil(self.expected * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        object.__setattr__(self, "k", math.ceil(math.log(rate) / math.log(0.5)))
        object.__setattr__(self, "m", 8 * math.ceil(least / 8))

    def positions(self, text: str) -> tuple[int, ...]:
        """The `k` positions of `text`, each below `m`; a position may come twice (``#calcBitPositions``)."""
        # Guava's `asLong()` is the first half of the 128 bits; its seed is 0.
        hash_64, _ = mmh3.hash64(text.encode("utf-8", "replace"), seed=0, x64arch=True, signed=False)
        hash_1, hash_2 = hash_64 & _MASK_32, hash_64 >> 32
        found = []
        for i in range(1, self.k + 1):
            combined = (hash_1 + i * hash_2) & _MASK_32
            # Java flips the bits of a negative int.
            found.append((combined ^ _MASK_32 if combined >> 31 else combined) % self.m)
        return tuple(found)


def bits(positions: Iterable[int], size: int) -> bytes:
    """A bitmap of `size` bits (a multiple of 8) with those at `positions` set, the lowest bit of a byte first.

    Raises
    ------
    ValueError
        A position is not below `size`; Java throws.
    """
    number = 0
    for position in positions:
        if not 0 <= position < size:
            msg = f"position {position} is outside a bitmap of {size} bits"
            raise ValueError(msg)
        number |= 1 << position
    return number.to_bytes(size // 8, "little")


_log = logging.getLogger(__name__)

SQL92 = "SQL92"
# A topic's bitmaps are kept for this many combinations of property values; beyond that all are dropped.
_KNOWN_MAX = 10_000


@dataclass(frozen=True)
class FilterData:
    """One consumer group's filter on one topic (``ConsumerFilterData``), with the positions of its bits."""

    consumer_group: str
    expression: Expression
    bit_pos: tuple[int, ...]


Filters: TypeAlias = Mapping[str, tuple[FilterData, ...]]


class ConsumerFilters:
    """The filters of one broker, by topic; cheap to pickle, because unpickling compiles the expressions again.

    Parameters
    ----------
    filters
        The groups of each filtered topic, dead ones included. A topic without an expression that compiles has bitmaps
        of zeros.
    bit_num
        The number of bits of a bitmap: ``BloomFilter.m``.
    """

    def __init__(self, filters: Filters, bit_num: int) -> None:
        self._filters = dict(filters)
        self._bit_num = bit_num
        self._topics = {topic: _TopicFilters(groups, bit_num) for topic, groups in self._filters.items()}

    @property
    def topics(self) -> frozenset[str]:
        """Every filtered topic; messages of others have no bitmap."""
        return frozenset(self._filters)

    def bit_map(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """The bitmap that ``CommitLogDispatcherCalcBitMap#dispatch`` gives a message: the bits of each matching group.

        None if no group filters the topic, or if a matching group has positions outside the bitmap: the broker then
        gives up on the message.
        """
        filters = self._topics.get(topic)
        return None if filters is None else filters.bit_map(properties)

    def __reduce__(self) -> tuple[Callable[..., ConsumerFilters], tuple[Filters, int]]:
        return ConsumerFilters, (self._filters, self._bit_num)


class _TopicFilters:
    """The filters of one topic. A bitmap depends only on the properties that expressions name."""

    def __init__(self, groups: tuple[FilterData, ...], bit_num: int) -> None:
        self._groups = groups
        self._bit_num = bit_num
        self._names = sorted(set().union(*(group.expression.property_names for group in groups)))
        self._known: dict[tuple[str | None, ...], bytes | None] = {}

    def bit_map(self, properties: Mapping[str, str]) -> bytes | None:
        values = tuple(map(properties.get, self._names))
        try:
            return self._known[values]
        except KeyError:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            return self._known.setdefault(values, self._calculate(properties))

    def _calculate(self, properties: Mapping[str, str]) -> bytes | None:
        positions: list[int] = []
        for group in self._groups:
            try:
                if group.expression.evaluate(properties):
                    positions += group.bit_pos
            except ExpressionEvaluationError:
                continue
        try:
            return bits(positions, self._bit_num)
        except ValueError:
            return None


def load_consumer_filters(path: Path, bloom: BloomFilter, *, contains: bool) -> ConsumerFilters:
    """Read ``consumerFilter.json`` as a starting broker does.

    An expression that does not compile is skipped with a warning. If one group's bloom data does not belong to `bloom`,
    the broker's settings were changed and it forgets all groups. If the file is missing, empty or damaged,
    ``consumerFilter.json.bak`` beside it is read instead; without both, there are no filters.

    Parameters
    ----------
    contains
        As in ``compile_expression``.

    Raises
    ------
    StoreError
        The file is damaged, and its backup is missing or damaged, too: a broker would not start.
    """
    found = load_config_file(
        path,
        lambda value: _decode(value, path, bloom, contains=contains),
        "a broker's consumer filters",
        advice="copy it again from the broker, or turn enableCalcFilterBitMap off to write no bitmaps",
    )
    return ConsumerFilters({}, bloom.m) if found is None else found


def _decode(value: Any, file: Path, bloom: BloomFilter, *, contains: bool) -> ConsumerFilters:
    table = value.get("filterDataByTopic")
    topics = {} if table is None else _members(table)
    groups = {topic: _members(data.get("groupFilterData", {})) for topic, data in topics.items()}
    invalid = [data for of_topic in groups.values() for data in of_topic.values() if not _is_valid(data, bloom)]
    if invalid:
        _log.warning(
            "%s: the bloom data %r of group %r is not of %d bits and %d positions: maxErrorRateOfBloomFilter or "
            "expectConsumerNumUseFilter was changed, all filters of the file are ignored",
            file,
            invalid[0].get("bloomFilterData"),
            invalid[0].get("consumerGroup"),
            bloom.m,
            bloom.k,
        )
        return ConsumerFilters({}, bloom.m)
    filters = {
        topic: tuple(
            compiled
            for group, data in of_topic.items()
            if (compiled := _compiled(topic, group, data, contains=contains)) is not None
        )
        for topic, of_topic in groups.items()
        if of_topic
    }
    return ConsumerFilters(filters, bloom.m)


def _members(value: Any) -> dict[str, dict[str, Any]]:
    """`value`, which must be an object of objects."""
    if not isinstance(value, dict) or not all(isinstance(member, dict) for member in value.values()):
        raise TypeError(f"{str(value)[:40]!r} was found where an object of objects is wanted")
    return value


def _is_valid(data: dict[str, Any], bloom: BloomFilter) -> bool:
    """``BloomFilter#isValid``; raises an error for anything that is not bloom data."""
    bloom_data = data.get("bloomFilterData")
    if bloom_data is None:
        return False
    positions = bloom_data.get("bitPos")
    if positions is None:
        return False
    if not isinstance(positions, list) or not all(type(position) is int for position in positions):
        raise TypeError(f"bitPos is {positions!r}")
    return bloom_data.get("bitNum") == bloom.m and len(positions) == bloom.k


def _compiled(topic: str, group: str, data: dict[str, Any], *, contains: bool) -> FilterData | None:
    text, kind = data.get("expression"), data.get("expressionType")
    if kind != SQL92 or not isinstance(text, str):
        _log.warning("group %r filters %r by %r of type %r: skipped, only SQL92 is known", group, topic, text, kind)
        return None
    try:
        expression = compile_expression(text, contains=contains)
    except ExpressionSyntaxError as error:
        _log.warning("group %r filters %r by an expression that does not compile: skipped: %s", group, topic, error)
        return None
    return FilterData(group, expression, tuple(data["bloomFilterData"]["bitPos"]))
