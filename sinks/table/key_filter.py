"""Which data files of a table may have a message with a key: a Bloom filter beside each file.

The filter of ``NAME`` is ``_keys/NAME.bloom`` below the table's root, where VACUUM leaves it alone. It is a split-block
Bloom filter as Parquet's specification has it, header included, over all values of `keys` and `uniq_key`: a look-up
reads 32 bytes of it instead of the data file. It may be missing: then the file itself must be searched.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from reput.sinks.table.own_files import keys_file
from reput.sinks.table.storage import TableStorage

#: The columns whose values are in a filter.
KEY_COLUMNS = ("uniq_key", "keys")
# One file in a thousand is searched in vain. A bitset's size is a power of two: two to four bytes a key.
_FALSE_POSITIVES = 0.001
# With so many keys a filter takes 16 MiB; only files that others merged have more, and these are searched.
_KEYS_MAX = 8 * 1024 * 1024
# Parquet's header in Thrift's compact form: field 1, an i32, is the number of bytes behind the header; fields 2 to 4
# say that these are split blocks, xxHash and uncompressed.
_SIZE_FIELD, _OTHER_FIELDS = b"\x15", bytes.fromhex("1c1c0000" * 3 + "00")
_HEADER_BYTES_MAX = 32
_BLOCK_BYTES = 32
_SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


class KeyFilterWriter:
    """Writes the filters of one table."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage

    def has(self, name: str) -> bool:
        """Whether the data file has a filter."""
        return self._storage.status(keys_file(name)) is not None

    def write(self, name: str, rows: pa.Table) -> None:
        """Write the filter of a data file with these rows, durably; raises OutputError."""
        keys = _keys_of(rows)
        if len(keys) <= _KEYS_MAX:
            self._storage.put(keys_file(name), _filter_of(keys), durable=True)

    def write_from_file(self, name: str) -> None:
        """Write the filter of a data file by reading it; raises OutputError, and OSError if it cannot be read."""
        with self._storage.parquet(name) as file:
            wanted = [column for column in KEY_COLUMNS if column in file.schema_arrow.names]
            if file.metadata.num_rows <= _KEYS_MAX:
                self.write(name, file.read(wanted, use_threads=False))


def _keys_of(rows: pa.Table) -> pa.ChunkedArray:
    chunks = []
    if "uniq_key" in rows.column_names:
        chunks += rows["uniq_key"].cast(pa.string()).drop_null().chunks
    if "keys" in rows.column_names:
        chunks += pc.list_flatten(rows["keys"]).cast(pa.string()).drop_null().chunks
    return pa.chunked_array(chunks, pa.string())


def _filter_of(keys: pa.ChunkedArray) -> bytes:
    # Parquet's own writer hashes and sets the bits; of what it writes only the filter is kept. It skips nulls.
    if not len(keys):
        keys = pa.chunked_array([pa.nulls(1, pa.string())])
    buffer = pa.BufferOutputStream()
    options = {"key": {"ndv": len(keys), "fpp": _FALSE_POSITIVES}}
    pq.write_table(
        pa.table({"key": keys}),
        buffer,
        row_group_size=_KEYS_MAX,
        use_dictionary=False,
        compression="none",
        write_statistics=False,
        store_schema=False,
        bloom_filter_options=options,
    )
    data = buffer.getvalue()
    column = pq.read_metadata(pa.BufferReader(data)).row_group(0).column(0)
    start, size = column.bloom_filter_offset, column.bloom_filter_length
    return bytes(data[start : start + size])


class KeyProbe:
    """Asks filters for one key."""

    def __init__(self, key: str) -> None:
        digest = xxhash.xxh64_intdigest(key.encode())
        self._block_hash, low = digest >> 32, digest & 0xFFFFFFFF
        self._mask = sum(1 << (32 * word + ((low * salt & 0xFFFFFFFF) >> 27)) for word, salt in enumerate(_SALTS))

    def may_be_in(self, storage: TableStorage, name: str) -> bool | None:
        """Whether the data file may have the key; None without a sound filter."""
        with suppress(OSError), storage.open(keys_file(name)) as file:
            return self._ask(file)
        return None

    def _ask(self, file: Any) -> bool | None:
        header = bytes(file.read_at(_HEADER_BYTES_MAX, 0))
        start, bitset_bytes = _bitset(header)
        if bitset_bytes < _BLOCK_BYTES or start + bitset_bytes != file.size():
            return None
        block = self._block_hash * (bitset_bytes // _BLOCK_BYTES) >> 32
        bits = int.from_bytes(bytes(file.read_at(_BLOCK_BYTES, start + block * _BLOCK_BYTES)), "little")
        return bits & self._mask == self._mask


def _bitset(header: bytes) -> tuple[int, int]:
    """Where the bitset begins and how many bytes it has; 0 and 0 if this is no header of such a filter."""
    number = 0
    for at, byte in enumerate(header[1:6]):
        number |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            rest = at + 2
            is_sound = header.startswith(_SIZE_FIELD) and header.startswith(_OTHER_FIELDS, rest)
            return (rest + len(_OTHER_FIELDS), number >> 1) if is_sound else (0, 0)  # zigzag: a positive is doubled
    return 0, 0
