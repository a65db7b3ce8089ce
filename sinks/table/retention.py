"""The number of days for which the table keeps the rows of a topic, and the store time before which they have expired.

Days are days of UTC: a row of a day stays for a number of whole days after it. So rows expire at midnight, and a file
of one day loses a topic's rows all at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from reput.source.arrays import Bools, Int64s

FOREVER = "forever"
DAYS_MAX = 100_000
DAY_MS = 86_400_000
_RULE = re.compile(rf"([^\s,=]+)\s*=\s*(?:([0-9]{{1,6}})d|{FOREVER})")
#: Later than any store time.
NEVER_MS = 2**63 - 1
#: The number for a store time that is null in the table: one outside the years 1 to 9999.
NO_TIME = -(2**63)


@dataclass(frozen=True)
class RetentionRule:
    """Topics that match `pattern`, in which ``*`` matches any text, are kept for `days` days; None: for ever."""

    pattern: str
    days: int | None

    def matches(self, topic: str) -> bool:
        """Whether the rule is for the topic."""
        return re.fullmatch(".*".join(map(re.escape, self.pattern.split("*"))), topic, re.DOTALL) is not None

    def like(self) -> str:
        """The pattern for SQL's LIKE with ``!`` as its escape."""
        return re.sub(r"([!%_])", r"!\1", self.pattern).replace("*", "%")

    def __str__(self) -> str:
        """The rule in the form that `RowRetention.parse` reads."""
        return f"{self.pattern}={FOREVER if self.days is None else f'{self.days}d'}"


@dataclass(frozen=True)
class RowRetention:
    """Rules by topic, of which the first that matches counts; topics without one are kept for ever."""

    rules: tuple[RetentionRule, ...] = ()

    @classmethod
    def parse(cls, text: str) -> RowRetention:
        """Read ``PATTERN=DAYSd, PATTERN=forever, ...``, or ``forever`` for all topics; raises ValueError."""
        if text.strip() == FOREVER:
            return cls()
        rules = []
        for each in text.split(","):
            match = _RULE.fullmatch(each.strip())
            days = int(match[2]) if match and match[2] else None
            if match is None or not match[1].isprintable() or (days is not None and not 1 <= days <= DAYS_MAX):
                raise ValueError(text)
            rules.append(RetentionRule(match[1], days))
        return cls(tuple(rules))

    def __str__(self) -> str:
        """The rules in the form that `parse` reads."""
        return ", ".join(map(str, self.rules)) or FOREVER

    @property
    def days_min(self) -> int | None:
        """The fewest days that a topic is kept; None if nothing ever expires."""
        return min((rule.days for rule in self.rules if rule.days is not None), default=None)

    def days_of(self, topic: str) -> int | None:
        """The number of days for which rows of the topic are kept; None: for ever."""
        return next((rule.days for rule in self.rules if rule.matches(topic)), None)

    def limits(self, now_s: float) -> ExpiryLimits:
        """The limits of expired rows at a time in seconds since 1970."""
        today = int(now_s * 1000) // DAY_MS * DAY_MS
        return ExpiryLimits(self, today)


def numbered(topics: pa.Array) -> tuple[Int64s, list[str]]:
    """A number for each row's topic, -1 for a row without one, and the topics by number."""
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    codes: Int64s = pc.fill_null(topics.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return codes, topics.dictionary.to_pylist()


def store_times_ms(times: pa.Array) -> Int64s:
    """Times in milliseconds since 1970, rounded down; `NO_TIME` for null."""
    micros = times.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    found: Int64s = pc.fill_null(micros, NO_TIME).to_numpy(zero_copy_only=False)
    return np.where(found == NO_TIME, found, found // 1000)


#: Nothing expires.
ALL_FOREVER = RowRetention()


@dataclass(frozen=True)
class ExpiryLimits:
    """The limits of expired rows by rules on one day, which begins at `today_ms`, in milliseconds since 1970 UTC."""

    retention: RowRetention
    today_ms: int
    _known: dict[str, int | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def latest_ms(self) -> int | None:
        """The store time from which no row of any topic has expired; None if nothing ever expires."""
        days = self.retention.days_min
        return None if days is None else self.today_ms - days * DAY_MS

    def limit_ms(self, topic: str) -> int | None:
        """The store time before which rows of the topic have expired; None if they never do."""
        if topic not in self._known:
            days = self.retention.days_of(topic)
            self._known[topic] = None if days is None else self.today_ms - days * DAY_MS
        return self._known[topic]

    def mask(self, codes: npt.NDArray[Any], topics: Sequence[str], store_times_ms: Int64s) -> Bools:
        """Which rows have expired, with topics in the form of `numbered`.

        A row whose store time is `NO_TIME` never expires, nor does one without a topic.
        """
        limits = [self.limit_ms(topic) for topic in topics]
        least = np.array([-(2**63) if limit is None else limit for limit in limits] + [-(2**63)], np.int64)
        mask: Bools = (store_times_ms < least[codes]) & (store_times_ms != NO_TIME)
        return mask

    def first_expiry_ms(self, oldest_ms: Mapping[str, int]) -> int:
        """The time when the first row expires, or did, by each topic's oldest store time; `NEVER_MS` if none does."""
        days = {topic: self.retention.days_of(topic) for topic in oldest_ms}
        ends = [expiry_ms(oldest_ms[topic], kept) for topic, kept in days.items() if kept is not None]
        return min(ends, default=NEVER_MS)

    def condition(self) -> str:
        """The condition of `mask` in Spark's SQL, about the columns `topic` and `store_time`; never null."""
        cases = []
        for rule in self.retention.rules:
            days, like = rule.days, rule.like().replace("\\", "\\\\").replace("'", "\\'")
            limit_ms = None if days is None else self.today_ms - days * DAY_MS
            then = "false" if limit_ms is None else f"store_time < timestamp_millis({limit_ms})"
            cases.append(f"WHEN topic LIKE '{like}' ESCAPE '!' THEN {then}")
        return f"coalesce(CASE {' '.join(cases)} ELSE false END, false)" if cases else "false"


@dataclass
class Expired:
    """The number of expired rows, and of files that had them."""

    rows: int = 0
    files: int = 0


def expiry_ms(store_time_ms: int, days: int) -> int:
    """The time when a row that is kept for this number of days expires: the beginning of a day."""
    return (store_time_ms // DAY_MS + days + 1) * DAY_MS
