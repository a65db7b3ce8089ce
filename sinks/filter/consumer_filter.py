"""The filters of consumer groups by topic, from the broker's ``config/consumerFilter.json``, and a message's bitmap.

``ConsumerFilterManager#decode`` and ``CommitLogDispatcherCalcBitMap``. The broker registers and drops consumers as they
come and go; the file holds those that it knew when it last wrote it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from reput.sinks.files.config_manager import load_config_file
from reput.sinks.filter.bloom_filter import BloomFilter, bits
from reput.sinks.filter.sql92 import Expression, compile_expression
from reput.sinks.filter.sql92_expression import ExpressionEvaluationError, ExpressionSyntaxError

_log = logging.getLogger(__name__)

SQL92 = "SQL92"
# A topic's bitmaps are kept for so many combinations of property values; beyond that all are forgotten.
_KNOWN_MAX = 10_000


@dataclass(frozen=True)
class FilterData:
    """One consumer group's filter on one topic (``ConsumerFilterData``), with the positions of its bits."""

    consumer_group: str
    expression: Expression
    bit_pos: tuple[int, ...]


Filters: TypeAlias = Mapping[str, tuple[FilterData, ...]]


class ConsumerFilters:
    """The filters of one broker, by topic; cheap to pickle, since unpickling compiles the expressions again.

    Parameters
    ----------
    filters
        The groups of each filtered topic, dead ones included. A topic without an expression that compiles has bitmaps
        of zeros.
    bit_num
        How many bits a bitmap has: ``BloomFilter.m``.
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

        None when nobody filters the topic, or when a matching group has positions outside the bitmap: the broker then
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
    the broker's settings were changed and it forgets all groups. A missing, empty or damaged file gives way to
    ``consumerFilter.json.bak`` beside it; without both, nobody filters anything.

    Parameters
    ----------
    contains
        As in ``compile_expression``.

    Raises
    ------
    StoreError
        The file is damaged, and its backup is missing or damaged as well: a broker would not start.
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
        raise TypeError(f"{str(value)[:40]!r} stands where an object of objects is wanted")
    return value


def _is_valid(data: dict[str, Any], bloom: BloomFilter) -> bool:
    """``BloomFilter#isValid``; what is not bloom data at all raises an error."""
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
