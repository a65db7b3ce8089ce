"""The columns that say what messages are and where they come from: the rules of ``message_origin`` for many rows.

A rule about a topic is asked once for each text of a dictionary, and properties that few messages have are looked up
by the dictionary of names: rows of ordinary messages cost little more than the copying of their topic's number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reput.source.arrays import Int32s, Int64s
from reput.source.record import message_origin as origin
from reput.source.record.message_properties import parse_long
from reput.source.rows.column_builders import TEXT, numbers

# Numbers that need no check of their size.
_PLAIN_NUMBER = "^[0-9]{1,18}$"


class OriginColumns:
    """The columns of one batch, from `topic` and `real_topic` (dictionaries) and all `properties` (a map)."""

    def __init__(self, topic: pa.Array, real_topic: pa.Array, properties: pa.MapArray) -> None:
        self._properties = properties
        self._texts: dict[str, int] = {}
        self._given = topic
        self._topic = self._numbered(topic)
        kinds = self._told(origin.kind_of)
        self._kinds = np.array([origin.KINDS.index(each) for each in kinds] or [0], np.int32)[self._topic]
        self._kinds[self._topic < 0] = origin.KINDS.index(origin.NORMAL)
        timer = self._is_one_of({origin.TIMER})
        if timer.any() and (marks := self._has(origin.PROPERTY_TIMER_DEL_UNIQKEY)) is not None:
            self._kinds[timer & marks] = origin.KINDS.index(origin.RECALL)
        meant, waits = self._topic, self._is_one_of(origin.HAVE_REAL_TOPIC)
        if waits.any():
            meant = np.where(waits, self._numbered(real_topic), meant)
        self._meant: Int32s = meant

    @property
    def kind(self) -> pa.Array:
        """What each message is."""
        return pa.DictionaryArray.from_arrays(numbers(self._kinds), pa.array(origin.KINDS, pa.string()))

    @property
    def consumer_group(self) -> pa.Array:
        """The group that could not consume the message."""
        if not any(self._told(origin.group_of)):
            return self._nulls(TEXT)
        return self._column(self._translated(origin.group_of, self._meant))

    @property
    def origin_topic(self) -> pa.Array:
        """The topic that the message was sent to."""
        codes = self._origins()
        return self._given if codes is self._topic else self._column(codes)

    def _origins(self) -> Int32s:
        """The numbers of the topics that the messages were sent to; those of their own topics where they are these."""
        if self._meant is self._topic and all(origin.sent_topic(text) == text for text in self._texts):
            return self._topic
        found = self._translated(origin.sent_topic, self._meant)
        is_sent_back = np.array([origin.kind_of(text) in origin.SENT_BACK for text in self._texts] + [False])
        sent_back = is_sent_back[self._meant]
        if sent_back.any():
            for name in (origin.PROPERTY_DLQ_ORIGIN_TOPIC, origin.PROPERTY_RETRY_TOPIC):
                if (named := self.property(name)) is not None:
                    codes = self._translated(origin.sent_topic, self._numbered(named.dictionary_encode()))
                    found = np.where(sent_back & (codes >= 0), codes, found)
        return found

    @property
    def origin_msg_id(self) -> pa.Array:
        """The message id from before the message was first sent back."""
        return self._first_of(origin.PROPERTY_ORIGIN_MESSAGE_ID, origin.PROPERTY_DLQ_ORIGIN_MESSAGE_ID)

    def text(self, name: str) -> pa.Array:
        """A property as text that repeats, null without."""
        found = self.property(name)
        return self._nulls(TEXT) if found is None else found.dictionary_encode()

    @property
    def producer_group(self) -> pa.Array:
        """The producer's group; null where a proxy stored the topic in its place."""
        groups = self.text(origin.PROPERTY_PRODUCER_GROUP)
        marks = [each for each in map(self._has, origin.BY_PROXY) if each is not None]
        if groups.null_count == len(groups) or not marks:
            return groups
        codes = self._numbered(groups)
        return self._column(np.where(np.any(marks, axis=0) & (codes == self._origins()), -1, codes))

    def transaction_id(self, uniq_key: pa.Array, has_type: Any) -> pa.Array:
        """The transaction's id; `has_type` is whether sysFlag names a transaction's type."""
        ends = self._is_one_of({origin.HALF_OP})
        wanted = (has_type | self._is_one_of(origin.OF_TRANSACTION)) & ~ends
        named = self.property(origin.PROPERTY_TRANSACTION_ID) if (wanted | ends).any() else None
        if named is None and not wanted.any():
            return self._nulls(pa.string())
        nothing = pa.scalar(None, pa.string())
        found = uniq_key if named is None else pc.coalesce(named, uniq_key)
        of_ends = nothing if named is None else named
        return pc.if_else(pa.array(wanted), found, pc.if_else(pa.array(ends), of_ends, nothing))

    def deliver_ms(
        self, tags_code: Int64s, delay_level: pa.Array, store_timestamp: Int64s
    ) -> tuple[Int64s, Any] | None:
        """When messages that wait are to be delivered, in milliseconds, and for which this is known; None for none."""
        if not self._is_one_of({origin.DELAYED, origin.TIMER}).any():
            return None
        delayed, timer = (self._is_one_of({kind}) for kind in (origin.DELAYED, origin.TIMER))
        known = delayed & pc.fill_null(pc.greater(delay_level, 0), fill_value=False).to_numpy(zero_copy_only=False)
        times = np.where(known, tags_code, 0)
        if timer.any() and (named := self.property(origin.PROPERTY_TIMER_OUT_MS)) is not None:
            out = _longs(named)
            known |= timer & out.is_valid().to_numpy(zero_copy_only=False)
            outs = pc.fill_null(out, 0).to_numpy()
            asked = np.clip(self._asked_ms(outs, store_timestamp), outs, _latest_ms(outs))
            times = np.where(timer & known, asked, times)
        return times, known

    def _asked_ms(self, outs: Int64s, store_timestamp: Int64s) -> Int64s:
        """When producers wanted timer messages, in milliseconds; `outs` where no property says so."""
        asked = outs
        if (named := self.property(origin.PROPERTY_TIMER_DELIVER_MS)) is not None:
            asked = pc.coalesce(_longs(named), numbers(outs)).to_numpy(zero_copy_only=False)
        for name, unit_ms in reversed(origin.TIMER_DELAYS):
            if (named := self.property(name)) is not None:
                delays = _longs(named)
                delay = pc.fill_null(delays, origin.DELAY_MAX).to_numpy(zero_copy_only=False)
                is_taken = (np.abs(delay) < origin.DELAY_MAX) & (np.abs(store_timestamp) < origin.STORE_TIMESTAMP_MAX)
                told = np.where(is_taken, store_timestamp + np.where(is_taken, delay, 0) * unit_ms, outs)
                asked = np.where(named.is_valid().to_numpy(zero_copy_only=False), told, asked)
        return asked

    def _has(self, name: str) -> Any | None:
        """Which messages have the property; None if no message has it."""
        found = self.property(name)
        return None if found is None else found.is_valid().to_numpy(zero_copy_only=False)

    def property(self, name: str) -> pa.Array | None:
        """The property of each message, null without; None if no message has it."""
        names, row_ends = self._properties.keys, self._properties.offsets.to_numpy()
        number = pc.index(names.dictionary, name).as_py()
        items = np.flatnonzero(names.indices.to_numpy() == number) if number >= 0 else np.empty(0, np.int64)
        if not len(items):
            return None
        rows = np.searchsorted(row_ends, items, "right") - 1
        which, valid = np.zeros(len(self._topic), np.int64), np.zeros(len(self._topic), bool)
        which[rows], valid[rows] = items, True
        return self._properties.items.take(numbers(which, valid))

    def _first_of(self, *names: str) -> pa.Array:
        found = [each for each in map(self.property, names) if each is not None]
        return pc.coalesce(*found) if found else self._nulls(pa.string())

    def _nulls(self, kind: pa.DataType) -> pa.Array:
        return pa.nulls(len(self._topic), kind)

    def _is_one_of(self, kinds: Any) -> Any:
        return np.array([kind in kinds for kind in origin.KINDS])[self._kinds]

    def _numbered(self, texts: pa.Array) -> Int32s:
        """The number of each text of a dictionary array among all texts, -1 for null."""
        known = [self._number(text) for text in texts.dictionary.to_pylist()]
        codes: Int32s = (pc.fill_null(texts.indices, -1) if texts.null_count else texts.indices).to_numpy()
        return codes if known == list(range(len(known))) else np.array([*known, -1], np.int32)[codes]

    def _number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _told(self, rule: Callable[[str], Any]) -> Sequence[Any]:
        return [rule(text) for text in self._texts]

    def _translated(self, rule: Callable[[str], str | None], codes: Int32s) -> Int32s:
        """The numbers of what `rule` makes of the texts with these numbers."""
        told = self._told(rule)
        return np.array([-1 if text is None else self._number(text) for text in told] + [-1], np.int32)[codes]

    def _column(self, codes: Int32s) -> pa.Array:
        """The texts of these numbers, null for -1; the dictionary has those alone that are there."""
        used = np.zeros(len(self._texts) + 1, bool)
        used[codes] = True
        places = np.append(np.cumsum(used[:-1]) - 1, -1).astype(np.int32)
        texts = [text for text, is_used in zip(self._texts, used.tolist(), strict=False) if is_used]
        if not texts:
            return self._nulls(TEXT)
        indices = places[codes]
        return pa.DictionaryArray.from_arrays(numbers(np.maximum(indices, 0), codes >= 0), pa.array(texts, pa.string()))


def first_keys(keys: pa.ListArray) -> pa.Array:
    """The first key of each row, null without."""
    ends = keys.offsets.to_numpy()
    valid = ends[1:] > ends[:-1]
    if len(keys.values) == len(keys) and valid.all():
        return keys.values
    return keys.values.take(numbers(np.where(valid, ends[:-1], 0), valid))


def _latest_ms(outs: Int64s) -> Int64s:
    """``origin.latest_ms`` of each number."""
    last = np.iinfo(np.int64).max - origin.TIMER_PRECISION_MS
    latest: Int64s = np.minimum(outs, last) + origin.TIMER_PRECISION_MS
    return latest


def _longs(texts: pa.Array) -> pa.Array:
    """Each text as the long that Java reads, null where it reads none."""
    is_plain = pc.match_substring_regex(texts, _PLAIN_NUMBER)
    if pc.all(is_plain).as_py() is not False:
        return texts.cast(pa.int64())
    return pa.array([None if text is None else parse_long(text) for text in texts.to_pylist()], pa.int64())
