"""Filters from ``consumerFilter.json`` and bitmaps, as the broker reads and calculates them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.sinks.filter import consumer_filter
from reput.sinks.filter.consumer_filter import BloomFilter, ConsumerFilters, FilterData, bits, load_consumer_filters
from reput.sinks.filter.sql92 import compile_expression
from reput.source.errors import StoreError

if TYPE_CHECKING:
    from conftest import BrokerStore

BLOOM = BloomFilter()
ZERO = bytes(14)


def group(expression: str | None, positions: list[int] | None = None, **changed: Any) -> dict[str, Any]:
    """One group's data as a broker writes it."""
    data = {
        "bloomFilterData": {"bitNum": 112, "bitPos": positions or [1, 9, 111]},
        "bornTime": 1,
        "clientVersion": 2,
        "consumerGroup": "g",
        "dead": True,
        "deadTime": 3,
        "expression": expression,
        "expressionType": "SQL92",
        "topic": "T",
    }
    return {**data, **changed}


def write(path: Path, groups: dict[str, Any], topic: str = "T") -> Path:
    table = {"filterDataByTopic": {topic: {"groupFilterData": groups, "topic": topic}}}
    path.write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "consumerFilter.json"


def load(path: Path, *, contains: bool = False) -> ConsumerFilters:
    return load_consumer_filters(path, BLOOM, contains=contains)


# -- bitmaps


def test_bits_of_every_group_that_matches(path: Path) -> None:
    """Two groups with a common bit; one that throws; one that is null; one whose result is false."""
    filters = load(
        write(
            path,
            {
                "one": group("a > 1", [0, 1, 2]),
                "two": group("b = 'x'", [2, 9, 111]),
                "throws": group("c > 1", [20, 21, 22]),
                "null": group("d > 1", [30, 31, 32]),
                "false": group("a > 100", [40, 41, 42]),
            },
        )
    )
    assert filters.topics == {"T"}
    assert filters.bit_map("T", {"a": "2", "b": "x", "c": "?"}) == bits([0, 1, 2, 9, 111], 112)
    assert filters.bit_map("T", {"a": "2"}) == bits([0, 1, 2], 112)
    assert filters.bit_map("T", {}) == ZERO
    assert filters.bit_map("Other", {"a": "2"}) is None


@pytest.mark.parametrize("position", [112, -1, 2**31 - 1])
def test_positions_outside_the_bitmap_abort_it(path: Path, position: int) -> None:
    """The broker throws when the group matches, and the message has no bitmap at all; else nothing happens."""
    filters = load(write(path, {"one": group("a = 1", [0, 1, 2]), "two": group("b = 1", [3, position, 4])}))
    assert filters.bit_map("T", {"a": "1", "b": "1"}) is None
    assert filters.bit_map("T", {"b": "1"}) is None
    assert filters.bit_map("T", {"a": "1"}) == bits([0, 1, 2], 112)


def test_ten_groups_on_ten_topics() -> None:
    """RocketMQ's CommitLogDispatcherCalcBitMapTest: the bits say what the expressions say."""
    topics = [f"topic{i}" for i in range(10)]
    texts = [f"a is not null and a > {(i - 1) * 10} and a < {(i + 1) * 10}" for i in range(10)]
    groups = tuple(
        FilterData(f"CID_{i}", compile_expression(text, contains=False), BLOOM.positions(f"CID_{i}#{topic}"))
        for i, (text, topic) in enumerate(zip(texts, topics, strict=True))
    )
    filters = ConsumerFilters(dict.fromkeys(topics, groups), BLOOM.m)
    for i, topic in enumerate(topics):
        properties = {"a": str(10 * i + 5)}
        bit_map = int.from_bytes(filters.bit_map(topic, properties) or b"", "little")
        for data in groups:
            is_hit = all(bit_map >> position & 1 for position in data.bit_pos)
            assert is_hit == (data.expression.evaluate(properties) is True)


@given(st.lists(st.dictionaries(st.sampled_from("abcZ"), st.sampled_from(["1", "2", "x"])), max_size=60))
def test_what_was_kept_is_what_would_be_calculated(messages: list[dict[str, str]]) -> None:
    texts = ["a = 1", "a > 1 OR b = 'x'", "c IS NULL", "NOT (b IN ('1', 'x'))"]
    data = [FilterData(text, compile_expression(text, contains=False), BLOOM.positions(text)) for text in texts]
    together, alone = ConsumerFilters({"T": tuple(data)}, 112), [ConsumerFilters({"T": (one,)}, 112) for one in data]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer_filter, "_KNOWN_MAX", 3)
        for properties in messages:
            parts = [one.bit_map("T", properties) or b"" for one in alone]
            expected = 0
            for part in parts:
                expected |= int.from_bytes(part, "little")
            assert together.bit_map("T", properties) == expected.to_bytes(14, "little")


def test_filters_go_to_tasks(path: Path) -> None:
    filters = load(write(path, {"one": group("a contains 'x'", [0, 1, 2])}), contains=True)
    filters.bit_map("T", {"a": "1"})
    copy = pickle.loads(pickle.dumps(filters))
    assert copy.topics == filters.topics
    assert copy.bit_map("T", {"a": "axb"}) == filters.bit_map("T", {"a": "axb"}) == bits([0, 1, 2], 112)
    assert len(pickle.dumps(filters)) < 600


# -- the file


def test_a_real_broker_s_file(broker_store: Callable[[str], BrokerStore]) -> None:
    """Every group of the file is loaded, with the positions that BloomFilter gives."""
    file = broker_store("v4-sql92-rebuilt").root / "config" / "consumerFilter.json"
    table = json.loads(file.read_text(encoding="utf-8"))["filterDataByTopic"]
    filters = load(file)
    assert filters.topics == table.keys() == {"SqlTopic", "SqlTopic2"}
    written = [data for topic in table.values() for data in topic["groupFilterData"].values()]
    assert len(written) == 30
    for data in written:
        text = f"{data['consumerGroup']}#{data['topic']}"
        assert data["bloomFilterData"] == {"bitNum": BLOOM.m, "bitPos": list(BLOOM.positions(text))}
    properties = {"a": "5", "s": "it's", "f": "false", "KEYS": "k"}
    for topic in table:
        expected = [
            position
            for data in written
            if data["topic"] == topic
            and compile_expression(data["expression"], contains=False).evaluate(properties) is True
            for position in data["bloomFilterData"]["bitPos"]
        ]
        assert len(expected) > 10
        assert filters.bit_map(topic, properties) == bits(expected, 112)


@pytest.mark.parametrize(
    "bad",
    [
        group("a >"),
        group("a contains b"),
        group("a = 1", expressionType="TAG"),
        group("a = 1", expressionType=None),
        group(None),
    ],
)
def test_what_does_not_compile_is_skipped(path: Path, bad: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    filters = load(write(path, {"good": group("a = 1", [0, 1, 2]), "bad": bad}), contains=True)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'bad' filters 'T'" in caplog.text
    assert filters.bit_map("T", {"a": "1", "b": "1"}) == bits([0, 1, 2], 112)
    alone = load(write(path, {"bad": bad}), contains=True)
    assert alone.bit_map("T", {"a": "1"}) == ZERO  # the topic has a filter, and no subscription matches


@pytest.mark.parametrize(
    "bloom_data",
    [
        None,
        {"bitNum": 96, "bitPos": [1, 2, 3]},
        {"bitNum": 112, "bitPos": [1, 2]},
        {"bitNum": 112, "bitPos": None},
        {"bitNum": 112},
        {"bitPos": [1, 2, 3]},
    ],
)
def test_bloom_data_of_other_settings_drop_all(path: Path, bloom_data: Any, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = group("a = 1", [0, 1, 2]), group("a = 1", bloomFilterData=bloom_data)
    filters = load(write(path, {"good": good, "bad": bad}))
    assert filters.topics == frozenset()
    assert filters.bit_map("T", {"a": "1"}) is None
    assert "maxErrorRateOfBloomFilter or expectConsumerNumUseFilter was changed" in caplog.text


def test_other_settings_of_the_bloom_filter(path: Path) -> None:
    bloom = BloomFilter(10, 20)
    data = {"bitNum": 96, "bitPos": [0, 8, 9, 95]}
    write(path, {"g": group("a = 1", bloomFilterData=data)})
    filters = load_consumer_filters(path, bloom, contains=False)
    assert filters.bit_map("T", {"a": "1"}) == bits([0, 8, 9, 95], 96)


@pytest.mark.parametrize("text", ["{}", '{"filterDataByTopic":{}}', '{"filterDataByTopic":null}'])
def test_nobody_filters_anything(path: Path, text: str) -> None:
    path.write_text(text)
    assert load(path).topics == frozenset()


def test_a_topic_that_everybody_left(path: Path) -> None:
    filters = load(write(path, {}))
    assert filters.bit_map("T", {}) is None


def test_the_backup_stands_in(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backup = path.with_name("consumerFilter.json.bak")
    assert load(path).topics == frozenset()  # neither file exists: a broker before its first save
    write(backup, {"g": group("a = 1")}, topic="Backup")
    assert load(path).topics == {"Backup"}
    path.write_text("")
    assert load(path).topics == {"Backup"}
    assert not caplog.records
    path.write_text('{"filterDataByTopic"')
    assert load(path).topics == {"Backup"}
    assert str(path) in caplog.text
    write(path, {"g": group("a = 1")})
    assert load(path).topics == {"T"}


DAMAGED = [
    "x",
    "[]",
    '{"filterDataByTopic":[]}',
    '{"filterDataByTopic":{"T":null}}',
    '{"filterDataByTopic":{"T":{"groupFilterData":null}}}',
    '{"filterDataByTopic":{"T":{"groupFilterData":{"g":null}}}}',
    '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":[]}}}}}',
    '{"filterDataByTopic":{"T":{"groupFilterData":{"g":{"bloomFilterData":{"bitNum":112,"bitPos":["x",1,2]}}}}}}',
    "[" * 100_000,
]


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[-30:])
def test_a_damaged_file_without_a_backup(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(StoreError, match=r"consumerFilter\.json does not hold a broker's consumer filters .* copy it"):
        load(path)
    path.with_name("consumerFilter.json.bak").write_text(text)
    with pytest.raises(StoreError, match=r"consumerFilter\.json\.bak does not hold"):
        load(path)


def test_a_directory_in_the_file_s_place(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*consumerFilter\.json: Is a directory"):
        load(path)
