"""Make a big, valid commitlog fast.

    python tests/benchmarks/make_log.py --store DIR --messages 3000000 --body-bytes 380 --queues 64 --topics 8

A block of template records repeats through the log; numpy patches what differs from record to record
(queue id, queue offset, physical offset, both timestamps, keys, unique key) for all repeats of a template
at once. Writes ``DIR/commitlog`` and ``DIR/broker.conf``. ``--queues`` counts the queues of all topics.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC_V1 = 0xDAA320A7
MAGIC_BLANK = 0xCBD43194
BLANK_BYTES = 8

BLOCK_RECORDS_MAX = 512
BUFFER_BYTES_MAX = 8 << 20
TOPICS_MAX = 100

DIGITS = 12
UNIQ_KEY_PREFIX = "7F0000010000AABBCCDD"
TAGS = 6
STORE_TIMESTAMP_START = 1_700_000_000_000

PATCHED_HEAD = np.dtype([("queue_id", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"), ("physical", ">i8")])
PATCHED_HEAD_AT = 12
BORN_TIMESTAMP_AT = 40
BORN_HOST_AT = 48


@dataclass(frozen=True)
class Shape:
    """The shape of a log.

    `body_bytes` is a mean: bodies vary by a quarter to either side. `us_a_message` are the microseconds from one store
    timestamp, which is rounded down to milliseconds, to the next.
    """

    messages: int
    body_bytes: int
    queues: int
    topics: int
    keys: int
    seed: int
    mapped_file_size: int
    ipv6: bool
    non_ascii: bool
    us_a_message: int = 50

    def __post_init__(self) -> None:
        limits = {"messages": (1, 10**9), "body_bytes": (100, 65_536), "queues": (1, 100_000)}
        for name, (least, most) in (limits | {"keys": (0, 10), "topics": (1, min(self.queues, TOPICS_MAX))}).items():
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}, not in {least}..{most}")


@dataclass(frozen=True)
class Template:
    """One record and where its patched fields are: head, born and store time, unique key, keys."""

    record: bytes
    topic_number: int
    patched_at: list[int]


def host(is_v6: bool, port: int, seed: int) -> bytes:
    """Address and port as a record holds them."""
    address = bytes.fromhex("fd00") + bytes(12) + seed.to_bytes(2, "big")
    return (address if is_v6 else bytes([10, 0, *seed.to_bytes(2, "big")])) + struct.pack(">i", port)


def make_template(shape: Shape, number: int, rng: random.Random) -> Template:
    """Draw one record: topic, tags, hosts, body."""
    topic_number = rng.randrange(shape.topics)
    wide = shape.non_ascii and number % 2 == 0
    born_v6, store_v6 = shape.ipv6 and number % 3 > 0, shape.ipv6 and number % 3 > 1
    key_prefix = "订单😀" if wide else "order"
    keys = " ".join(f"{key_prefix}{'0' * DIGITS}" for _ in range(shape.keys))
    tags = f"{'标签' if wide else 'Tag'}{rng.randrange(TAGS)}"
    properties = f"KEYS\x01{keys}\x02" if keys else ""
    properties += f"UNIQ_KEY\x01{UNIQ_KEY_PREFIX}{'0' * DIGITS}\x02TAGS\x01{tags}"
    property_bytes = properties.encode()
    topic = f"Bench{topic_number:04d}".encode()
    body = rng.randbytes(shape.body_bytes + rng.randint(-shape.body_bytes // 4, shape.body_bytes // 4))
    born = host(born_v6, 40_000 + number, number)
    head = struct.pack(">iqqiq", 0, 0, 0, 0x10 * born_v6 + 0x20 * store_v6, 0) + born
    tail = bytes(8) + host(store_v6, 10_911, 1) + struct.pack(">iqi", 0, 0, len(body)) + body
    tail += struct.pack(">b", len(topic)) + topic
    tail += struct.pack(">h", len(property_bytes)) + property_bytes
    total_size = 16 + len(head) + len(tail)
    start = struct.pack(">iIIi", total_size, MAGIC_V1, zlib.crc32(body) & 0x7FFFFFFF, 0)
    properties_at = total_size - len(property_bytes)
    uniq_key_at = properties_at + property_bytes.index(UNIQ_KEY_PREFIX.encode()) + len(UNIQ_KEY_PREFIX)
    patched_at = [PATCHED_HEAD_AT, BORN_TIMESTAMP_AT, BORN_HOST_AT + len(born), uniq_key_at]
    prefix_bytes = len(key_prefix.encode())
    key_stride = prefix_bytes + DIGITS + len(" ")
    patched_at += [properties_at + len("KEYS\x01") + prefix_bytes + i * key_stride for i in range(shape.keys)]
    return Template(start + head + tail, topic_number, patched_at)


def make_templates(shape: Shape) -> list[Template]:
    """The block of records that repeats."""
    rng = random.Random(shape.seed)
    templates = [make_template(shape, n, rng) for n in range(min(BLOCK_RECORDS_MAX, shape.messages))]
    if max(len(t.record) for t in templates) + BLANK_BYTES > shape.mapped_file_size:
        raise ValueError(f"mapped_file_size {shape.mapped_file_size} is smaller than a record")
    return templates


def assign_queues(shape: Shape, block_topics: list[int], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Queue id and queue offset of `count` messages whose topics repeat."""
    topic = np.resize(np.array(block_topics, dtype=np.int64), count)
    queues_of_topic = shape.queues // shape.topics + (topic < shape.queues % shape.topics)
    queue_id = np.random.default_rng(shape.seed).integers(0, queues_of_topic)
    group = queue_id * shape.topics + topic
    order = np.argsort(group, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(group))[:-1]])
    queue_offset = np.empty(count, dtype=np.int64)
    queue_offset[order] = np.arange(count) - starts[group[order]]
    return queue_id, queue_offset


def digits(values: NDArray[np.int64], base: int) -> NDArray[np.uint8]:
    """The last axis holds each value's upper-case digits, zero padded."""
    alphabet: NDArray[np.uint8] = np.frombuffer(b"0123456789ABCDEF", dtype=np.uint8)
    powers = base ** np.arange(DIGITS - 1, -1, -1, dtype=np.int64)
    text: NDArray[np.uint8] = alphabet[values[..., None] // powers % base]
    return text


class LogMaker:
    """Fills one buffer of repeated blocks, again and again."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.templates = make_templates(shape)
        self.starts = np.cumsum([0] + [len(t.record) for t in self.templates], dtype=np.int64)
        self.block_bytes = int(self.starts[-1])
        block = np.frombuffer(b"".join(t.record for t in self.templates), dtype=np.uint8)
        self.rows = max(1, BUFFER_BYTES_MAX // self.block_bytes)
        self.buffer = np.tile(block, (self.rows, 1))
        padded = -(-shape.messages // len(self.templates)) * len(self.templates)
        topics = [t.topic_number for t in self.templates]
        self.queue_id, self.queue_offset = assign_queues(shape, topics, padded)

    def bytes_before(self, message: int) -> int:
        """Bytes of all records before this one, blanks not counted."""
        rows, rest = divmod(message, len(self.templates))
        return rows * self.block_bytes + int(self.starts[rest])

    def segments(self) -> Iterator[tuple[int, int]]:
        """The messages ``[first, end)`` of each segment."""
        first = 0
        while first < self.shape.messages:
            limit = self.bytes_before(first) + self.shape.mapped_file_size - BLANK_BYTES
            rows, rest = divmod(limit, self.block_bytes)
            fitting = rows * len(self.templates) + int(np.searchsorted(self.starts, rest, side="right")) - 1
            end = min(fitting, self.shape.messages)
            yield first, end
            first = end

    def chunks(self, first: int, end: int, from_offset: int) -> Iterator[NDArray[np.uint8]]:
        """The bytes of the messages ``[first, end)`` that begin a segment at `from_offset`."""
        per_block = len(self.templates)
        begin = self.bytes_before(first)
        for row in range(first // per_block, -(-end // per_block), self.rows):
            rows = min(self.rows, -(-end // per_block) - row)
            self.patch(row, rows, from_offset - begin)
            row_begin = row * self.block_bytes
            start = max(begin - row_begin, 0)
            stop = min(self.bytes_before(end) - row_begin, rows * self.block_bytes)
            yield self.buffer.reshape(-1)[start:stop]

    def patch(self, row: int, rows: int, shift: int) -> None:
        """Make the buffer's first rows hold the blocks from `row` on; `shift` leads to physical offsets."""
        per_block = len(self.templates)
        message = np.arange(row * per_block, (row + rows) * per_block).reshape(rows, per_block)
        head = np.zeros((rows, per_block), dtype=PATCHED_HEAD)
        head["queue_id"] = self.queue_id[message]
        head["queue_offset"] = self.queue_offset[message]
        block_starts = np.arange(row, row + rows, dtype=np.int64)[:, None] * self.block_bytes
        head["physical"] = block_starts + self.starts[:-1] + shift
        timestamp = STORE_TIMESTAMP_START + message * self.shape.us_a_message // 1000
        texts = [
            as_bytes(head),
            as_bytes((timestamp - 1).astype(">i8")),
            as_bytes(timestamp.astype(">i8")),
            digits(message, 16),
            *(digits(message * 10 + k, 10) for k in range(self.shape.keys)),
        ]
        for i, (template, start) in enumerate(zip(self.templates, self.starts, strict=False)):
            for at, text in zip(template.patched_at, texts, strict=True):
                self.buffer[:rows, start + at : start + at + text.shape[-1]] = text[:, i]


def as_bytes(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The last axis holds each value's bytes."""
    return values.view(np.uint8).reshape(*values.shape, values.itemsize)


def make_log(store: Path, shape: Shape) -> int:
    """Write the store and return the bytes of all records."""
    maker = LogMaker(shape)
    (store / "commitlog").mkdir(parents=True)
    for number, (first, end) in enumerate(maker.segments()):
        from_offset = number * shape.mapped_file_size
        with (store / "commitlog" / f"{from_offset:020d}").open("xb") as segment:
            segment.truncate(shape.mapped_file_size)
            for chunk in maker.chunks(first, end, from_offset):
                segment.write(chunk.data)
            if end < shape.messages:
                segment.write(struct.pack(">iI", shape.mapped_file_size - segment.tell(), MAGIC_BLANK))
    conf = "storePathRootDir=.\nstorePathCommitLog=commitlog\nmappedFileSizeCommitLog="
    (store / "broker.conf").write_text(f"{conf}{shape.mapped_file_size}\n", encoding="utf-8")
    return maker.bytes_before(shape.messages)


def main() -> None:
    """Read the options, make the log, report the throughput."""
    parser = argparse.ArgumentParser(description="Make a big, valid commitlog fast.")
    parser.add_argument("--store", type=Path, required=True)
    defaults = {"messages": 3_000_000, "body_bytes": 380, "queues": 64, "topics": 8, "keys": 1, "seed": 1}
    for name, default in (defaults | {"mapped_file_size": 1 << 30}).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--ipv6", action="store_true")
    parser.add_argument("--non-ascii", action="store_true")
    options = vars(parser.parse_args())
    store = options.pop("store")
    shape = Shape(**options | {"topics": min(options["topics"], options["queues"])})
    start = time.perf_counter()
    total = make_log(store, shape)
    seconds = time.perf_counter() - start
    print(
        f"{shape.messages:,} messages, {total:,} bytes, {total / shape.messages:.1f} bytes each, "
        f"in {seconds:.2f} s: {shape.messages / seconds:,.0f} messages/s, {total / seconds / 1e6:,.0f} MB/s"
    )


if __name__ == "__main__":
    main()
