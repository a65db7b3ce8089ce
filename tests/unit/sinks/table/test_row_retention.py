"""How long rows are kept: rules as text, which rule a topic has, and on which day a row has expired."""

from __future__ import annotations

from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reput.sinks.table.retention import ALL_FOREVER, DAY_MS, NEVER_MS, RowRetention
from reput.sinks.table.upkeep import ExpiredRows

MIDNIGHT = datetime(2026, 3, 1, tzinfo=timezone.utc)


def at(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize(
    "text",
    ["forever", "*=7d", "%RETRY%*=7d, orders-*=forever, *=365d", "a=1d", "a|b=100000d", "*-x-*=3d"],
)
def test_rules_read_as_they_are_written(text: str) -> None:
    assert str(RowRetention.parse(text)) == text
    assert RowRetention.parse(text.replace("=", " = ")) == RowRetention.parse(text)


def test_forever_is_no_rule() -> None:
    assert RowRetention.parse(" forever ") == ALL_FOREVER == RowRetention()
    assert ALL_FOREVER.days_min is None


@pytest.mark.parametrize(
    "text",
    ["", "7d", "*", "*=", "*=7", "*=0d", "*=100001d", "*=-1d", "=7d", "a b=7d", "*=7d,", "*=7d;a=1d", "\x1b*=7d"],
)
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        RowRetention.parse(text)


@pytest.mark.parametrize(
    ("topic", "days"),
    [
        ("audit", None),
        ("audit-eu", 30),
        ("%RETRY%g", 7),
        ("XRETRYXg", 30),
        ("%RETRY%", 7),
        ("a.c", 9),
        ("abc", 30),
        ("line\nbreak", 30),
    ],
)
def test_the_first_rule_that_matches(topic: str, days: int | None) -> None:
    """Only * stands for something else, and a topic matches as a whole."""
    assert RowRetention.parse("audit=forever, %RETRY%*=7d, a.c=9d, *=30d").days_of(topic) == days


def test_a_topic_without_a_rule_is_kept() -> None:
    assert RowRetention.parse("a=7d").days_of("b") is None


@pytest.mark.parametrize(
    ("now", "stored", "is_expired"),
    [
        ("2026-03-09T00:00:00", "2026-03-01T23:59:59.999", True),
        ("2026-03-08T23:59:59", "2026-03-01T00:00:00", False),
        ("2026-03-09T00:00:00", "2026-03-02T00:00:00", False),
        ("2026-03-09T23:59:59", "2026-03-02T00:00:00", False),
        ("2026-03-10T00:00:00", "2026-03-02T00:00:00", True),
    ],
)
def test_a_row_stays_for_whole_days(now: str, stored: str, is_expired: bool) -> None:
    """Seven days: the first of March is over at its end, and its rows go seven days after that."""
    limits = RowRetention.parse("*=7d").limits(at(now))
    times = np.array([int(at(stored) * 1000)])
    assert limits.mask(np.array([0]), ["t"], times).tolist() == [is_expired]


RULES = st.sampled_from(["*=1d", "a=3d, *=forever", "a=forever, *=2d", "a*=5d, b=1d", "forever"])


@given(
    RULES,
    st.lists(st.tuples(st.sampled_from(["a", "ab", "b", "c"]), st.integers(-5 * DAY_MS, 20 * DAY_MS)), max_size=8),
    st.integers(0, 20 * DAY_MS),
)
def test_a_file_is_due_when_a_row_has_expired(rules: str, rows: list[tuple[str, int]], now_ms: int) -> None:
    """When the first row expires, and which have, agree at any time."""
    limits = RowRetention.parse(rules).limits(now_ms / 1000)
    topics = [topic for topic, _ in rows]
    times = np.array([time for _, time in rows], np.int64)
    mask = limits.mask(np.arange(len(rows)), topics, times)
    oldest: dict[str, int] = {}
    for topic, time in rows:
        oldest[topic] = min(time, oldest.get(topic, NEVER_MS))
    first_ms = limits.first_expiry_ms(oldest)
    assert mask.any() == (first_ms <= limits.today_ms)
    assert first_ms % DAY_MS == 0 or first_ms == NEVER_MS


def test_which_rows_of_a_file() -> None:
    """Those of other brokers, without a topic or a store time, stay; dictionaries and other units work, too."""
    limits = RowRetention.parse("a=1d").limits(at("2026-03-09T12:00:00"))
    old, new = datetime(2026, 3, 1, tzinfo=timezone.utc), datetime(2026, 3, 9, tzinfo=timezone.utc)
    brokers = ["b", "b", "b", "x", None, "b", "b"]
    topics = ["a", "a", "z", "a", "a", None, "a"]
    times = [old, new, old, old, old, old, None]
    expected = [True, *[False] * 6]
    for kind in (pa.string(), pa.dictionary(pa.int32(), pa.string())):
        for unit in ("us", "ms", "ns"):
            columns = [pa.array(brokers), pa.array(topics).cast(kind), pa.array(times, pa.timestamp(unit, "UTC"))]
            rows = pa.RecordBatch.from_arrays(columns, names=["broker", "topic", "store_time"])
            assert ExpiredRows("b", limits).mask(rows).tolist() == expected
