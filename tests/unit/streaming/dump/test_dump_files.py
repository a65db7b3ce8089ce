"""`reput dump --file` of files that tests write or spoil: runs, bytes that are not entries, files without a store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import BrokerStore
from support.logs import load_log, put_bytes, varied_messages
from unit.streaming.dump.dumps import file_dump

from reput.sinks.formats.consume_queue import BATCH_ENTRY, ENTRY, PRE_BLANK, decorate
from reput.sinks.formats.index_file import ENTRY as INDEX_ENTRY
from reput.source.errors import OptionError, SinkError, StoreError
from reput.streaming.config.pipeline import load_file_options
from reput.streaming.config.settings import Settings
from reput.streaming.dump.entry_files import FileKind, kind_named
from reput.streaming.dump.log_dump import RecordSelection, Shown

GetStore = Callable[[str], BrokerStore]


def queue_file(root: Path, units: np.ndarray, kind: str = "consumequeue", begin: int = 0) -> Path:
    path = root / kind / "T" / "3" / f"{begin:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(units.tobytes())
    return path


# --- queues ------------------------------------------------------------------------------------------------


def test_what_is_the_same_many_times_is_one_line(tmp_path: Path) -> None:
    """Units that fill a queue's front, and the empty rest: longer than what is read at once."""
    units = np.zeros(200_000, ENTRY)
    units[:70_000] = PRE_BLANK
    units[70_000:70_003] = [(100, 20, 7), (120, 20, -1), (140, 20, decorate(34))]
    found = file_dump(queue_file(tmp_path, units, begin=4_000_000))
    first, *entries, rest = found.rows
    assert first == {
        "queue_offset": 200_000,
        "position": 0,
        "length": 1_400_000,
        "verdict": "PRE_BLANK",
        "count": 70_000,
    }
    assert [row["queue_offset"] for row in entries] == [270_000, 270_001, 270_002]
    assert [row["position"] for row in entries] == [1_400_000, 1_400_020, 1_400_040]
    assert [row["tags_code_hex"] for row in entries] == ["0x7", "0xffffffffffffffff", "0x8000000000000022"]
    assert [row["ext_address"] for row in entries] == [None, None, decorate(34)]
    assert (rest["verdict"], rest["count"]) == ("EMPTY", 129_997)
    assert found.counts == {"PRE_BLANK": 70_000, "ENTRY": 3, "EMPTY": 129_997}
    header = found.header
    assert (header["topic"], header["queue_id"], header["first_queue_offset"]) == ("T", 3, 200_000)
    assert (header["pre_blank"], header["entries"], header["empty"]) == (70_000, 3, 129_997)
    assert (header["min_physical_offset"], header["max_physical_offset"]) == (100, 140)


def test_units_that_no_broker_writes(tmp_path: Path) -> None:
    """Holes between entries, sizes and offsets below zero, bytes after the last whole unit."""
    units = np.array([(0, 91, 0), (0, 0, 0), (100, -1, 0), (-5, 20, 0), (0, 0, 1), (200, 91, 0)], ENTRY)
    path = queue_file(tmp_path, units)
    path.write_bytes(path.read_bytes() + b"abc")
    found = file_dump(path)
    verdicts = [row["verdict"] for row in found.rows]
    assert verdicts == ["ENTRY", "EMPTY", "BAD_ENTRY", "BAD_ENTRY", "BAD_ENTRY", "ENTRY"]
    assert found.header["bytes_behind_the_last_unit"] == 3
    assert found.header["bad"] == 3


def test_entries_of_a_range_and_a_limit(tmp_path: Path) -> None:
    """By the physical offsets that they lead to."""
    units = np.array([(100 * n, 91, n) for n in range(1, 20)], ENTRY)
    path = queue_file(tmp_path, units)
    assert file_dump(path, begin=300, end=700).offsets() == [300, 400, 500, 600]
    limited = file_dump(path, limit=4)
    assert limited.offsets() == [100, 200, 300, 400]
    assert limited.totals["verdicts"] == {"ENTRY": {"count": 4, "bytes": 80}}


def test_a_batch_entry_in_all_its_fields(tmp_path: Path) -> None:
    units = np.array([(5, 700, -3, 1_700_000_000_000, 44, 11, -1, 9)], BATCH_ENTRY)
    found = file_dump(queue_file(tmp_path, units, "batchconsumequeue", 4600))
    (row,) = found.rows
    assert row == {
        "entry": 100,
        "position": 0,
        "verdict": "ENTRY",
        "physical_offset": 5,
        "msg_size": 700,
        "tags_code": -3,
        "tags_code_hex": "0xfffffffffffffffd",
        "store_time": "2023-11-14T22:13:20.000Z",
        "store_timestamp": 1_700_000_000_000,
        "msg_base_offset": 44,
        "batch_size": 11,
        "compacted_offset": -1,
        "reserved": 9,
    }


def test_ext_units_lead_back_to_their_entries(broker_store: GetStore) -> None:
    """Each address in a queue's files is that of a unit, whose tags code and time are the record's."""
    root = broker_store("v4-sql92-rebuilt").root
    units, marks = {}, 0
    for path in sorted((root / "consumequeue_ext" / "SqlTopic" / "1").iterdir()):
        found = file_dump(path)
        units |= {row["address"]: row for row in found.of("ENTRY")}
        marks += len(found.of("END_MARK"))
        assert [row["verdict"] for row in found.rows[:-1]] == ["ENTRY"] * (len(found.rows) - 1)
    entries = [
        row for path in (root / "consumequeue" / "SqlTopic" / "1").iterdir() for row in file_dump(path).of("ENTRY")
    ]
    assert {row["ext_address"] for row in entries} == units.keys()
    assert marks > 0
    assert all(len(bytes.fromhex(row["filter_bit_map"])) == row["size"] - 20 for row in units.values())


def test_an_ext_unit_that_leads_nowhere(broker_store: GetStore, tmp_path: Path) -> None:
    """Its size passes the file's end: the dump shows its bytes, and reads no more."""
    path = tmp_path / "units"
    shutil.copy(broker_store("v4-sql92-rebuilt").root / "consumequeue_ext" / "SqlTopic" / "1" / f"{0:020d}", path)
    whole = file_dump(path, kind=FileKind.CONSUME_QUEUE_EXT)
    put_bytes(path, whole.rows[3]["position"], b"\x7f\xff")
    found = file_dump(path, kind=FileKind.CONSUME_QUEUE_EXT)
    assert [row["verdict"] for row in found.rows] == ["ENTRY"] * 3 + ["BAD_ENTRY"]
    assert found.rows[3]["length"] == path.stat().st_size - whole.rows[3]["position"]
    put_bytes(path, whole.rows[3]["position"], (whole.rows[3]["size"] + 1).to_bytes(2, "big"))
    assert file_dump(path, kind=FileKind.CONSUME_QUEUE_EXT).rows[3]["verdict"] == "BAD_ENTRY"


# --- the index ---------------------------------------------------------------------------------------------


@pytest.fixture
def index(broker_store: GetStore, tmp_path: Path) -> tuple[Path, Settings]:
    """A copy of a broker's newest index file, which is not full, under a name that says nothing; and its settings."""
    store = broker_store("v4-plain")
    shutil.copy(max((store.root / "index").iterdir()), tmp_path / "keys")
    return tmp_path / "keys", load_file_options(None, store.broker_conf, [])


def index_dump(index: tuple[Path, Settings], **request: object):  # noqa: ANN201
    return file_dump(index[0], index[1], FileKind.INDEX, **request)


def test_a_chain_that_goes_elsewhere(index: tuple[Path, Settings]) -> None:
    """Only the entry with the wrong link is bad; the dump has the right link."""
    sound = index_dump(index)
    row = next(row for row in sound.rows if row["previous"] > 0)
    put_bytes(index[0], row["position"] + 16, (row["previous"] - 1).to_bytes(4, "big"))
    found = index_dump(index)
    (bad,) = found.of("BAD_CHAIN")
    assert (bad["entry"], bad["previous"], bad["previous_expected"]) == (
        row["entry"],
        row["previous"] - 1,
        row["previous"],
    )
    assert found.counts["ENTRY"] == sound.counts["ENTRY"] - 1


def test_keys_behind_those_that_the_header_counts(index: tuple[Path, Settings]) -> None:
    """A put that was under way when the broker died."""
    end = index_dump(index).rows[-1]["position"]
    put_bytes(index[0], end, np.array([(7, 8, 9, 0)], INDEX_ENTRY).tobytes()[:12])
    found = index_dump(index)
    assert [row["verdict"] for row in found.rows[-2:]] == ["NOT_COUNTED", "EMPTY"]
    assert (found.rows[-2]["position"], found.rows[-2]["length"]) == (end, 12)


def test_the_entries_of_a_key(broker_store: GetStore) -> None:
    """By the hash of topic and key: two entries of a key whose hash Java cannot make positive."""
    store = broker_store("v4-plain")
    settings = load_file_options(None, store.broker_conf, [])
    asked = RecordSelection(topic="TopicA", key="wZwaha7")
    found = [file_dump(path, settings, selection=asked).of("ENTRY") for path in (store.root / "index").iterdir()]
    rows = [row for rows in found for row in rows]
    assert rows
    assert {row["key_hash"] for row in rows} == {0}
    with pytest.raises(OptionError, match="go together"):
        file_dump(next((store.root / "index").iterdir()), settings, selection=RecordSelection(key="wZwaha7"))


def test_an_index_file_of_other_settings(index: tuple[Path, Settings]) -> None:
    """Its sizes are found in its entries; a file without entries is refused, and the error says where its sizes are."""
    assert file_dump(index[0], kind=FileKind.INDEX).of("ENTRY") == index_dump(index).of("ENTRY")
    size = index[0].stat().st_size
    index[0].write_bytes(bytes(size))
    with pytest.raises(
        SinkError, match=f"{size} bytes where maxHashSlotNum=5000000 and maxIndexNum=20000000 make"
    ) as told:
        file_dump(index[0], kind=FileKind.INDEX)
    assert "--broker-conf" in str(told.value)


# --- what a file is ----------------------------------------------------------------------------------------


def test_files_that_are_none(tmp_path: Path) -> None:
    """Missing, a directory, something else, an unknown kind, a segment of which nothing says where it belongs."""
    with pytest.raises(OptionError, match="No such file"):
        file_dump(tmp_path / "nothing")
    with pytest.raises(OptionError, match="not a regular file; --store"):
        file_dump(tmp_path)
    (tmp_path / "lock").write_text("x")
    with pytest.raises(OptionError, match="neither its path nor its first bytes") as told:
        file_dump(tmp_path / "lock")
    assert "give --file-kind: commitlog, consumequeue, consumequeue_ext, batchconsumequeue, index, checkpoint" in str(
        told.value
    )
    with pytest.raises(OptionError, match="--file-kind queue: one of"):
        kind_named("queue")
    with pytest.raises(StoreError, match="no record begins it"):
        file_dump(tmp_path / "lock", kind=FileKind.COMMIT_LOG)


def test_options_that_do_not_go_with_a_kind(tmp_path: Path) -> None:
    path = queue_file(tmp_path, np.zeros(3, ENTRY))
    for request in ({"selection": RecordSelection(topic="T")}, {"shown": Shown(properties=True)}):
        with pytest.raises(OptionError, match="a file of kind consumequeue has no records"):
            file_dump(path, **request)
    with pytest.raises(OptionError, match="physical offsets, and a file of kind consumequeue_ext has none"):
        file_dump(path, kind=FileKind.CONSUME_QUEUE_EXT, begin=3)


def test_a_checkpoint(tmp_path: Path) -> None:
    """Its times, and the offsets of 5.x."""
    path = tmp_path / "checkpoint"
    path.write_bytes(b"".join(value.to_bytes(8, "big") for value in (5000, 9000, 7, 11, 12, 13)).ljust(4096, b"\0"))
    header = file_dump(path).header
    assert header["physic_msg_time"] == "1970-01-01T00:00:05.000Z"
    assert [header[f"{name}_msg_timestamp"] for name in ("physic", "logics", "index")] == [5000, 9000, 7]
    offsets = ("master_flushed_offset", "confirm_phy_offset", "logics_physical_offset")
    assert [header[name] for name in offsets] == [11, 12, 13]


def test_empty_files(tmp_path: Path) -> None:
    """A crash leaves them."""
    for kind in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        assert file_dump(queue_file(tmp_path, np.zeros(0, ENTRY), kind)).rows == []
    load_log(tmp_path / "commitlog", varied_messages(3))
    unused = tmp_path / "commitlog" / f"{4096:020d}"
    unused.write_bytes(bytes(4096))
    assert [row["verdict"] for row in file_dump(unused).rows] == ["EMPTY"]
