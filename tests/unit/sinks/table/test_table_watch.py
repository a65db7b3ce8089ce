"""Watching a message table, as far as it needs no Spark: its log's commits, the rows expected, ranges, refusals."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from reput.sinks.table.data_file import FileBounds
from reput.sinks.table.delta_table import added_columns, is_vacant, refusal
from reput.sinks.table.history import RowsTaken, TableCommit, commits
from reput.sinks.table.location import logged_name
from reput.sinks.table.log import commit_digest
from reput.sinks.table.replace import LogRanges
from reput.sinks.table.storage import table_storage
from reput.sinks.table.watch import MARKS_MAX, RowGap, RowLedger
from reput.source.errors import OutputError, SinkError

APP = "reput/b/messages"


def file(kind: str, low: str | None = "b", high: str | None = "b", *, rows: int = 3, change: bool = True) -> Any:
    statistics: dict[str, Any] = {"numRecords": rows, "minValues": {"broker": low}, "maxValues": {"broker": high}}
    statistics["nullCount"] = {"broker": 0}
    stats = None if low is None else json.dumps(statistics)
    return {kind: {"path": "x", "dataChange": change, "stats": stats}}


def info(operation: str, **more: Any) -> Any:
    return {"commitInfo": {"operation": operation, "engineInfo": "E", "timestamp": 0, **more}}


def commit(*actions: Any) -> TableCommit:
    return TableCommit.of(7, actions, APP, "b")


@pytest.mark.parametrize(
    ("actions", "end", "rows", "removes", "touches", "wanted"),
    [
        ([info("WRITE"), {"txn": {"appId": APP, "version": 90}}, file("add"), file("add", rows=4)], 90, 7, 0, 1, 0),
        (
            [info("WRITE"), {"txn": {"appId": "reput/c/messages", "version": 90}}, file("add", "c", "c")],
            None,
            3,
            0,
            0,
            0,
        ),
        ([info("WRITE"), file("add", "a", "c")], None, 3, 0, 1, 0),
        ([info("WRITE"), file("add", None)], None, 0, 0, 1, 0),
        ([info("OPTIMIZE"), file("add", change=False), file("remove", change=False)], None, 0, 0, 0, 0),
        ([info("RESTORE"), file("remove")], None, 0, 1, 1, 0),
        ([info("RESTORE"), file("remove", "c", "d")], None, 0, 0, 0, 0),
        ([info("DELETE"), file("remove", None), file("add")], None, 3, 1, 1, 1),
        ([info("DELETE"), file("remove", rows=0)], None, 0, 0, 0, 1),
        ([info("UPDATE"), file("remove"), file("add")], None, 3, 1, 1, 1),
        ([file("remove", "a", "a\U0010ffff")], None, 0, 0, 0, 0),
        ([{"metaData": {}}, {"protocol": {}}], None, 0, 0, 0, 0),
    ],
)
def test_what_a_commit_does_to_a_broker(
    actions: list[Any], end: int | None, rows: int, removes: int, touches: int, wanted: int
) -> None:
    found = commit(*actions)
    assert (found.end_offset, found.rows, found.removes, found.touches, found.is_wanted) == (
        end,
        rows,
        bool(removes),
        bool(touches),
        bool(wanted),
    )


def test_a_commit_in_words_is_one_harmless_line() -> None:
    description = commit(info("DELETE", operationParameters={"predicate": '["(topic = \x1b[2J\n)"]'})).description
    assert description == 'version 7, DELETE (["(topic = \\x1b[2J\\n)"]) by E at 1970-01-01T00:00:00Z'
    assert commit(file("add")).description == "version 7, an unknown operation"
    assert len(commit(info("X" * 999)).description) == 200


def test_commits_that_are_gone_or_no_commits_are_numbers(tmp_path: Path) -> None:
    (log := tmp_path / "_delta_log").mkdir()
    (log / f"{1:020d}.json").write_text(json.dumps(info("WRITE")))
    (log / f"{2:020d}.json").write_text('{"add": 1')
    (log / f"{3:020d}.json").write_text("[1]")
    (log / f"{4:020d}.json").write_text(json.dumps({"txn": {}}))
    found = list(commits(table_storage(tmp_path), 0, 5, APP, "b"))
    assert [each if isinstance(each, int) else each.description[:9] for each in found] == [0, "version 1", 2, 3, 4, 5]
    one = commit_digest(table_storage(tmp_path), 1)
    (log / f"{1:020d}.json").write_text(json.dumps(info("WRITE", isBlindAppend=True)))
    assert None not in (one, commit_digest(table_storage(tmp_path), 1))
    assert one != commit_digest(table_storage(tmp_path), 1)
    assert commit_digest(table_storage(tmp_path), 0) is None


def test_hundreds_of_commits_are_read_at_once(tmp_path: Path) -> None:
    """A start after them reads their files, once, and none of the table's rows."""
    (log := tmp_path / "_delta_log").mkdir()
    for version in range(500):
        transaction = {"txn": {"appId": "reput/c/messages", "version": version}}
        actions = [info("WRITE"), transaction, *[file("add", "c", "c")] * 4]
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    began = time.process_time()
    assert not any(
        each.touches for each in commits(table_storage(tmp_path), 0, 499, APP, "b") if isinstance(each, TableCommit)
    )
    assert time.process_time() - began < 2


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=300), st.integers(0, 2**31))
def test_the_ledger_finds_the_ranges_that_lost_rows(batches: list[tuple[int, int]], seed: int) -> None:
    """Against rows kept one by one: sums by range, whatever was thinned out, and no range without a difference."""
    rng, ledger, rows, end = Random(seed), RowLedger(3, "x", ()), [], 0
    for size, count in batches:
        rows += [end] * count
        end += size
        ledger = ledger.with_batch(end, count)
    assert ledger.rows == len(rows)
    assert len(ledger.offsets) <= MARKS_MAX
    assert ledger.offsets == sorted(set(ledger.offsets))
    assert RowLedger.from_state(json.loads(json.dumps(ledger.to_state()))) == ledger
    lost = [row for row in rows if rng.random() < 0.02]
    left = list(rows)
    for row in lost:
        left.remove(row)
    gaps = ledger.gaps([sum(row < offset for row in left) for offset in ledger.offsets])
    for gap in gaps:
        assert gap.missing == sum(gap.start <= row < gap.end for row in lost) > 0
    assert sum(gap.missing for gap in gaps) == len(lost)
    middle = end // 2
    assert ledger.until(middle).offsets == [offset for offset in ledger.offsets if offset <= middle]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)), max_size=4),
)
def test_the_ledger_without_rows_that_have_expired(
    batches: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    """Whatever stretches lost rows, the counts at the marks that stay are those of the rows that stay."""
    ledger, rows, end = RowLedger(3, "x", ()), [], 0
    for size, count in batches:
        rows += [end] * count
        end += size
        ledger = ledger.with_batch(end, count)
    for least, length in spans:
        gone = [row for row in rows if least <= row <= least + length][::2]
        if gone:
            rows = sorted((Counter(rows) - Counter(gone)).elements())
            ledger = ledger.without([RowsTaken(least, least + length, len(gone))])
    assert ledger.gaps([sum(row < offset for row in rows) for offset in ledger.offsets]) == []
    assert not rows or ledger.rows == len(rows)
    assert not [mark for mark in ledger.offsets if mark > end]


@pytest.mark.parametrize(
    ("note", "engine", "expired"),
    [
        ({"what": "expired", "broker": "b", "taken": [[1, 5, 2], [7, 7, 1]]}, "K/reput/1", ((1, 5, 2), (7, 7, 1))),
        ({"what": "expired", "broker": "c", "taken": [[1, 5, 2]]}, "K/reput/1", None),
        ({"what": "expired", "broker": "b"}, "K/reput/1", None),
        ({"what": "expired", "broker": "b", "taken": [[None, None, 2]]}, "K/reput/1", None),
        ({"what": "merged", "broker": "b", "taken": [[1, 5, 2]]}, "K/reput/1", None),
        ({"what": "expired", "broker": "b", "taken": [[1, 5, 2]]}, "another", None),
    ],
)
def test_rows_that_a_commit_says_have_expired(note: dict[str, Any], engine: str, expired: Any) -> None:
    """Of this broker alone, by reput alone, and told in full; otherwise the rows are counted as behind any DELETE."""
    told = commit(info("DELETE", engineInfo=engine, userMetadata=json.dumps(note)), file("remove"), file("add"))
    assert told.expired == (None if expired is None else tuple(RowsTaken(*each) for each in expired))
    assert told.is_wanted


def test_the_ledger_tells_rows_that_are_too_many() -> None:
    ledger = RowLedger(3, "x", ((100, 5), (200, 9)))
    assert ledger.gaps([5, 9]) == []
    assert ledger.gaps([6, 9]) == [RowGap(0, 100, -1), RowGap(100, 200, 1)]
    assert ledger.with_counts([6, 9]).marks == ((100, 6), (200, 9))
    assert ledger.seen_at(4, None) == RowLedger(4, None, ledger.marks)


@pytest.mark.parametrize(
    "state", [{"ledger": 1}, {"ledger": {}}, {"ledger": {"marks": [1], "version": 1, "commit": ""}}]
)
def test_a_ledger_that_cannot_be_read(state: dict[str, Any]) -> None:
    with pytest.raises(SinkError, match="remove the record") as raised:
        RowLedger.from_state(state, Path("/o/table.json"))
    assert (raised.value.file, raised.value.advice) == ("/o/table.json", "remove the record")
    assert RowLedger.from_state({}) is None


@given(st.sets(st.integers(0, 60), min_size=2, max_size=12), st.lists(st.integers(-5, 70), min_size=1))
def test_ranges(ends: set[int], offsets: list[int]) -> None:
    cuts = sorted(ends)[: len(ends) // 2 * 2]
    pairs = list(zip(cuts[::2], cuts[1::2], strict=True))
    ranges = LogRanges(pairs[::-1])
    wanted = [any(start <= offset < end for start, end in pairs) for offset in offsets]
    assert ranges.mask(np.array(offsets, np.int64)).tolist() == wanted
    assert [ranges.around(offset) is not None for offset in offsets] == wanted
    assert ranges.hull == (cuts[0], cuts[-1])
    least, greatest = min(offsets), max(offsets)
    assert ranges.overlap(least, greatest) == any(offset in range(least, greatest + 1) for offset in held(pairs))
    assert ranges.overlap(None, 3)


def held(pairs: Iterable[tuple[int, int]]) -> list[int]:
    return [offset for start, end in pairs for offset in range(start, end)]


def bounds(low: Any, high: Any, first: Any, last: Any, nulls: Any = 0, rows: int = 2) -> FileBounds:
    statistics = {
        "numRecords": rows,
        "minValues": {"broker": low, "physical_offset": first},
        "maxValues": {"broker": high, "physical_offset": last},
        "nullCount": {"broker": nulls},
    }
    return FileBounds.of(json.dumps(statistics))


def test_what_statistics_say_of_a_file() -> None:
    assert bounds("b", "b", 5, 9).is_only("b", 5, 10)
    assert not bounds("b", "b", 5, 9).is_only("b", 5, 9)
    assert not bounds("b", "b", 5, 9).is_only("b", 6, 10)
    assert not bounds("a", "b", 5, 9).is_only("b", 0, 99)
    assert not bounds("b", "b", 5, 9, nulls=1).is_only("b", 0, 99)
    assert not FileBounds.of(None).is_only("b", 0, 99)
    assert bounds("a", "c", 5, 9).may_hold("b")
    assert not bounds("c", "d", 5, 9).may_hold("b")
    assert bounds("c", "d", 5, 9, nulls=None).may_hold("b")
    assert not bounds("b", "b", None, None, rows=0).may_hold("b")
    assert FileBounds.of(None).may_hold("b")
    assert logged_name(Path("/t"), "a%20b/c.parquet") == "a b/c.parquet"
    assert [logged_name(Path("/t"), f"file:/{at}/a%20b") for at in "tu"] == ["a b", "/u/a b"]


WANTED = StructType([StructField("broker", StringType()), StructField("queue_id", IntegerType())])


def refused(*fields: StructField, partitions: tuple[str, ...] = (), **properties: str) -> OutputError | None:
    keys = {key.replace("_", "."): value for key, value in properties.items()}
    return refusal(Path("/t`x"), 9, WANTED, StructType(list(fields)), partitions, keys)


def test_what_others_changed_is_refused_with_what_undoes_it() -> None:
    both = WANTED.fields
    assert refused(*both) is None
    assert refused(*both[::-1], StructField("note", StringType())) is None
    assert added_columns(WANTED, StructType([*both, StructField("note", StringType())])) == ["`note` string"]
    assert "DROP CONSTRAINT `c`" in str(refused(*both, delta_constraints_c="x > 0"))
    assert "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')" in str(
        refusal(Path("/t`x"), 9, WANTED, WANTED, (), {"delta.columnMapping.mode": "name"})
    )
    physical = {"delta.columnMapping.physicalName": "queue_id"}
    other = StructType([both[0], StructField("q", IntegerType(), metadata=physical)])
    renamed = refusal(Path("/t"), 9, WANTED, other, (), {"delta.columnMapping.mode": "name"})
    assert renamed is not None
    assert "ALTER TABLE delta.`/t` RENAME COLUMN `q` TO `queue_id`" in str(renamed.advice)
    dropped = refusal(
        Path("/t"), 9, WANTED, StructType(both[:1]), (), {"delta.columnMapping.mode": "name"}, (), lambda _: 7
    )
    assert dropped is not None
    assert "'RESTORE TABLE delta.`/t` TO VERSION AS OF 7' undoes that columns were dropped" in str(dropped.advice)
    assert renamed.file == "/t"
    widened = str(refused(both[0], StructField("queue_id", LongType())))
    assert "lacking ['`queue_id` int'], not wanted ['`queue_id` bigint']" in widened
    assert "'RESTORE TABLE delta.`/t``x` TO VERSION AS OF N'" in widened
    needed = str(refused(*both, StructField("note", StringType(), nullable=False)))
    assert "ALTER TABLE delta.`/t``x` ALTER COLUMN `note` DROP NOT NULL" in needed
    assert "partition column queue_id" in str(refused(*both, partitions=("queue_id",)))


def test_a_table_whose_log_is_gone(tmp_path: Path) -> None:
    """Its data files may be all that is left of expired messages: no advice says to make the table again over them."""
    (tmp_path / "part-0.zstd.parquet").write_bytes(b"")
    with pytest.raises(OutputError, match=r"data files \(part-0.zstd.parquet\) .* put its _delta_log back") as raised:
        is_vacant(tmp_path)
    assert raised.value.file == str(tmp_path)
    assert str(raised.value.advice).startswith("or give an empty or missing directory")
    assert is_vacant(tmp_path / "none")
