"""The live break test's own parts: its judge, its tears, its disks, and how it reads what reput says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from broker.log_contents import read_records
from faults.live_break.disk import Disk
from faults.live_break.events import EVENTS, choose
from faults.live_break.judge import Judge, settings_of
from faults.live_break.live_broker import TEARS, record_positions, tear_segment
from faults.live_break.processes import MARK, survivors
from faults.live_break.tail import Paths, ugly_lines, way_out
from support.model import consume_queue_files, index_file_contents
from support.record_writer import Message, write_log

from reput.source.errors import OutputError
from reput.streaming.output.paths import OutputPaths, refuse_paths_inside

RELEASES = ("4.9.3", "5.5.0")


def message(number: int) -> Message:
    """One of two topics, with a key, a unique key and a tag."""
    properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}", "TAGS": f"Tag{number % 3}"}
    return Message(
        "AB"[number % 2], 0, body=Random(number).randbytes(100), properties=properties, store_timestamp=10**12 + number
    )


def paths_of(root: Path) -> Paths:
    """As in a run."""
    return Paths(root, root / "store", root / "broker.conf", root / "out", root / "messages", has_own_tmp=False)


def one_segment(store: Path, count: int = 300) -> Path:
    """A log of one segment; that segment."""
    write_log(store / "commitlog", (message(number) for number in range(count)), 1 << 20, preallocate=False)
    return min((store / "commitlog").iterdir())


def write_output(root: Path, release: str) -> Judge:
    """A log, and the queues, the index and the table that belong to it."""
    paths = paths_of(root)
    one_segment(root / "archive")
    judge = Judge(root / "archive", paths, release, {})
    records = list(read_records(root / "archive", {}))
    chosen = list(judge.model_records({record.offset for record in records}))
    for (topic, queue_id), files in consume_queue_files(chosen, settings_of(release)).items():
        directory = paths.output / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        for offset, data in files.items():
            (directory / f"{offset:020d}").write_bytes(data)
    (paths.output / "index").mkdir()
    for number, data in enumerate(index_file_contents(chosen, settings_of(release))):
        (paths.output / "index" / f"{number:017d}").write_bytes(data)
    rows: list[dict[str, Any]] = [
        {
            **{name: getattr(record, name) for name in ("topic", "queue_id", "queue_offset", "sys_flag", "tags")},
            "physical_offset": record.offset,
            "msg_size": record.size,
            "keys": record.keys,
            "uniq_key": record.uniq_key,
        }
        for record in records
    ]
    write_table(paths.table, rows)
    return judge


def write_table(table: Path, rows: list[dict[str, Any]]) -> None:
    """A Delta table of one file, as far as the judge reads it."""
    shutil.rmtree(table, ignore_errors=True)
    (table / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), table / "part-0.parquet")
    (table / "_delta_log" / f"{0:020d}.json").write_text(json.dumps({"add": {"path": "part-0.parquet"}}) + "\n")


def rows_of(judge: Judge) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(judge.paths.table / "part-0.parquet").read().to_pylist()
    return rows


def lose_a_row(judge: Judge) -> str:
    write_table(judge.paths.table, rows_of(judge)[:-1])
    return "messages: 1 missing"


def double_a_row(judge: Judge) -> str:
    rows = rows_of(judge)
    write_table(judge.paths.table, [*rows, rows[7]])
    return "messages: 1 doubled"


def add_a_ghost(judge: Judge) -> str:
    rows = rows_of(judge)
    write_table(judge.paths.table, [*rows, {**rows[-1], "physical_offset": 10**6}])
    return "messages: 1 in no log"


def change_a_row(judge: Judge) -> str:
    rows = rows_of(judge)
    write_table(judge.paths.table, [*rows[:-1], {**rows[-1], "tags": "another"}])
    return "messages: 1 rows differ"


def queue_file(judge: Judge) -> Path:
    return min(path for path in (judge.paths.output / "consumequeue").rglob("*") if path.is_file())


def lose_an_entry(judge: Judge) -> str:
    data = bytearray(queue_file(judge).read_bytes())
    data[2980:3000] = bytes(20)
    queue_file(judge).write_bytes(data)
    return "consumequeue: 1 missing"


def double_an_entry(judge: Judge) -> str:
    data = bytearray(queue_file(judge).read_bytes())
    data[3000:3020] = data[2980:3000]
    queue_file(judge).write_bytes(data)
    return "consumequeue: 1 doubled"


def change_a_tags_code(judge: Judge) -> str:
    data = bytearray(queue_file(judge).read_bytes())
    data[19] ^= 1
    queue_file(judge).write_bytes(data)
    return "consumequeue: file A/0/00000000000000000000 differs at byte 19"


def change_the_index(judge: Judge) -> str:
    path = judge.paths.output / "index" / f"{0:017d}"
    data = bytearray(path.read_bytes())
    data[8] ^= 1
    path.write_bytes(data)
    return "index: file 0 differs at byte 8"


def lose_the_index(judge: Judge) -> str:
    (judge.paths.output / "index" / f"{0:017d}").unlink()
    return "index: file 0 is missing"


@pytest.mark.parametrize("release", RELEASES)
def test_the_judge_agrees_with_what_is_right(release: str, tmp_path: Path) -> None:
    """Nothing is wrong, and everything was counted."""
    verdict = write_output(tmp_path, release).judge("")
    assert verdict.wrong == []
    assert (verdict.messages, verdict.rows, verdict.files) == (300, 300, 3)


@pytest.mark.parametrize(
    "spoil",
    [
        *(lose_a_row, double_a_row, add_a_ghost, change_a_row, lose_an_entry, double_an_entry),
        *(change_a_tags_code, change_the_index, lose_the_index),
    ],
)
def test_the_judge_sees_what_is_wrong(spoil: Callable[[Judge], str], tmp_path: Path) -> None:
    """One record, one entry, one byte."""
    judge = write_output(tmp_path, "4.9.3")
    expected = spoil(judge)
    assert judge.judge("").wrong[0].startswith(expected)


def test_what_expired_unread_must_be_told(tmp_path: Path) -> None:
    """A stretch may only be missing if reput has reported its end."""
    judge = write_output(tmp_path, "4.9.3")
    rows = rows_of(judge)
    begin, end = rows[100]["physical_offset"], rows[110]["physical_offset"]
    write_table(judge.paths.table, rows[:100] + rows[110:])
    assert judge.judge("").wrong == [f"messages: 10 missing, the first at {begin}"]
    judge.lost["messages"] = [(begin, end)]
    assert judge.judge("").wrong == [f"messages: what expired before {end} was passed over without a word"]
    verdict = judge.judge(f"WARNING messages ends at {begin} and the log begins at {end}")
    assert verdict.wrong == []
    assert verdict.expired_unread["messages"] == 10


@pytest.mark.parametrize("shape", TEARS)
def test_a_tear_ends_the_log_where_it_says(shape: str, tmp_path: Path) -> None:
    """A broker's recovery stops at the first damaged record: by its header, or by the CRC of its body."""
    for seed in range(20):
        store = tmp_path / str(seed)
        segment = one_segment(store)
        whole, before = segment.read_bytes(), list(record_positions(segment))
        tear = tear_segment(segment, Random(seed), shape)
        data = segment.read_bytes()
        assert data[: tear.cut] == whole[: tear.cut]
        assert tear.cut in [at for at, _ in before[-20:]]
        size = dict(before)[tear.cut]
        assert data[tear.cut : tear.cut + 88 + 100] != whole[tear.cut : tear.cut + 88 + 100]
        assert tear.end == sum(before[-1])
        if shape != "page":
            assert not any(data[tear.cut + size :])


def test_the_way_out_is_read_from_the_line(tmp_path: Path) -> None:
    """The command that the line names, with the paths of the run."""
    paths = paths_of(tmp_path)
    common = ["--store", str(paths.store), "--output", str(paths.output), "--broker-conf", str(paths.broker_conf)]
    line = "it was cut; 'reput recover' with the same --store and --output cuts it back"
    assert way_out(line, paths) == ["recover", *common]
    line = "rows are missing; run `reput rebuild --only table --from 7 --to 9 --table T`, then start again"
    table = ["--only", "table", "--from", "7", "--to", "9", "--table", str(paths.table)]
    assert way_out(line, paths) == ["rebuild", *common, *table]
    assert way_out("run 'reput recover --yes'", paths) == ["recover", *common, "--yes"]
    assert way_out("No space left on device", paths) is None


def test_ugly_lines() -> None:
    """Lines that users should not see."""
    ugly = [
        "Traceback (most recent call last):",
        "\tat java.base/java.lang.Thread.run(Thread.java:840)",
        "Exception in thread main",
        "/x.py:1: DeprecationWarning: old",
        "x" * 1001,
    ]
    good = ["reput: the disk of OUT is full", "logic: [0, 10): 1 message", "2026-11-22 07:17:33 WARNING left out at 7"]
    assert len(ugly_lines("\n".join([*ugly, *good]))) == len(ugly)


def test_the_seed_decides() -> None:
    """The same events in the same order for one seed, all kinds in a long run."""
    assert choose(1, 100) == choose(1, 100) != choose(2, 100)
    assert set(choose(3, len(EVENTS))) == set(EVENTS)


# --- disks -----------------------------------------------------------------------------------------------

# Appends a byte to a file for each line that it gets, and prints "done" or the error's number.
APPENDER = """
import sys
for line in sys.stdin:
    try:
        with open(sys.argv[1] + line.strip(), "ab", buffering=0) as file:
            file.write(b"x" * 5000)
        print("done", flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


@contextmanager
def appender(disk: Disk, mark: str, *wrapper: str) -> Iterator[Callable[[str], str]]:
    """A process of the run that writes to the disk when it gets the name of a file."""
    with subprocess.Popen(
        [*wrapper, sys.executable, "-c", APPENDER, f"{disk.root}/"],
        env={**os.environ, MARK: mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        to, answers = process.stdin, process.stdout

        def append(name: str) -> str:
            to.write(f"{name}\n")
            to.flush()
            return answers.readline().strip()

        try:
            yield append
        finally:
            to.close()


@pytest.mark.parametrize("is_root", [True, False])
def test_a_disk_is_full_for_a_while(is_root: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its own where root can mount one; else no file of a process of the run can grow."""
    if is_root and os.geteuid() != 0:
        pytest.skip("only root can mount")
    monkeypatch.setattr("os.geteuid", lambda: 0 if is_root else 1000)
    disk = Disk(tmp_path / "disk", str(tmp_path))
    if is_root and not disk.is_mounted:
        pytest.skip("no mounts here")
    try:
        with appender(disk, str(tmp_path)) as append:
            assert append("a") == "done"
            disk.fill()
            assert append("b") in {"28", "27"}  # ENOSPC, EFBIG
            disk.free()
            assert append("b") == "done"
            assert len(survivors(str(tmp_path), 0)) == 1
        assert survivors(str(tmp_path), 5) == []
    finally:
        disk.end()


@pytest.mark.parametrize("option", ["table", "checkpoint"])
def test_a_read_only_disk_is_told_before_spark_starts(option: str, tmp_path: Path) -> None:
    """Where Spark would write: its own words do not say what was refused."""
    disk = Disk(tmp_path / "disk", str(tmp_path))
    if os.geteuid() == 0 and not disk.is_mounted:
        pytest.skip("root can write everywhere, and there are no mounts here")
    paths = {"table": None, "checkpoint": None, option: disk.root / "new" / "folder"}
    try:
        refuse_paths_inside([], OutputPaths(tmp_path / "out", **paths))
        disk.make_read_only()
        with pytest.raises(OutputError, match=f"cannot write {paths[option]}: .*; give a writable directory") as raised:
            refuse_paths_inside([], OutputPaths(tmp_path / "out", **paths))
        assert raised.value.file == str(paths[option])
    finally:
        disk.end()


def test_a_disk_is_read_only_for_a_while(tmp_path: Path) -> None:
    """Though a file on it is open for writing, and for a process that has mounts of its own."""
    own_mounts = ("unshare", "--mount", "--propagation", "slave") if os.geteuid() == 0 else ()
    disk = Disk(tmp_path / "disk", str(tmp_path))
    if os.geteuid() == 0 and not disk.is_mounted:
        pytest.skip("root can write everywhere, and there are no mounts here")
    try:
        with (disk.root / "open").open("wb") as file, appender(disk, str(tmp_path), *own_mounts) as append:
            file.write(b"x")
            disk.make_read_only()
            assert append("new") in {"30", "13"}  # EROFS, EACCES
            disk.make_writable()
            assert append("new") == "done"
    finally:
        disk.end()
