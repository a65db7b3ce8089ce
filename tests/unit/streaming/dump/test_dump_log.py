"""`reput dump` of logs that tests write: ranges, filters, damage, the bytes at the end, DLedger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.logs import SHAPES, V6_STORE, load_log, put_bytes, varied_messages
from support.record_writer import CommitLogWriter, Message, StoredRecord, write_store
from unit.streaming.dump.dumps import Dumped, file_dump, log_dump

from reput.source.errors import OptionError
from reput.source.record.message_format import flag_names
from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.dump.log_dump import RecordSelection, Shown

START = 1_700_000_000_000


def config_of(store: Path, *options: str) -> PipelineConfig:
    return load_config(store, overrides=["tailGuardMs=0", *options])


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, list[StoredRecord]]:
    """A log of 70 records in several segments, whose store times rise by 10 ms."""
    _, records = load_log(tmp_path / "commitlog", varied_messages(70))
    return tmp_path, records


def dump(store: Path, *options: str, **request: Any) -> Dumped:
    return log_dump(config_of(store, *options), **request)


# --- ranges ------------------------------------------------------------------------------------------------


def test_a_range_begins_and_ends_between_records(store: tuple[Path, list[StoredRecord]]) -> None:
    """From is inclusive, to exclusive; a record counts by where it begins."""
    root, records = store
    offsets = [record.physical_offset for record in records]
    found = dump(root, begin=offsets[3], end=offsets[9])
    assert (found.offsets(), found.notes) == (offsets[3:9], [])
    assert [o for o in dump(root, begin=offsets[9]).offsets() if o in offsets] == offsets[9:]
    assert dump(root, begin=offsets[3], end=offsets[3]).offsets() == []


@pytest.mark.parametrize("inside", [1, 50])
def test_an_offset_inside_a_record_is_moved_to_the_next(inside: int, store: tuple[Path, list[StoredRecord]]) -> None:
    root, records = store
    offsets = [record.physical_offset for record in records]
    found = dump(root, begin=offsets[3] + inside, end=offsets[5] + inside)
    assert found.offsets() == offsets[4:6]
    (said,) = found.notes
    assert said == f"--from {offsets[3] + inside} is inside the record at {offsets[3]}: beginning at {offsets[4]}"


def test_offsets_outside_the_log(store: tuple[Path, list[StoredRecord]], tmp_path: Path) -> None:
    """Behind its end, before its begin, and the wrong way round."""
    root, records = store
    end = dump(root).totals["end"]
    behind = dump(root, begin=end + 7)
    assert (behind.rows, behind.notes) == ([], [f"--from {end + 7}: the log ends at {end}"])
    assert dump(root, end=end + 7).counts["MESSAGE"] == len(records)
    (root / "commitlog" / f"{0:020d}").unlink()
    before = dump(root, begin=5)
    assert before.notes == ["--from 5: the log begins at 4096"]
    assert before.rows[0]["physical_offset"] == 4096
    with pytest.raises(OptionError, match="--from 9 is after --to 8"):
        dump(root, begin=9, end=8)


def test_an_offset_inside_the_blank(store: tuple[Path, list[StoredRecord]]) -> None:
    root, _ = store
    blank = dump(root).of("BLANK")[0]
    found = dump(root, begin=blank["physical_offset"] + 3)
    assert found.rows[0]["physical_offset"] == blank["next_offset"] == 4096
    assert f"inside the blank at {blank['physical_offset']}" in found.notes[0]


def test_under_dledger_either_offset_of_a_record_is_where_it_begins(tmp_path: Path) -> None:
    """That of its entry, and that which queues name."""
    _, records = load_log(tmp_path / "dledger-n0" / "data", varied_messages(30), dledger=True)
    offsets = [record.physical_offset for record in records]
    dledger = "enableDLegerCommitLog=true"
    for begin in (offsets[5], offsets[5] - 48):
        found = dump(tmp_path, dledger, begin=begin, end=offsets[7])
        assert (found.offsets(), found.notes) == (offsets[5:7], [])
    found = dump(tmp_path, dledger, begin=offsets[5] - 1)
    assert found.rows[0]["physical_offset"] == offsets[6]
    assert f"inside the record at {offsets[5]}" in found.notes[0]


def test_a_limit(store: tuple[Path, list[StoredRecord]]) -> None:
    """Of records; the totals end after the last one."""
    root, records = store
    found = dump(root, limit=5)
    assert len(found.rows) == found.counts["MESSAGE"] == 5
    assert found.totals["end"] == records[4].physical_offset + records[4].msg_size


# --- filters -----------------------------------------------------------------------------------------------


def chosen(store: Path, **selection: Any) -> list[int]:
    return [row["physical_offset"] for row in dump(store, selection=RecordSelection(**selection)).of("MESSAGE")]


def test_filters(store: tuple[Path, list[StoredRecord]]) -> None:
    """Each one, and all at once; blanks are shown nevertheless, and topics that were left out are not counted."""
    root, records = store

    def wanted(takes: Any) -> list[int]:
        return [record.physical_offset for record in records if takes(record.message)]

    assert chosen(root, topic="主题") == wanted(lambda m: m.topic == "主题")
    assert chosen(root, queue_id=2) == wanted(lambda m: m.queue_id == 2)
    assert chosen(root, since=START + 105, until=START + 300) == wanted(
        lambda m: 105 <= m.store_timestamp - START < 300
    )
    has_k2 = wanted(lambda m: isinstance(m.properties, dict) and "k2" in m.properties.get("KEYS", "").split(" "))
    assert chosen(root, key="k2") == has_k2 != []
    unique = wanted(lambda m: isinstance(m.properties, dict) and m.properties.get("UNIQ_KEY") == "U4")
    assert chosen(root, key="U4") == unique != []
    assert chosen(root, key="k2", topic="TopicTest", since=START + 200) == [o for o in has_k2 if o in has_k2[2:]]
    assert chosen(root, key="nothing") == chosen(root, topic="nothing") == []
    found = dump(root, selection=RecordSelection(topic="主题"))
    assert found.totals["topics"] == {"主题": 5}
    assert found.counts["BLANK"] == dump(root).counts["BLANK"]


def test_other_segments_are_not_read_for_a_time(store: tuple[Path, list[StoredRecord]]) -> None:
    """Their contents do not matter then, however bad they are."""
    root, records = store
    segments = sorted((root / "commitlog").iterdir())
    third = [record for record in records if record.physical_offset // 4096 == 2]
    since, until = third[1].message.store_timestamp, third[-1].message.store_timestamp + 1
    put_bytes(segments[0], 500, b"\xff" * 300)
    put_bytes(segments[4], 500, b"\xff" * 300)
    found = dump(root, selection=RecordSelection(since=since, until=until))
    assert [row["physical_offset"] for row in found.of("MESSAGE")] == [record.physical_offset for record in third[1:]]
    assert found.counts.keys() == {"MESSAGE", "BLANK"}


# --- what is shown -----------------------------------------------------------------------------------------


def test_properties_and_bodies(tmp_path: Path) -> None:
    """A body as text before it was compressed, or as its bytes; never more than was asked for."""
    import zlib

    text = "ä" * 200
    packed = zlib.compress(text.encode())
    messages = [
        Message(body=b"\x00\xff" * 10, properties={"a": "1", "TAGS": "T"}),
        Message(body=packed, sys_flag=1),
        Message(body=b"no zlib", sys_flag=1),
    ]
    load_log(tmp_path / "commitlog", messages)
    rows = dump(tmp_path, shown=Shown(properties=True, body="text", body_bytes_max=100)).rows
    assert [row["properties"] for row in rows] == [{"a": "1", "TAGS": "T"}, {}, {}]
    assert rows[1]["body"] == "ä" * 50
    assert [row["body_bytes_left_out"] for row in rows] == [0, 300, 0]
    assert rows[0]["body"] == "\x00\\xff" * 10
    assert rows[2]["body"] == "no zlib"
    rows = dump(tmp_path, shown=Shown(body="hex", body_bytes_max=1000)).rows
    assert [bytes.fromhex(row["body_hex"]) for row in rows] == [each.body for each in messages]
    assert "properties" not in rows[0]
    with pytest.raises(OptionError, match="text or hex wanted"):
        Shown(body="base64")


def test_flags_and_versions_of_each_shape(tmp_path: Path) -> None:
    """By name; the version is the magic code's."""
    load_log(tmp_path / "commitlog", SHAPES.values())
    rows = dict(zip(SHAPES, dump(tmp_path).of("MESSAGE"), strict=True))
    assert rows["v6 both"]["flags"] == ["born_host_v6", "store_host_v6"]
    assert rows["v6 both"]["store_host"] == f"[{V6_STORE[0]}]:{V6_STORE[1]}"
    assert [rows[name]["flags"] for name in ("prepared", "commit", "rollback")] == [
        ["prepared"],
        ["commit"],
        ["rollback"],
    ]
    assert rows["inner batch"]["flags"] == ["need_unwrap", "inner_batch"]
    assert {name for name, row in rows.items() if row["magic_version"] == 2} == {"V2"}


@pytest.mark.parametrize(
    ("sys_flag", "names"),
    [
        (0, []),
        (0x3, ["compressed_zlib", "multi_tags"]),
        (0x201, ["compressed_zstd"]),
        (0x701, ["compressed", "0x700"]),
        (0x100, ["0x100"]),
        (0xC | 0x30, ["rollback", "born_host_v6", "store_host_v6"]),
        (-(2**31), ["0x80000000"]),
    ],
)
def test_flag_names(sys_flag: int, names: list[str]) -> None:
    assert flag_names(sys_flag) == names


# --- damage ------------------------------------------------------------------------------------------------


def spoil(root: Path, record: StoredRecord, at: int, data: bytes) -> None:
    path = root / "commitlog" / f"{record.physical_offset // 4096 * 4096:020d}"
    put_bytes(path, record.physical_offset % 4096 + at, data)


def test_a_body_with_a_wrong_checksum_is_shown_as_the_record_that_it_is(tmp_path: Path) -> None:
    """Everything except its body is right; without checksums the damage is not noticed."""
    _, records = load_log(tmp_path / "commitlog", varied_messages(40))
    record = next(each for each in records[15:] if len(each.message.body) > 50)
    spoil(tmp_path, record, record.msg_size // 2, b"\x01\x02\x03")
    assert (record.msg_size // 2) < 88 + 12 + len(record.message.body)
    found = dump(tmp_path)
    (row,) = found.of("BAD_CRC")
    assert (row["physical_offset"], row["msg_size"]) == (record.physical_offset, record.msg_size)
    assert (row["topic"], row["store_timestamp"]) == (record.message.topic, record.message.store_timestamp)
    assert found.counts["MESSAGE"] == len(records) - 1
    for option in ("checkCrc=none", "onDamage=broker"):
        assert dump(tmp_path, option).counts["MESSAGE"] == len(records)


def test_a_damaged_record_is_told_with_how_far_is_passed_over(tmp_path: Path) -> None:
    """As quarantine would leave it out, or as a broker's replay does; every byte is accounted for."""
    _, records = load_log(tmp_path / "commitlog", varied_messages(40))
    record, after = records[15:17]
    spoil(tmp_path, record, 4, b"\x00\x00\x00\x07")
    found = dump(tmp_path)
    (row,) = found.of("BAD_MAGIC")
    assert (row["physical_offset"], row["next_offset"]) == (record.physical_offset, after.physical_offset)
    assert row["length"] == record.msg_size
    assert (Path(row["file"]).name, row["position"]) == (
        f"{4096 * (record.physical_offset // 4096):020d}",
        row["physical_offset"] % 4096,
    )
    assert row["head"].startswith(f"{record.msg_size:08x}00000007")
    assert sum(each["bytes"] for each in found.totals["verdicts"].values()) == found.totals["end"]
    inside = dump(tmp_path, begin=record.physical_offset + 9)
    assert inside.rows[0]["physical_offset"] == after.physical_offset
    assert "inside a damaged range" in inside.notes[0]
    (as_broker,) = dump(tmp_path, "onDamage=broker").of("BAD_MAGIC")
    assert as_broker["next_offset"] % 4096 == 0


def test_a_torn_record_at_the_end_is_no_damage(tmp_path: Path) -> None:
    """A broker may be writing it: the log ends before it, and a note says that."""
    with CommitLogWriter(tmp_path / "commitlog", 4096) as writer:
        for message in varied_messages(5):
            writer.append(message)
        end = writer.max_offset
        writer.append_torn(Message(body=b"x" * 200), 100)
    found = dump(tmp_path)
    assert found.counts == {"MESSAGE": 5}
    assert found.totals["end"] == end
    by_itself = file_dump(tmp_path / "commitlog" / f"{0:020d}")
    assert by_itself.rows[-1]["physical_offset"] == end
    assert by_itself.rows[-1]["verdict"] not in ("MESSAGE", "EMPTY", "BLANK")


def test_an_empty_log(tmp_path: Path) -> None:
    write_store(tmp_path, [], 4096)
    found = dump(tmp_path)
    assert (found.rows, found.counts) == ([], {})


def test_a_segment_without_its_name(tmp_path: Path) -> None:
    """Its first record says where it belongs; nothing does without one."""
    load_log(tmp_path / "commitlog", varied_messages(40))
    second = tmp_path / "commitlog" / f"{4096:020d}"
    copy = tmp_path / "copy.bin"
    copy.write_bytes(second.read_bytes())
    assert file_dump(copy).offsets() == file_dump(second).offsets()
    assert file_dump(copy).header["file_from_offset"] == 4096
    _, framed = load_log(tmp_path / "dledger-n0" / "data", varied_messages(10), dledger=True)
    entries = tmp_path / "entries.bin"
    entries.write_bytes((tmp_path / "dledger-n0" / "data" / f"{0:020d}").read_bytes())
    found = file_dump(entries)
    assert found.header["is_dledger"]
    offsets = [record.physical_offset for record in framed if record.physical_offset < 4096]
    assert [row["physical_offset"] for row in found.of("MESSAGE")] == offsets


def test_store_times_that_no_calendar_has(tmp_path: Path) -> None:
    """They are numbers, and no time."""
    last = 253_402_300_799_999
    times = [-(2**63), -1, 0, last, last + 1, 2**63 - 1]
    load_log(tmp_path / "commitlog", [replace(SHAPES["plain"], store_timestamp=time) for time in times])
    rows = dump(tmp_path).rows
    assert [row["store_timestamp"] for row in rows] == times
    texts = ["1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z"]
    assert [row["store_time"] for row in rows] == [None, *texts, None, None]
