"""Tables with files of every kind, made by `reput`, and the rows that they must have: the log, record by record.

The rows come from the reference decoder and from the rules for one message (``support.message_row``), which write no
table. A value is as it is in JSON: an integer is a number, a time its microseconds since 1970, bytes are hexadecimal
digits, a list is a list, a map the list of its pairs. `plain_row` makes two such rows comparable as texts.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from support.decoders import DELAYS_MS
from support.hostile_texts import HOSTILE_TEXTS
from support.logs import ORIGINS, put_bytes, varied_messages
from support.message_row import row_of
from support.record_writer import Message, StoredRecord, write_log

from reput.source.errors import CorruptRecordError
from reput.source.record.message_body import decompress_body
from reput.source.record.message_decoder import decode_message

SEGMENT_BYTES = 1 << 30
HOUR_MS = 3_600_000
BEGIN_MS = 1_700_000_000_000
#: More rows than a row group of a task's file has.
LARGE_ROWS = 140_000
BODY_BYTES_MAX = 1000
ZLIB = 0x301
#: Columns by whose values a row is found.
Key = tuple[str, int]
KEY_COLUMNS = ("broker", "physical_offset")


def plain_row(row: dict[str, Any]) -> str:
    """The row as text: without nulls, columns in order of their names, pairs of a map in order."""
    known = {name: value for name, value in sorted(row.items()) if value is not None}
    if "properties" in known:
        known["properties"] = sorted(known["properties"])
    return json.dumps(known, ensure_ascii=False)


@dataclass(frozen=True)
class Table:
    """A Delta table, its Parquet files, and the rows that it must have, as `plain_row` has them.

    Attributes
    ----------
    name
        What kind of files it has.
    """

    name: str
    path: Path
    rows: dict[Key, str]

    @property
    def files(self) -> list[Path]:
        """Those of its newest version."""
        return sorted(self.path / name for name in DeltaTable(str(self.path)).file_uris())

    def __str__(self) -> str:
        """Names, files, row groups and rows."""
        groups = sum(pq.read_metadata(path).num_row_groups for path in self.files)
        return f"{self.name}: {len(self.files)} files, {groups} row groups, {len(self.rows)} rows"


class Tables:
    """The tables below a directory, which are made again each time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        shutil.rmtree(root, ignore_errors=True)

    def make(self) -> Iterator[Table]:
        """One of each kind."""
        hostile = {broker: list(hostile_messages()) for broker in ("a", "b'ä", 'c "%41')}
        yield self._table("files of tasks", hostile, "tableMaxBytesPerPartition=9000")
        merged = self._table("merged", hostile, "tableMaxBytesPerPartition=9000")
        self._reput("table", "optimize", "--table", str(merged.path))
        assert {path.name.partition("-")[0] for path in merged.files} == {"merged", "part"}
        yield merged
        # The files of one broker lack the columns of bodies that those of the other one have.
        bodies = self._table("bodies", {"without": varied_messages(20)})
        include = "tableIncludeBody=true", f"tableBodyBytesMax={BODY_BYTES_MAX}"
        yield replace(bodies, rows=bodies.rows | self._add(bodies.path, "with", body_messages(), *include))
        yield self._table("one row", {"a": [Message(properties={})]})
        yield self._table("large row groups", {"a": large_messages()})
        yield from self._damaged()

    def _damaged(self) -> Iterator[Table]:
        """A table whose log has a damaged record, and the table of such ranges beside it."""
        table = self._table("around damage", {"a": varied_messages(100)}, "onDamage=quarantine", damage=50)
        (lines,) = table.path.parent.rglob("quarantine.jsonl")
        ranges = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
        rows = {(line["broker"], line["physical_offset"]): plain_row(line) for line in ranges}
        yield table
        yield Table("quarantine", table.path.with_name(f"{table.path.name}-quarantine"), rows)

    def _table(
        self, name: str, messages: dict[str, Iterable[Message]], *options: str, damage: int | None = None
    ) -> Table:
        path = self._root / name.replace(" ", "-") / "messages"
        rows: dict[Key, str] = {}
        for broker, content in messages.items():
            rows |= self._add(path, broker, content, *options, damage=damage)
        return Table(name, path, rows)

    def _add(
        self, path: Path, broker: str, messages: Iterable[Message], *options: str, damage: int | None = None
    ) -> dict[Key, str]:
        """Write a broker's log, of which the record with the number `damage` is damaged, and add its rows."""
        store = path.parent / f"store-{len(list(path.parent.glob('store-*')))}"
        records = write_log(store / "commitlog", messages, SEGMENT_BYTES)
        (segment,) = (store / "commitlog").iterdir()
        if damage is not None:
            put_bytes(segment, records[damage].physical_offset, b"\xff" * 8)
        words = [f"broker={broker}", "consumeQueueEnable=false", "messageIndexEnable=false", *options]
        output = store.with_name(f"output-of-{store.name}")
        made = ["--store", str(store), "--output", str(output), "--table", str(path)]
        self._reput("rebuild", *made, *(word for option in words for word in ("-o", option)))
        rows = expected_rows(segment, records, broker, with_bodies="tableIncludeBody=true" in options)
        return {(broker, row["physical_offset"]): plain_row(row) for row in rows}

    def _reput(self, *words: str) -> None:
        command = [str(Path(sys.executable).with_name("reput")), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def expected_rows(
    segment: Path, records: Iterable[StoredRecord], broker: str, *, with_bodies: bool
) -> Iterator[dict[str, Any]]:
    """Decode a segment's bytes with the reference decoder, where records were written; return the rows."""
    data = memoryview(segment.read_bytes())
    for record in records:
        at = record.physical_offset
        _, message = decode_message(data, at, at, len(data), check_crc=True, delays_ms=DELAYS_MS)
        if message is not None:
            row = {"broker": broker, **row_of(message)}
            yield row | body_columns(message.body, message.sys_flag) if with_bodies else row


def body_columns(stored: bytes, sys_flag: int) -> dict[str, Any]:
    """`body` or `body_bytes`, or none."""
    with suppress(CorruptRecordError):
        plain = decompress_body(stored, sys_flag)
        if len(plain) <= BODY_BYTES_MAX:
            try:
                return {"body": plain.decode()}
            except UnicodeDecodeError:
                return {"body_bytes": plain.hex()}
    return {}


def hostile_messages() -> Iterator[Message]:
    """Records of all shapes, messages of the broker's own topics, texts of all kinds, nulls, times of no year."""
    yield from varied_messages(300)
    yield from ORIGINS
    for number, text in enumerate(HOSTILE_TEXTS * 5):
        blank = number % 3 == 2
        properties = {"KEYS": f"{text} k{number}", "UNIQ_KEY": f"U{number}{text}", "TAGS": text, text: text, "e": ""}
        yield Message(
            'it\'s 50% "odd"\\ 订单 😀' if number % 2 else text.replace("/", "_"),
            number % 3,
            body=b"x" * (number % 7),
            properties={} if blank else properties,
            flag=-number,
            store_timestamp=2**62 if number % 11 == 10 else BEGIN_MS + number * HOUR_MS // 4,
        )


def body_messages() -> Iterator[Message]:
    """Bodies that are texts and that are not, compressed, empty, too large, and ones that cannot be decompressed."""
    for number, text in enumerate(HOSTILE_TEXTS):
        yield Message(body=text.encode(), properties={"KEYS": str(number)})
        yield Message(body=zlib.compress(text.encode() * 9), sys_flag=ZLIB)
        yield Message(body=b"\xff\x00" + text.encode("utf-16"))
    for body in (b"", b"\x00", b"\xed\xa0\x80", b"x" * BODY_BYTES_MAX, b"x" * (BODY_BYTES_MAX + 1)):
        yield Message(body=body)
    yield Message(body=b"not zlib", sys_flag=ZLIB)


def large_messages() -> Iterator[Message]:
    """Messages as an application sends them."""
    rng = random.Random(0)
    for number in range(LARGE_ROWS):
        keys = " ".join(f"order-{rng.randrange(50_000)}" for _ in range(number % 3))
        properties = {"UNIQ_KEY": f"7F000001{number:024X}", "TAGS": f"tag{number % 5}", "KEYS": keys, "WAIT": "true"}
        yield Message(
            f"topic-{rng.randrange(40)}",
            rng.randrange(8),
            properties=properties if number % 10 else {},
            born_timestamp=BEGIN_MS + 7 * number,
            store_timestamp=BEGIN_MS + 7 * number + rng.randrange(20),
        )
