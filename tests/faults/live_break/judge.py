"""Is everything there, once? Queues, index and table against every record that the broker's log ever held.

It shares no code with the product: the log is read by `broker.log_contents` and `model`, the queues' and the index's
files are compared with the model's byte for byte, the table is read from its transaction log and its Parquet files.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from broker.log_contents import Record, read_records
from faults.live_break.live_broker import CONF
from faults.live_break.tail import SINKS, Paths
from support.model import Record as ModelRecord
from support.model import Settings, consume_queue_files, index_file_contents, parse_record
from support.store_compare import files_below

QUEUES, INDEX, TABLE = SINKS
UNIT_BYTES = 20
COLUMNS = ("physical_offset", "topic", "queue_id", "queue_offset", "msg_size", "sys_flag", "tags", "keys", "uniq_key")
Stretch = tuple[int, int]


def settings_of(release: str) -> Settings:
    """The model's settings for the brokers of the test."""
    return Settings(
        mapped_file_size_consume_queue=int(CONF["mappedFileSizeConsumeQueue"]),
        max_hash_slot_num=int(CONF["maxHashSlotNum"]),
        max_index_num=int(CONF["maxIndexNum"]),
        index_tags=release.startswith("5."),
    )


@dataclass
class Verdict:
    """Figures of one comparison; `wrong` is empty when all is right."""

    messages: int = 0
    expired_unread: dict[str, int] = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Judge:
    """Compares one run's output and table with `archive`, a store that keeps every segment.

    `lost` has, for each sink, the stretches of the log that expired before the sink had read them; `floor` is where an
    output began that had to be begun again.
    """

    archive: Path
    paths: Paths
    release: str
    lost: dict[str, list[Stretch]]
    floor: int = 0

    def judge(self, said: str) -> Verdict:
        """Compare everything; `said` is all that `reput tail` printed."""
        records = [record for record in read_records(self.archive, {}) if record.offset >= self.floor]
        verdict = Verdict(len(records))
        self._judge_table(records, verdict, said)
        self._judge_queues(records, verdict, said)
        self._judge_index(records, verdict)
        return verdict

    def _account(self, sink: str, expected: set[int], found: Sequence[int], verdict: Verdict, said: str) -> set[int]:
        """Check that each record counts once, except those that expired unread; return the records."""
        counts = Counter(found)
        missing = expected - counts.keys()
        doubled = [offset for offset, count in counts.items() if count > 1]
        extra = counts.keys() - expected
        unread = {offset for offset in missing if any(a <= offset < b for a, b in self.lost.get(sink, ()))}
        verdict.expired_unread[sink] = len(unread)
        for what, offsets in (("missing", missing - unread), ("doubled", doubled), ("in no log", extra)):
            if offsets:
                verdict.wrong.append(f"{sink}: {len(offsets)} {what}, the first at {min(offsets)}")
        for begin, end in self.lost.get(sink, ()):
            if any(begin <= offset < end for offset in unread) and str(end) not in said:
                verdict.wrong.append(f"{sink}: what expired before {end} was passed over without a word")
        return expected & counts.keys()

    # --- the table ---------------------------------------------------------------------------------------

    def _judge_table(self, records: Sequence[Record], verdict: Verdict, said: str) -> None:
        rows = table_rows(self.paths.table)
        verdict.rows = len(rows)
        found = [row["physical_offset"] for row in rows]
        self._account(TABLE, {record.offset for record in records}, found, verdict, said)
        by_offset = {record.offset: record for record in records}
        differing = [row for row in rows if row["physical_offset"] in by_offset]
        differing = [row for row in differing if not same_message(row, by_offset[row["physical_offset"]])]
        if differing:
            verdict.wrong.append(
                f"{TABLE}: {len(differing)} rows differ from their records, the first is {differing[0]}"
            )

    # --- queues and index --------------------------------------------------------------------------------

    def model_records(self, offsets: set[int]) -> Iterator[ModelRecord]:
        """The records at these places, in order, as the model takes them."""
        segments = [(int(path.name), path) for path in sorted((self.archive / "commitlog").iterdir())]
        wanted = sorted(offsets)
        for number, (first, path) in enumerate(segments):
            behind = segments[number + 1][0] if number + 1 < len(segments) else first + path.stat().st_size
            data = path.read_bytes()
            for offset in wanted[bisect_left(wanted, first) : bisect_left(wanted, behind)]:
                at = offset - first
                record = data[at : at + int.from_bytes(data[at : at + 4], "big")]
                yield offset, parse_record(record)[1], len(record)

    def _judge_queues(self, records: Sequence[Record], verdict: Verdict, said: str) -> None:
        files = files_below(self.paths.output / "consumequeue")
        found = []
        for data in files.values():
            for at in range(0, len(data), UNIT_BYTES):
                size = int.from_bytes(data[at + 8 : at + 12], "big")
                if size not in {0, 0x7FFFFFFF}:
                    found.append(int.from_bytes(data[at : at + 8], "big"))
        there = self._account(QUEUES, {record.offset for record in records if record.is_queued}, found, verdict, said)
        model = consume_queue_files(self.model_records(there), settings_of(self.release))
        expected = {
            f"{topic}/{queue_id}/{offset:020d}": data
            for (topic, queue_id), queue in model.items()
            for offset, data in queue.items()
        }
        self._compare(QUEUES, expected, files, verdict)

    def _judge_index(self, records: Sequence[Record], verdict: Verdict) -> None:
        """By the bytes of all files: what a key says of its record is its hash only."""
        lost = self.lost.get(INDEX, ())
        files = files_below(self.paths.output / "index")
        physical_offsets = indexed_offsets(files.values())
        offsets = {record.offset for record in records}
        there = {o for o in offsets if o in physical_offsets or not any(a <= o < b for a, b in lost)}
        contents = index_file_contents(self.model_records(there), settings_of(self.release))
        expected = {str(number): data for number, data in enumerate(contents)}
        found = {str(number): files[name] for number, name in enumerate(sorted(files))}
        self._compare(INDEX, expected, found, verdict)

    @staticmethod
    def _compare(sink: str, expected: dict[str, bytes], found: dict[str, bytes], verdict: Verdict) -> None:
        verdict.files += len(expected)
        for name in sorted(expected.keys() | found.keys()):
            one, other = expected.get(name), found.get(name)
            if one is None or other is None:
                verdict.wrong.append(f"{sink}: file {name} is {'too many' if one is None else 'missing'}")
            elif one != other:
                first = next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), -1)
                verdict.wrong.append(f"{sink}: file {name} differs at byte {first} of {len(one)} ({len(other)} found)")


def indexed_offsets(files: Any) -> set[int]:
    """The physical offsets that keys in the index lead to."""
    physical_offsets = set()
    slots, keys = int(CONF["maxHashSlotNum"]), int(CONF["maxIndexNum"])
    for data in files:
        first = 40 + 4 * slots + UNIT_BYTES
        for at in range(first, first + UNIT_BYTES * (keys - 1), UNIT_BYTES):
            unit = data[at : at + UNIT_BYTES]
            if unit.strip(b"\0"):
                physical_offsets.add(int.from_bytes(unit[4:12], "big"))
    return physical_offsets


def table_rows(table: Path) -> list[dict[str, Any]]:
    """Every row of a Delta table's newest version, from its transaction log and its Parquet files."""
    live: set[str] = set()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        live -= {action["remove"]["path"] for action in actions if "remove" in action}
        live |= {action["add"]["path"] for action in actions if "add" in action}
    rows: list[dict[str, Any]] = []
    for name in sorted(live):
        rows += pq.ParquetFile(table / unquote(name)).read(columns=list(COLUMNS)).to_pylist()
    return rows


def same_message(row: dict[str, Any], record: Record) -> bool:
    """Whether a row tells what its record says."""
    return (
        row["topic"] == record.topic
        and row["queue_id"] == record.queue_id
        and row["queue_offset"] == record.queue_offset
        and row["msg_size"] == record.size
        and row["sys_flag"] == record.sys_flag
        and (row["tags"] or "") == record.tags
        and (row["keys"] or []) == record.keys
        and row["uniq_key"] == record.uniq_key
    )
