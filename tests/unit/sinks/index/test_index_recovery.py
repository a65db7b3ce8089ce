"""An index at its start mends torn writes, and refuses damage and other settings with a way out."""

from __future__ import annotations

import shutil
import struct
from contextlib import closing
from pathlib import Path

import pytest
from support.model import Settings, index_file_contents
from support.record_writer import Message, StoredRecord, write_log
from support.sink_runner import SMALL, LogBatches, files_below, index_contents, record_bounds, stuck_clock

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.index.index_sink import IndexSink
from reput.source.errors import SinkError

ENTRIES_AT = 40 + 4 * SMALL.max_hash_slot_num
PARTS = {"header": (0, 40), "slots": (40, ENTRIES_AT), "entries": (ENTRIES_AT, 10**9)}


def recover(root: Path, settings: Settings = SMALL) -> None:
    with closing(DurableFiles(root)) as files:
        IndexSink(files, settings.max_hash_slot_num, settings.max_index_num, stuck_clock).recover(0)


def write(root: Path, log: Path, start: int, end: int, settings: Settings = SMALL) -> None:
    with closing(DurableFiles(root)) as files:
        sink = IndexSink(files, settings.max_hash_slot_num, settings.max_index_num, stuck_clock)
        sink.recover(0)
        sink.write(LogBatches(log)(start, end))


class Torn:
    """An index of one file that is at `cut`, and what the files would be at the end, in the second file."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root / "out", root / "log"
        self.records: list[StoredRecord] = write_log(
            self.log, [Message(properties={"KEYS": f"a k{i}"}, store_timestamp=1000 * i) for i in range(7)]
        )
        self.cut, self.end = self.records[3].physical_offset, record_bounds(self.records)[-1]
        write(self.root, self.log, 0, self.cut)
        self.before = files_below(self.root)
        shutil.copytree(self.root, root / "later")
        write(root / "later", self.log, self.cut, self.end)
        later = files_below(root / "later")
        (self.first,) = (path for path in self.before if path.startswith("index/"))
        self.first_later = later[self.first]
        (self.second,) = (path for path in later if path.startswith("index/") and path != self.first)
        self.second_later = later[self.second]

    def check(self) -> None:
        """After recovery everything is as before the torn batch, and the next batches give the model's bytes."""
        recover(self.root)
        assert files_below(self.root) == self.before
        write(self.root, self.log, self.cut, self.end)
        assert index_contents(self.root) == index_file_contents(self.records, SMALL)


@pytest.fixture
def torn(tmp_path: Path) -> Torn:
    return Torn(tmp_path)


@pytest.mark.parametrize("second", [None, 0, 40, 100, 10**9], ids=["no next file", "empty", "header", "part", "whole"])
@pytest.mark.parametrize("written", range(8))
def test_any_part_of_a_batch_on_disk_is_mended(written: int, second: int | None, torn: Torn) -> None:
    """Header, slots and entries of an unfinished batch may be there or not, and so may the next file: all as before."""
    content = bytearray(torn.before[torn.first])
    for bit, (begin, end) in enumerate(PARTS.values()):
        if written >> bit & 1:
            content[begin:end] = torn.first_later[begin:end]
    (torn.root / torn.first).write_bytes(content)
    if second is not None:
        (torn.root / torn.second).write_bytes(torn.second_later[:second].ljust(40 if second else 0, b"\0"))
    torn.check()


@pytest.mark.parametrize("size", range(ENTRIES_AT + 20 * 7, ENTRIES_AT + 20 * 10, 7))
def test_a_torn_entry_is_cleared(size: int, torn: Torn) -> None:
    """Entries of which only the first bytes reached the disk leave nothing behind."""
    old = torn.before[torn.first]
    (torn.root / torn.first).write_bytes(torn.first_later[:size] + old[size:])
    torn.check()


def test_slots_that_hide_their_chains_are_made_again(torn: Torn) -> None:
    """A slot beyond the count would read as empty: recovery takes it back to the newest entry that counts."""
    content = bytearray(torn.before[torn.first])
    content[40:ENTRIES_AT] = struct.pack(">i", 9) * SMALL.max_hash_slot_num
    (torn.root / torn.first).write_bytes(content)
    torn.check()


def test_stale_entries_behind_a_hole_are_cleared(tmp_path: Path) -> None:
    """Of a large batch's entries the later pages may reach the disk without the earlier ones."""
    settings = Settings(max_hash_slot_num=100, max_index_num=150_000)
    records = write_log(tmp_path / "log", [Message(properties={"KEYS": "a b"})] * 2)
    write(tmp_path / "out", tmp_path / "log", 0, records[1].physical_offset, settings)
    (path,) = (tmp_path / "out" / "index").iterdir()
    before = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(40 + 4 * 100 + 20 * 140_000)
        file.write(b"\x01" * 20)
    recover(tmp_path / "out", settings)
    assert path.read_bytes() == before


# --- refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [Settings(60, 8, 10), Settings(60, 7, 11)])
def test_other_settings_are_refused(settings: Settings, torn: Torn) -> None:
    """Files of other settings would be misread: an error with path, both sizes and what to do."""
    size = 40 + 4 * settings.max_hash_slot_num + 20 * settings.max_index_num
    message = f"{torn.root / torn.first} has 268 bytes where maxHashSlotNum and maxIndexNum make {size}; give the"
    with pytest.raises(SinkError, match=message):
        recover(torn.root, settings)


@pytest.mark.parametrize(("field", "by", "why"), [(0, -(2**31), "negative hash"), (0, 1, "broken"), (16, 1, "broken")])
def test_a_damaged_entry_is_refused(field: int, by: int, why: str, torn: Torn) -> None:
    """An entry that counts and does not fit its chain is damage, not a torn write: an error with the way out."""
    at = ENTRIES_AT + 20 * 3 + field  # of the second record's "a", whose predecessor is entry 1
    (value,) = struct.unpack_from(">i", torn.before[torn.first], at)
    with (torn.root / torn.first).open("r+b") as file:
        file.seek(at)
        file.write(struct.pack(">i", value + by))
    with pytest.raises(SinkError, match=f"{torn.root / torn.first} has .*{why}.* remove the index to derive it again"):
        recover(torn.root)


def test_a_missing_last_file_is_refused_and_a_missing_folder_derived_again(torn: Torn) -> None:
    """With other files still there the last one's loss is an error; with none the sink begins again by itself."""
    write(torn.root, torn.log, torn.cut, torn.end)
    (torn.root / torn.second).unlink()
    with pytest.raises(SinkError, match=f"has no file {torn.second[6:]}, which was the last one written; remove index"):
        recover(torn.root)
    shutil.rmtree(torn.root / "index")
    recover(torn.root)
    assert index_contents(torn.root) == []
    write(torn.root, torn.log, 0, torn.end)
    assert index_contents(torn.root) == index_file_contents(torn.records, SMALL)


def test_a_lost_progress_record_takes_the_files_over(torn: Torn) -> None:
    """As with a broker's files, the sink continues after the last record that has a key."""
    write(torn.root, torn.log, torn.cut, torn.end)
    (torn.root / "reput" / "progress" / "index.json").unlink()
    done = index_contents(torn.root)
    recover(torn.root)
    assert index_contents(torn.root) == done
    write(torn.root, torn.log, 0, torn.end)
    assert index_contents(torn.root) == done
