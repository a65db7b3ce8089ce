"""`reput verify` on stores whose 5.5.0 brokers kept their queues in RocksDB, alone or beside files."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict
from support.broker_stores import unpack
from support.command_line import invoke
from support.sink_runner import files_below

from reput.source.errors import StoreError
from reput.source.log.offset_range import OffsetRange
from reput.streaming.config.pipeline import load_config
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification

QUEUE = b"\0\0\0\7\1PlainKp\1%s\0\0\0\0"
ENTRY = QUEUE % b"" + b"\1%s"
LAST, FIRST = QUEUE % b"max\1", QUEUE % b"min\1"
DISPATCHED = b"\0\0\0\x10\1CHECKPOINT_TOPIC\1max\1\0\0\0\0"
Edit = Callable[[Any, Any], object]


def verify(home: Path) -> dict[str, StoreSection]:
    config = load_config(home / "store", broker_conf=home / "broker.conf", knows_rocksdb=True)
    sections = StoreVerification(config, home / "store").run(SerialTasks())
    return {section.name: section for section in sections}


def found(sections: dict[str, StoreSection]) -> dict[str, dict[str, int]]:
    return {name: dict(each.findings.counts) for name, each in sections.items() if each.findings.counts}


def edit(home: Path, change: Edit) -> None:
    """Change the database as RocksDB does; `change` gets both column families."""
    options = Options(raw_mode=True)
    directory = home / "store" / "consumequeue"
    database = Rdict(str(directory), options, {"default": options, "offset": options})
    change(database, database.get_column_family("offset"))
    database.flush()
    database.close()


def entry(number: int) -> bytes:
    return ENTRY % struct.pack(">q", number)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return unpack("v5-rocksdb", tmp_path)


def test_queues_in_rocksdb_alone(home: Path) -> None:
    """Messages, transactions, delays and light queues of a real broker: each entry as its record makes it."""
    before = files_below(home / "store")
    sections = verify(home)
    assert found(sections) == {}
    assert sections["rocksdb"].compared == {"queues": 49, "entries": 498}
    assert sections["rocksdb"].findings.notes == {}
    assert sections["queues"].not_seen == "the broker keeps its queues in RocksDB alone"
    assert files_below(home / "store") == before


def test_queues_in_files_and_in_rocksdb(tmp_path: Path) -> None:
    """Both are compared with the log, light queues, which RocksDB alone has, too."""
    sections = verify(unpack("v5-double-write-lite", tmp_path))
    assert found(sections) == {}
    assert (sections["queues"].compared["entries"], sections["queues"].not_seen) == (300, "")
    assert sections["rocksdb"].compared == {"queues": 5, "entries": 600}


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Gets the ends of each range of the log that is read for queues and index."""
    read, found = RangeTask.read, list[tuple[int, int]]()

    def noting(task: RangeTask, span: OffsetRange) -> RangeEffects:
        found.append((span.start, span.end))
        return read(task, span)

    monkeypatch.setattr(RangeTask, "read", noting)
    return found


def test_the_log_is_read_once(home: Path, spans: list[tuple[int, int]]) -> None:
    assert found(verify(home)) == {}
    assert len(spans) == len(set(spans)) > 0


def test_the_log_is_read_once_for_files_and_rocksdb(tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    """As long as both have the same entries; a difference in either is found."""
    home = with_both(unpack("v5-plain", tmp_path))
    sections = verify(home)
    assert found(sections) == {}
    assert sections["queues"].compared == sections["rocksdb"].compared
    assert len(spans) == len(set(spans)) > 0
    file = next((home / "store" / "consumequeue").glob("*/*/*"))
    file.write_bytes(b"!" + file.read_bytes()[1:])
    edit(home, lambda entries, _: entries.delete(next(iter(entries.keys()))))
    assert found(verify(home)) == {"queues": {"entry_changed": 1}, "rocksdb": {"entry_missing": 1}}


def test_light_queues_in_rocksdb_alone_are_read_for_it(tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    verify(unpack("v5-double-write-lite", tmp_path))
    assert len(spans) == 2 * len(set(spans)) > 0


def with_both(home: Path) -> Path:
    """Put the queues of a store into RocksDB, and leave their files."""
    queues, conf = home / "store" / "consumequeue", home / "broker.conf"
    shutil.copytree(queues, home / "files")
    of_store = ["--store", str(home / "store"), "--broker-conf", str(conf)]
    assert invoke(["queues", "--to", "rocksdb", *of_store]).exit_code == 0
    shutil.copytree(home / "files", queues, dirs_exist_ok=True)
    conf.write_text(conf.read_text() + "rocksdbCQDoubleWriteEnable=true\n")
    return home


def test_a_difference_between_both(tmp_path: Path) -> None:
    home = unpack("v5-double-write-lite", tmp_path)
    edit(home, lambda entries, _: entries.delete(b"\0\0\0\1\1T\1\0\0\0\0\1" + bytes(8)))
    assert found(verify(home)) == {"rocksdb": {"entry_missing": 1}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda entries, _: entries.delete(entry(1)), {"entry_missing": 1}),
        (lambda entries, _: entries.put(entry(1), bytes(28)), {"entry_differs": 1, "entry_unexplained": 1}),
        (lambda entries, _: entries.put(entry(1), entries[entry(0)]), {"entry_differs": 1, "entry_unexplained": 1}),
        (lambda entries, _: entries.put(entry(2), entries[entry(2)][:-1] + b"!"), None),
        (lambda entries, _: entries.put(entry(-1), entries[entry(0)]), {}),  # after the last one: it is never read
        (lambda _, offsets: offsets.delete(LAST), {"last_entry": 1}),
        (lambda _, offsets: offsets.put(LAST, struct.pack(">qq", 5, 0)), None),
        (lambda _, offsets: offsets.put(FIRST, struct.pack(">qq", 0, 2)), {"first_entry": 1}),
    ],
)
def test_planted_faults(change: Edit, expected: dict[str, int] | None, home: Path) -> None:
    edit(home, change)
    counts = found(verify(home)).get("rocksdb", {})
    if expected is None:
        assert counts
        assert counts.keys() <= {"entry_differs", "entry_unexplained", "last_entry"}
    else:
        assert counts == expected


def test_what_was_not_dispatched_is_a_note(home: Path) -> None:
    """A killed broker leaves an older state: it dispatches the rest at its next start."""

    def go_back(entries: Any, offsets: Any) -> None:
        offsets.put(DISPATCHED, struct.pack(">q", 0))
        for key in list(entries.keys()):
            entries.delete(key)

    edit(home, go_back)
    section = verify(home)["rocksdb"]
    assert section.findings.notes["not_dispatched_yet"] == 145_758
    assert "entry_missing" not in section.findings.counts


def test_the_database_is_missing(home: Path) -> None:
    shutil.rmtree(home / "store" / "consumequeue")
    with pytest.raises(StoreError, match=r"consumequeue has no RocksDB database"):
        verify(home)


def test_the_database_cannot_be_read(home: Path) -> None:
    for path in (home / "store" / "consumequeue").glob("*.sst"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"cannot read the RocksDB database .*/store/consumequeue"):
        verify(home)
