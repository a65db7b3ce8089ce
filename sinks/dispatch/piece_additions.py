"""What few stores need of a record beside its entry and keys, made of decoded columns: further queues and ext units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reput.sinks.dispatch.multi_dispatch import MultiDispatch
from reput.sinks.filter.consumer_filter import ConsumerFilters
from reput.source.arrays import Bools, Int32s, Int64s
from reput.source.kernels import property_kernels as pk
from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.record.java_string import decode_utf8
from reput.source.record.message_properties import parse_properties

# In place of a bitmap's size: the topic has no filter; the entry gets no ConsumeQueueExt unit at all.
NO_BIT_MAP = -1
NO_EXT_UNIT = -2


def further_queues(
    columns: RecordColumns, wanted: Bools, rules: MultiDispatch
) -> Iterator[tuple[int, bytes, int, int]]:
    """The queues that multi dispatch adds to `wanted` records (bool[n]): (row, topic, queue id, queue offset)."""
    wanted = wanted & (columns.spans[:, pk.MULTI_DISPATCH, 1] > 0) & (columns.spans[:, pk.MULTI_QUEUE_OFFSET, 1] > 0)
    physical_offsets = columns.physical_offset
    for row in np.flatnonzero(wanted).tolist():
        topic = _text(columns, columns.parts[row, [rk.TOPIC, rk.TOPIC_SIZE]])
        names = _text(columns, columns.spans[row, pk.MULTI_DISPATCH])
        offsets = _text(columns, columns.spans[row, pk.MULTI_QUEUE_OFFSET])
        for target in rules.queues(topic, int(columns.queue_id[row]), names, offsets, int(physical_offsets[row])):
            yield row, *target


def ext_units(
    columns: RecordColumns, rows: Int64s, is_own: Bools, filters: ConsumerFilters | None
) -> tuple[Int64s, Int32s, np.ndarray[Any, np.dtype[np.object_]]]:
    """What the ext units of the entries of `rows` hold: store timestamps (ms), sizes of bitmaps, bitmaps.

    Entries of further queues, those that are not `is_own` (bool[n]), get no unit.
    """
    sizes = np.where(is_own, NO_BIT_MAP, NO_EXT_UNIT).astype(np.int32)
    bit_maps = np.full(len(rows), b"", object)
    topics = filters.topics if filters is not None else ()
    encoded = {topic.encode("utf-8", "surrogatepass") for topic in topics}
    for at in np.flatnonzero(is_own).tolist() if encoded else ():
        parts = columns.parts[rows[at]]
        topic = _bytes(columns, parts[[rk.TOPIC, rk.TOPIC_SIZE]])
        if filters is None or topic not in encoded:
            continue
        properties = parse_properties(_text(columns, parts[[rk.PROPERTIES, rk.PROPERTIES_SIZE]]))
        bit_map = filters.bit_map(decode_utf8(topic), properties)
        if bit_map is not None:
            sizes[at], bit_maps[at] = len(bit_map), bit_map
    return columns.store_timestamp[rows], sizes, bit_maps


def _bytes(columns: RecordColumns, span: Any) -> bytes:
    at, size = span.tolist()
    return columns.data[at : at + size].tobytes()


def _text(columns: RecordColumns, span: Any) -> str:
    return decode_utf8(_bytes(columns, span))
