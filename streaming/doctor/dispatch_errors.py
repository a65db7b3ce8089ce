"""Records at which the broker's own dispatch ends in an exception, though they are whole.

``ConsumeQueue#multiDispatchLmqQueue`` and ``ReputMessageService#notifyMessageArrive4MultiQueue`` parse the offsets in
further queues, and 4.9.3's ``checkMultiDispatchQueue`` takes it that each record has properties. Recovery ends with
such an exception; a replay tries the record again, for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reput.sinks.dispatch.multi_dispatch import bad_offset
from reput.sinks.formats.consume_queue import is_queued
from reput.source.arrays import Bools
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.record.java_string import decode_utf8
from reput.source.record.message_properties import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
)
from reput.source.segments.broker_check import BrokerRecord, GoodRecords
from reput.source.segments.mapped_file_queue import MappedFile
from reput.source.segments.range_reader import DecodeOptions, scan_windows
from reput.streaming.doctor.start_settings import StartSettings

_RETRY_TOPIC = "%RETRY%"


@dataclass(frozen=True)
class DispatchError:
    """A record that the broker cannot dispatch: where it begins, what it throws at, and whether it has an entry.

    `before` is how many records were looked at before it.
    """

    offset: int
    why: str
    is_queued: bool
    before: int = 0


def first_error(
    file: MappedFile, found: GoodRecords, start: int, settings: StartSettings, *, in_replay: bool
) -> DispatchError | None:
    """The first of some records of a segment, from the offset `start` on, at which the broker's dispatch fails."""
    wants_properties = _wants_properties(settings)
    looks = settings.needs.multi_dispatch is not None or (in_replay and settings.notifies)
    if not ((found.names_queues and looks) or (found.lacks_properties and wants_properties)):
        return None
    delays, before = np.array(settings.rules.delays_ms, np.int64), 0
    for window in scan_windows(file, start, found.end, DecodeOptions()):
        columns = window.decode(delays).columns
        has_both = (columns.spans[:, [pk.MULTI_DISPATCH, pk.MULTI_QUEUE_OFFSET], 1] > 0).all(axis=1)
        lacks = _lacks_properties(columns) if wants_properties else np.zeros(len(columns), bool)
        for row in np.flatnonzero(has_both | lacks).tolist():
            names, offsets = (
                _text(columns, columns.spans[row, span]) for span in (pk.MULTI_DISPATCH, pk.MULTI_QUEUE_OFFSET)
            )
            topic = _text(columns, columns.parts[row, [rk.TOPIC, rk.TOPIC_SIZE]])
            queued = is_queued(int(columns.sys_flag[row]))
            why = _why(settings, topic, None if lacks[row] else (names, offsets), queued=queued, in_replay=in_replay)
            if why is not None:
                return DispatchError(window.offset_of(row), why, queued, before + row)
        before += len(columns)
    return None


def error_of(record: BrokerRecord, settings: StartSettings, *, in_replay: bool) -> DispatchError | None:
    """Why the broker cannot dispatch a record; None if it can."""
    further = None
    if record.properties is not None:
        get = record.properties.get
        further = get(PROPERTY_INNER_MULTI_DISPATCH, ""), get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "")
    queued = is_queued(record.sys_flag)
    why = _why(settings, record.topic, further, queued=queued, in_replay=in_replay)
    return None if why is None else DispatchError(record.physical_offset, why, queued)


def _why(
    settings: StartSettings, topic: str, further: tuple[str, str] | None, *, queued: bool, in_replay: bool
) -> str | None:
    """What the broker throws at; `further` are the two properties, None for a record without any property."""
    if further is None:
        return "it has no properties" if queued and _wants_properties(settings) else None
    bad = None
    if queued and settings.needs.multi_dispatch is not None:
        bad = settings.needs.multi_dispatch.fails_at(topic, *further)
    if bad is None and in_replay and settings.notifies and not (settings.is_v5 and topic.startswith(_RETRY_TOPIC)):
        bad = bad_offset(*further)
    return None if bad is None else f"{PROPERTY_INNER_MULTI_QUEUE_OFFSET} holds {bad!r}, which is no number"


def _wants_properties(settings: StartSettings) -> bool:
    return settings.needs.multi_dispatch is not None and not settings.is_v5


def _lacks_properties(columns: RecordColumns) -> Bools:
    lacks: Bools = columns.parts[:, rk.PROPERTIES_SIZE] <= 0
    return lacks


def _text(columns: RecordColumns, span: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
    at, size = span.tolist()
    return decode_utf8(columns.data[at : at + max(0, size)].tobytes())
