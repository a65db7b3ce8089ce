"""ConsumeQueueExt: RocketMQ's golden bytes and its own tests' numbers, a slow model, real brokers' files."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sink_runner import MEMORY, files_below

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import consume_queue_ext_file
from reput.sinks.filter.consumer_filter import BloomFilter, ConsumerFilters, load_consumer_filters
from reput.sinks.formats.consume_queue import (
    ENTRY,
    MAX_ADDR,
    MAX_REAL_OFFSET,
    CqExtUnit,
    append_units,
    decorate,
    is_ext_addr,
    un_decorate,
)
from reput.sinks.queue.consume_queue_ext import ConsumeQueueExt, files_before
from reput.source.errors import OptionError, SinkError
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, scan_windows
from reput.source.record.message_decoder import Message
from reput.source.record.message_format import TRANSACTION_MASK

if TYPE_CHECKING:
    from conftest import BrokerStore

MIN = -(2**63)
Put = tuple[int, int, "bytes | None"]  # tags code, store timestamp, bitmap
EIGHT: Put = (5, 0x1122334455667788, bytes(range(1, 9)))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[DurableFiles]:
    with closing(DurableFiles(tmp_path)) as durable:
        yield durable


def open_ext(files: DurableFiles, file_size: int) -> ConsumeQueueExt:
    ext = ConsumeQueueExt(files, b"T", 0, file_size)
    ext.recover()
    return ext


def put(ext: ConsumeQueueExt, *puts: Put) -> list[int]:
    codes = np.array([code for code, _, _ in puts], np.int64)
    times = np.array([time for _, time, _ in puts], np.int64)
    return ext.put(codes, times, [bits for _, _, bits in puts]).tolist()


def contents(files: DurableFiles) -> dict[int, bytes]:
    return {int(Path(name).name): data for name, data in files_below(files.root).items()}


# -- addresses


def test_addresses() -> None:
    assert MAX_ADDR == -2147483649
    assert MAX_REAL_OFFSET == 9223372034707292159
    assert decorate(0) == MIN
    assert un_decorate(MIN + 616) == 616
    assert decorate(MAX_REAL_OFFSET) == MAX_ADDR
    assert is_ext_addr(MAX_ADDR)
    assert not is_ext_addr(MAX_ADDR + 1)
    for address in (MIN, MAX_ADDR):
        assert decorate(address) == address
    for code in (0, 1, -1, 2**31 - 1, -(2**31), 1795219638672):
        assert not is_ext_addr(code)
        assert un_decorate(code) == code


# -- golden bytes and the numbers of ConsumeQueueExtTest


def test_golden_bytes(files: DurableFiles) -> None:
    """The 4.9.3 class wrote these into files of 64 bytes: the end mark takes two of the last eight, the rest stays."""
    ext = open_ext(files, 64)
    assert put(ext, EIGHT, EIGHT, (-2, 9, None)) == [MIN, MIN + 28, MIN + 64]
    unit = "001C 0000000000000005 1122334455667788 0008 0102030405060708"
    first = bytes.fromhex(unit + unit + "FFFF 000000000000")
    second = bytes.fromhex("0014 FFFFFFFFFFFFFFFE 0000000000000009 0000").ljust(64, b"\0")
    assert files_below(files.root) == {
        f"consumequeue_ext/T/0/{0:020d}": first,
        f"consumequeue_ext/T/0/{64:020d}": second,
    }
    assert ext.get(MIN + 28) == CqExtUnit(28, 5, 0x1122334455667788, bytes(range(1, 9)))
    assert ext.get(MIN + 64) == CqExtUnit(20, -2, 9, None)
    assert ext.get(MIN + 56) is None  # the mark
    assert (ext.min_address, ext.max_address) == (MIN, MIN + 84)


FILE_SIZE = 280  # nine units of 28 bytes and the four that stay free


def test_put_and_get(files: DurableFiles) -> None:
    ext = open_ext(files, FILE_SIZE)
    puts = [(i, 1000 + i, None if i % 2 else bytes([i] * 8)) for i in range(20)]
    addresses = put(ext, *puts)
    assert all(address < 0 for address in addresses)
    found = [ext.get(address) for address in addresses]
    assert [(u.tags_code, u.msg_store_time, u.filter_bit_map) for u in found if u is not None] == puts
    at, sizes = MIN, []
    while (unit := ext.get(at)) is not None:
        sizes.append(unit.size)
        at += unit.size
    assert sizes == [28, 20] * 5 + [28]  # of the first file, where the walk ends at the mark
    assert ext.get(0) is None
    assert ext.get(10_000) is None


def test_recover(files: DurableFiles) -> None:
    put(open_ext(files, FILE_SIZE), *[EIGHT] * 20)
    ext = open_ext(files, FILE_SIZE)
    assert (ext.min_address, un_decorate(ext.max_address)) == (MIN, 616)
    assert put(ext, EIGHT) == [MIN + 616]


def truncate(files: DurableFiles, ext: ConsumeQueueExt, min_address: int) -> None:
    """``ConsumeQueueExt#truncateByMinAddress``, as the expiry of queues does it."""
    for file in files_before({file: file + FILE_SIZE for file in contents(files)}, min_address):
        files.remove(*consume_queue_ext_file(b"T", 0, file))
        ext.forget_file(file)


def test_the_files_before_an_address_are_forgotten(files: DurableFiles) -> None:
    ext = open_ext(files, FILE_SIZE)
    put(ext, *[EIGHT] * 40)
    truncate(files, ext, 5)
    truncate(files, ext, decorate(280))  # a file that ends right there stays
    assert ext.min_address == MIN
    truncate(files, ext, decorate(420))
    assert un_decorate(ext.min_address) == 280
    assert sorted(contents(files)) == [280, 560, 840, 1120]
    assert ext.get(MIN) == ext.get(MIN + 280)  # as the broker: the first file replaces a lost first one
    assert ext.get(MIN + 28) is None
    again = open_ext(files, FILE_SIZE)
    assert (again.min_address, again.max_address) == (ext.min_address, ext.max_address)
    truncate(files, again, decorate(100_000))
    assert (contents(files), again.max_address) == ({}, MIN)
    assert put(again, EIGHT) == [MIN]


def test_truncate_by_max_address(files: DurableFiles) -> None:
    ext = open_ext(files, FILE_SIZE)
    put(ext, *[EIGHT] * 40)
    before = contents(files)
    for nothing in (1, 0, decorate(252), decorate(100_000)):  # no address, a mark, no file
        ext.truncate_by_max_address(nothing)
    assert contents(files) == before
    ext.truncate_by_max_address(decorate(2 * 280 + 28))
    assert un_decorate(ext.max_address) == 2 * 280 + 56
    after = contents(files)
    assert sorted(after) == [0, 280, 560]
    assert after[560] == before[560][:56].ljust(FILE_SIZE, b"\0")
    assert open_ext(files, FILE_SIZE).max_address == ext.max_address
    put(ext, *[EIGHT] * 20)
    assert contents(files) == before


def test_truncate_everything(files: DurableFiles) -> None:
    ext = open_ext(files, FILE_SIZE)
    put(ext, *[EIGHT] * 20)
    ext.truncate_dirty_files(0)
    assert contents(files) == {0: bytes(FILE_SIZE)}
    assert put(ext, EIGHT) == [MIN]


# -- units that cannot be put


def test_a_unit_that_fits_in_no_file_burns_three(files: DurableFiles) -> None:
    ext = open_ext(files, 64)
    mark = b"\xff\xff"
    assert put(ext, (1, 1, bytes(41)), EIGHT) == [1, MIN + 3 * 64]
    burned = mark.ljust(64, b"\0")
    assert [contents(files)[at] for at in (0, 64, 128)] == [burned] * 3
    assert put(ext, (1, 1, bytes(41))) == [1]
    assert contents(files)[192][28:30] == mark
    assert sorted(contents(files)) == [0, 64, 128, 192, 256, 320]
    assert un_decorate(ext.max_address) == 384
    assert un_decorate(open_ext(files, 64).max_address) == 320  # a mark is not a unit


def test_a_unit_too_large_for_its_size_field(files: DurableFiles) -> None:
    ext = open_ext(files, 70_000)
    assert put(ext, (1, 1, bytes(32_748)), (1, 1, b"\1" * 32_747)) == [1, MIN]
    unit = ext.get(MIN)
    assert unit is not None
    assert (unit.size, unit.filter_bit_map) == (32_767, b"\1" * 32_747)


def test_the_queue_has_an_end() -> None:
    one = np.array([1], np.int64)
    at = MAX_REAL_OFFSET - 20
    assert append_units(one, one, [None], at, 2**62).addresses.tolist() == [at + MIN]
    refused = append_units(one, one, [None], at + 1, 2**62)
    assert (refused.addresses.tolist(), refused.writes, refused.end) == ([1], (), at + 1)


def test_nothing_to_put(files: DurableFiles) -> None:
    assert put(open_ext(files, 64)) == []
    assert contents(files) == {}


def test_columns_of_different_lengths_are_refused(files: DurableFiles) -> None:
    with pytest.raises(ValueError, match="2 tags codes, 1 timestamps and 2 bitmaps"):
        open_ext(files, 64).put(np.zeros(2, np.int64), np.zeros(1, np.int64), [None, None])


# -- the model


def model(puts: Sequence[Put], file_size: int) -> tuple[list[int], dict[int, bytes]]:
    """``ConsumeQueueExt#put`` written out slowly: one bytearray a file."""
    written: dict[int, bytearray] = {}
    place: dict[int, int] = {}
    addresses = []
    for code, time, bit_map in puts:
        bits = bit_map or b""
        unit = struct.pack(">hqqh", 20 + len(bits), code, time, len(bits)) + bits
        address = 1
        for _ in range(3):
            last = max(written, default=None)
            if last is None or place[last] == file_size:
                last = 0 if last is None else last + file_size
                written[last], place[last] = bytearray(file_size), 0
            if len(unit) > file_size - place[last] - 4:
                written[last][place[last] : place[last] + 2] = b"\xff\xff"
                place[last] = file_size
                continue
            written[last][place[last] : place[last] + len(unit)] = unit
            address = MIN + last + place[last]
            place[last] += len(unit)
            break
        addresses.append(address)
    return addresses, {at: bytes(data) for at, data in written.items()}


LONGS = st.integers(-(2**63), 2**63 - 1)
BIT_MAPS = st.one_of(st.none(), st.binary(max_size=3), st.integers(0, 90).map(lambda size: b"\xa5" * size))


@given(
    st.lists(st.tuples(LONGS, LONGS, BIT_MAPS), max_size=40),
    st.integers(4, 200),
    st.integers(1, 7),
    st.booleans(),
)
def test_any_units_in_any_batches_follow_the_model(
    puts: list[Put], file_size: int, batch_size: int, is_restarted: bool
) -> None:
    """Same addresses, same bytes; a restart between batches changes nothing where no file was ended without a unit."""
    expected, expected_files = model(puts, file_size)
    is_restarted = is_restarted and 1 not in expected
    with TemporaryDirectory(dir=MEMORY) as directory, closing(DurableFiles(Path(directory))) as files:
        ext = open_ext(files, file_size)
        addresses: list[int] = []
        for at in range(0, len(puts), batch_size):
            addresses += put(ext, *puts[at : at + batch_size])
            if is_restarted:
                end = ext.max_address
                ext = open_ext(files, file_size)
                assert ext.max_address == end
        assert addresses == expected
        assert contents(files) == expected_files
        for address, (code, time, bit_map) in zip(addresses, puts, strict=True):
            unit = ext.get(address)
            if address == 1:
                assert unit is None
            else:
                assert unit is not None
                assert (unit.tags_code, unit.msg_store_time) == (code, time)
                assert unit.filter_bit_map == (bit_map or None)


@given(st.lists(st.tuples(LONGS, LONGS, st.none() | st.binary(max_size=20)), min_size=1, max_size=30), st.data())
def test_cut_anywhere_and_put_again(puts: list[Put], data: st.DataObject) -> None:
    """After a crash the units behind the queue's last entry are dropped; dispatched again, the files are equal."""
    with TemporaryDirectory(dir=MEMORY) as directory, closing(DurableFiles(Path(directory))) as files:
        ext = open_ext(files, 100)
        addresses = put(ext, *puts)
        expected = contents(files)
        last = data.draw(st.integers(0, len(puts) - 1))
        ext = open_ext(files, 100)
        ext.truncate_by_max_address(addresses[last])
        assert open_ext(files, 100).max_address == ext.max_address == addresses[last] + 20 + len(puts[last][2] or b"")
        assert put(ext, *puts[last + 1 :]) == addresses[last + 1 :]
        assert contents(files) == expected


# -- files that are not as they should be


def path_of(files: DurableFiles, at: int = 0) -> Path:
    return files.root / "consumequeue_ext" / "T" / "0" / f"{at:020d}"


def test_a_file_of_another_size_is_refused(files: DurableFiles) -> None:
    put(open_ext(files, 64), EIGHT)
    with pytest.raises(SinkError, match=r"has 64 bytes and begins at 0 where mappedFileSizeConsumeQueueExt is 128"):
        open_ext(files, 128)


def test_a_file_without_its_size_is_dropped(files: DurableFiles) -> None:
    put(open_ext(files, 64), EIGHT)
    path_of(files, 64).touch()
    path_of(files).with_name("notes.txt").touch()
    assert open_ext(files, 64).max_address == MIN + 28
    assert not path_of(files, 64).exists()
    path_of(files).write_bytes(b"")
    assert open_ext(files, 64).max_address == MIN


@pytest.mark.parametrize(("size", "at"), [(37, 28), (0x7FFF, 28), (36, 64)])
def test_a_unit_over_the_file_s_end_is_refused(files: DurableFiles, size: int, at: int) -> None:
    put(open_ext(files, 64), EIGHT)
    data = bytearray(path_of(files).read_bytes())
    data[28:30] = size.to_bytes(2, "big")
    path_of(files).write_bytes(data)
    with pytest.raises(SinkError, match=rf"the unit at byte {at} runs over the file's end"):
        open_ext(files, 64)


def test_an_address_of_garbage(files: DurableFiles) -> None:
    """The bytes there are taken for a unit, unless it would pass the end of the written bytes."""
    ext = open_ext(files, 128)
    put(ext, *[EIGHT] * 3)
    unit = CqExtUnit(0x1122, 0x3344556677880008, 0x0102030405060708, contents(files)[0][30:58])
    assert ext.get(MIN + 10) == unit
    with pytest.raises(SinkError, match="no unit at byte 1: it runs over the 84 bytes written"):
        ext.get(MIN + 1)
    with pytest.raises(SinkError, match="no unit at byte 72: it runs over the 84 bytes written"):
        ext.get(MIN + 72)


@pytest.mark.parametrize("topic", [b"../x", b"", b"a/b", b"."])
def test_hostile_names_make_no_directory(files: DurableFiles, topic: bytes) -> None:
    with pytest.raises(SinkError, match="no queue is made of it"):
        ConsumeQueueExt(files, topic, 0, 64)


def test_files_have_a_least_size(files: DurableFiles) -> None:
    with pytest.raises(OptionError, match="mappedFileSizeConsumeQueueExt is 3"):
        ConsumeQueueExt(files, b"T", 0, 3)


# -- a real broker's files

STORE = "v4-sql92-rebuilt"
EXT_FILE_SIZE = 8192
GetStore = Callable[[str], "BrokerStore"]
Queue = tuple[str, int]


def ext_files(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_below(root).items() if name.startswith("consumequeue_ext/")}


def walk(data: bytes) -> Iterator[CqExtUnit]:
    at = 0
    while (unit := CqExtUnit.read(data[at:])) is not None:
        yield unit
        at += unit.size


def test_the_broker_s_units_put_again_give_its_files(broker_store: GetStore, files: DurableFiles) -> None:
    theirs = ext_files(broker_store(STORE).root)
    units: dict[Queue, list[Put]] = {}
    for name, data in theirs.items():
        _, topic, queue_id, _ = name.split("/")
        found = [(unit.tags_code, unit.msg_store_time, unit.filter_bit_map) for unit in walk(data)]
        units.setdefault((topic, int(queue_id)), []).extend(found)
    assert (len(theirs), sum(map(len, units.values()))) == (28, 6300)
    chance = random.Random(5)
    for (topic, queue_id), puts in units.items():
        ext = ConsumeQueueExt(files, topic.encode(), queue_id, EXT_FILE_SIZE)
        ext.recover()
        while puts:
            count = chance.randint(1, 400)
            put(ext, *puts[:count])
            del puts[:count]
    assert files_below(files.root) == theirs


def messages(commitlog: Path) -> Iterator[Message]:
    options = DecodeOptions(check_crc=True)
    delays = np.array(options.delays_ms, np.int64)
    for segment in MappedFileQueue.load([commitlog]).files:
        for window in scan_windows(segment, segment.file_from_offset, segment.end, options):
            yield from window.decode(delays).columns.messages()


def dispatch(log: Iterator[Message], filters: ConsumerFilters, files: DurableFiles) -> dict[Queue, list[int]]:
    """Put a unit for every queued record, in the log's order; gives each queue's third fields."""
    queues: dict[Queue, list[Put]] = {}
    for message in log:
        if message.sys_flag & TRANSACTION_MASK in (0x0, 0x8):
            bits = filters.bit_map(message.topic, message.properties)
            record = (message.tags_code, message.store_timestamp, bits)
            queues.setdefault((message.topic, message.queue_id), []).append(record)
    fields = {}
    for (topic, queue_id), puts in queues.items():
        ext = ConsumeQueueExt(files, topic.encode(), queue_id, EXT_FILE_SIZE)
        ext.recover()
        fields[topic, queue_id] = [
            address if is_ext_addr(address) else code
            for address, (code, _, _) in zip(put(ext, *puts), puts, strict=True)
        ]
    return fields


def test_a_log_dispatched_with_its_filters_gives_the_broker_s_files(
    broker_store: GetStore, files: DurableFiles
) -> None:
    """From the log and ``config/consumerFilter.json`` alone: every byte of consumequeue_ext/, every third field."""
    root = broker_store(STORE).root
    filters = load_consumer_filters(root / "config" / "consumerFilter.json", BloomFilter(), contains=False)
    fields = dispatch(messages(root / "commitlog"), filters, files)
    assert files_below(files.root) == ext_files(root)
    theirs: dict[Queue, list[int]] = {}
    for path in sorted((root / "consumequeue").glob("*/*/*")):
        entries = np.fromfile(path, ENTRY)
        codes = entries["tags_code"][entries["msg_size"] > 0].tolist()
        theirs.setdefault((path.parts[-3], int(path.parts[-2])), []).extend(codes)
    assert fields == theirs
    assert sum(map(len, fields.values())) == 6300
