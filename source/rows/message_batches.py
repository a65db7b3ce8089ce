"""From decoded records to Arrow: the rows of `rows=messages`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from reput.source.kernels import record_kernels as rk
from reput.source.kernels.batch_decoder import RecordColumns
from reput.source.kernels.byte_kernels import WORD
from reput.source.log.offset_range import OffsetRange
from reput.source.options import SourceOptions
from reput.source.rows import column_kernels as ck
from reput.source.rows.message_rows import ENCODED, MessageRows
from reput.source.rows.message_schema import MESSAGE_SCHEMA, message_schema
from reput.source.segments.range_reader import DecodeOptions, read_windows


def read_messages(span: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Rows of one range in batches of bounded size."""
    decode = DecodeOptions(options.check_crc == "all", options.delays_ms, options.on_damage)
    for window in read_windows(span.file, span.start, span.end, decode):
        batch = message_batch(window.columns)
        if options.include_body:
            batch = _with_body(batch, window.columns)
        yield batch


def message_batch(columns: RecordColumns) -> pa.RecordBatch:
    """The records as rows of ``message_schema.MESSAGE_SCHEMA``; copies what it needs of the buffer."""
    rows = MessageRows()
    rows.add(columns)
    batch = rows.batch()
    arrays = [_decoded(batch[name]) if name in ENCODED else batch[name] for name in MESSAGE_SCHEMA.names]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGE_SCHEMA)


def _decoded(array: pa.Array) -> pa.Array:
    if not isinstance(array, pa.MapArray):
        return array.dictionary_decode()
    kind = MESSAGE_SCHEMA.field("properties").type
    return pa.MapArray.from_arrays(array.offsets, array.keys.dictionary_decode(), array.items, type=kind)


def _with_body(batch: pa.RecordBatch, columns: RecordColumns) -> pa.RecordBatch:
    starts, sizes = (np.ascontiguousarray(columns.parts[:, part]) for part in (rk.BODY, rk.BODY_SIZE))
    ends, out = np.zeros(len(columns) + 1, np.int32), np.empty(int(sizes.sum()) + WORD, np.uint8)
    ck.gather(columns.data, starts, sizes, ends, out)
    body = pa.Array.from_buffers(pa.binary(), len(columns), [None, pa.py_buffer(ends), pa.py_buffer(out)])
    return pa.RecordBatch.from_arrays([*batch.columns, body], schema=message_schema(include_body=True))
