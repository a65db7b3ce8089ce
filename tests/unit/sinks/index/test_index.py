"""IndexFiles: equal to the model for any log and any batches; capacity, chains, inherited times."""

from __future__ import annotations

import itertools
import random
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.model import Settings, index_file_contents, java_hash
from support.record_writer import Message, StoredRecord, write_log
from support.sink_runner import (
    MEMORY,
    LogBatches,
    files_below,
    index_contents,
    no_fsync,
    record_bounds,
    stuck_clock,
)

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.scratch import Scratch
from reput.sinks.index.index_sink import IndexSink, PutKeys
from reput.streaming.effects.effects import IndexPutTasks
from reput.streaming.tasks.tasks import SerialTasks

#: In TopicA and TopicB the hash of these is Integer.MIN_VALUE, whose absolute value is itself.
MIN_VALUE_KEYS = {"TopicA": "wZwaha7", "TopicB": "SG8aWtj"}
T = 1_700_000_000_000
FEWER = settings(max_examples=settings().max_examples // 2)  # an example takes 20 ms


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Message], Settings]:
    """Messages with 0 to 6 keys out of few, tiny index files, and store times that fall, stay, jump or are 0."""
    key = st.sampled_from(["a", "b", "ab", "中文", "😀", *MIN_VALUE_KEYS.values()])
    separator = st.sampled_from([" ", "  ", "   "])
    keys = st.lists(st.tuples(key, separator), max_size=5).map(lambda pairs: "".join(itertools.chain(*pairs)))
    time = st.sampled_from([0, 1, T - 5000, T, T + 1, T + 999, T + 1000, T + 1999, T + 2**31 * 1000, T + 2**32 * 1000])
    topic = st.sampled_from(["TopicA", "TopicB"])
    kind = st.sampled_from([0x0] * 4 + [0x4, 0x8, 0xC])
    messages = []
    size = draw(st.integers(1, 25))
    fields = st.tuples(topic, key | st.none(), st.just("") | keys | keys.map(" ".__add__), time, kind)
    for name, uniq_key, some_keys, at, sys_flag in draw(st.lists(fields, min_size=size, max_size=size)):
        properties = {"KEYS": some_keys} | ({"UNIQ_KEY": uniq_key} if uniq_key else {})
        messages.append(Message(name, properties=properties, store_timestamp=at, sys_flag=sys_flag))
    slots, indexes = draw(st.integers(1, 5)), draw(st.integers(2, 6))
    return messages, Settings(max_hash_slot_num=slots, max_index_num=indexes)


def open_sink(files: DurableFiles, settings: Settings, clock: Callable[[], float] = stuck_clock) -> IndexSink:
    """A new run's sink, recovered."""
    sink = IndexSink(files, settings.max_hash_slot_num, settings.max_index_num, clock)
    sink.recover(0)
    return sink


def before(records: Sequence[StoredRecord], end: int) -> list[StoredRecord]:
    return [record for record in records if record.physical_offset < end]


@given(logs(), st.data())
@FEWER
def test_any_log_in_any_batches_equals_the_model(log: tuple[list[Message], Settings], data: st.DataObject) -> None:
    """Whatever keys and times come and wherever runs restart, the files are the model's at the end of each batch."""
    messages, settings = log
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync(), ExitStack() as stack:
        files = stack.enter_context(closing(DurableFiles(Path(directory) / "out")))
        records = write_log(Path(directory) / "log", messages, 1000)
        batches, allowed = LogBatches(Path(directory) / "log"), record_bounds(records)
        inner = data.draw(st.sets(st.sampled_from(allowed)), label="cuts")
        sink = open_sink(files, settings)
        for start, end in itertools.pairwise(sorted(inner | {allowed[0], allowed[-1]})):
            if data.draw(st.integers(0, 3), label="restart at 0") == 0:
                sink = open_sink(files, settings)
            sink.write(batches(start, end))
            assert index_contents(files.root) == index_file_contents(before(records, end), settings)


@given(logs(), st.data())
@FEWER
def test_replays_and_other_cuts_change_no_byte(log: tuple[list[Message], Settings], data: st.DataObject) -> None:
    """G1: any range given again, before or after its successors, by the same run or the next, has its effect once."""
    messages, settings = log
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync(), ExitStack() as stack:
        files = stack.enter_context(closing(DurableFiles(Path(directory) / "out")))
        records = write_log(Path(directory) / "log", messages, 1000)
        batches, allowed = LogBatches(Path(directory) / "log"), record_bounds(records)
        offset = st.sampled_from(allowed)
        span = st.tuples(offset, offset).map(sorted)
        sink = open_sink(files, settings)
        for start, end in data.draw(st.lists(span, max_size=5), label="ranges"):
            if start < end and start <= sink.end_offset:
                sink.write(batches(start, end))
        sink.write(batches(0, allowed[-1]))
        assert index_contents(files.root) == index_file_contents(records, settings)
        after_all = files_below(files.root)
        for start, end in data.draw(st.lists(span, max_size=3), label="replays"):
            if start < end:
                sink.write(batches(start, end))
        open_sink(files, settings).write(batches(0, allowed[-1]))
        assert files_below(files.root) == after_all


def put_twice(files: DurableFiles) -> PutKeys:
    """As ``IndexPutTasks`` has tasks put keys, with tasks that do their work again when all others are done."""

    class Again(SerialTasks):
        def start(self, work: Any, count: int, on_result: Any = None) -> Any:
            return lambda: [[work(number) for number in range(count)] for _ in range(2)][1]

    return IndexPutTasks(Again(), files.root)


@given(logs(), st.data())
@FEWER
def test_keys_put_by_tasks_equal_those_put_by_the_sink(
    log: tuple[list[Message], Settings], data: st.DataObject
) -> None:
    """Whichever batches tasks put, twice, and wherever runs restart; slots come with a file's end, or with `finish`."""
    messages, settings = log
    with TemporaryDirectory(dir=MEMORY) as directory, no_fsync(), ExitStack() as stack:
        files = stack.enter_context(closing(DurableFiles(Path(directory) / "out")))
        records = write_log(Path(directory) / "log", messages, 1000)
        scratch = Scratch(files)
        scratch.clear()
        batches = LogBatches(Path(directory) / "log", scratch=scratch.directory)
        allowed, put_keys = record_bounds(records), put_twice(files)
        inner = data.draw(st.sets(st.sampled_from(allowed)), label="cuts")
        sink = open_sink(files, settings)
        for start, end in itertools.pairwise(sorted(inner | {allowed[0], allowed[-1]})):
            if data.draw(st.integers(0, 3), label="restart at 0") == 0:
                scratch.sweep()
                sink = open_sink(files, settings)
            by_tasks = data.draw(st.booleans(), label="by tasks")
            sink.write(batches(start, end), slots_later=True, put_keys=put_keys if by_tasks else None)
        sink.finish()
        assert index_contents(files.root) == index_file_contents(records, settings)


# --- by name ---------------------------------------------------------------------------------------------


def index_of(tmp_path: Path, messages: Sequence[Message], settings: Settings) -> list[bytes]:
    """The index of these messages, in one batch and message by message: the same files."""
    results = []
    records = write_log(tmp_path / "log", messages)
    batches, allowed = LogBatches(tmp_path / "log"), record_bounds(records)
    for name, cuts in (("one", [allowed[0], allowed[-1]]), ("each", allowed)):
        with closing(DurableFiles(tmp_path / name)) as files, no_fsync():
            sink = open_sink(files, settings)
            for start, end in itertools.pairwise(cuts):
                sink.write(batches(start, end))
            results.append(index_contents(files.root))
    assert results[0] == results[1] == index_file_contents(records, settings)
    return results[0]


def keyed(*keys_and_times: tuple[str, int]) -> list[Message]:
    return [Message("T", properties={"KEYS": keys}, store_timestamp=time) for keys, time in keys_and_times]


def header_of(content: bytes) -> tuple[int, ...]:
    return struct.unpack_from(">qqqqii", content)


def entries_of(content: bytes, settings: Settings) -> list[tuple[int, int, int, int]]:
    """(hash, physical offset, time difference, previous) of the entries that the header counts, from number 1."""
    at = 40 + 4 * settings.max_hash_slot_num
    everything = list(struct.iter_unpack(">iqii", content[at:]))
    count = max(1, header_of(content)[5])
    assert not any(any(entry) for entry in [everything[0], *everything[count:]])
    return everything[1:count]


@pytest.mark.parametrize("max_index_num", [2, 4, 5])
def test_a_file_takes_one_key_less_than_max_index_num(max_index_num: int, tmp_path: Path) -> None:
    """Entry 0 is never used; the next file begins with the next key, in the middle of a message's keys too."""
    settings = Settings(max_hash_slot_num=5, max_index_num=max_index_num)
    contents = index_of(tmp_path, keyed(("a b c", T), ("a b c", T), ("a b c", T)), settings)
    counts = [len(entries_of(content, settings)) for content in contents]
    assert counts[:-1] == [max_index_num - 1] * (len(counts) - 1)
    assert sum(counts) == 9
    assert {len(content) for content in contents} == {40 + 4 * 5 + 20 * max_index_num}


def test_the_reference_vectors(tmp_path: Path) -> None:
    """The bytes that the 4.9.3 classes gave, as far as they do not hold the records' places."""
    settings = Settings(max_hash_slot_num=5, max_index_num=4)
    times = [1000000000000, 1000000001500, 1000000003000, 1000000008000]
    first, second = index_of(tmp_path, keyed(*zip("abaa", times, strict=True)), settings)
    assert header_of(first)[:2] == (times[0], times[2])
    assert header_of(first)[4:] == (2, 4)
    assert struct.unpack_from(">5i", first, 40) == (0, 3, 2, 0, 0)
    assert [(key, seconds, previous) for key, _, seconds, previous in entries_of(first, settings)] == [
        (0x13FF2, 0, 0),
        (0x13FF3, 1, 0),
        (0x13FF2, 3, 1),
    ]
    # The first key of a later file is measured against the inherited end of the file before.
    assert [(key, seconds) for key, _, seconds, _ in entries_of(second, settings)] == [(0x13FF2, 5)]
    assert header_of(second)[:2] == (times[3], times[3])


def test_later_keys_of_a_later_file_count_from_its_own_first(tmp_path: Path) -> None:
    """Only the first entry has the inherited base; going back in time is 0, and more than 2^31 - 1 seconds is that."""
    settings = Settings(max_hash_slot_num=5, max_index_num=5)
    times = [T, T, T, T, T + 10_000, T + 12_999, T + 9_000, T + 10_000 + 2**32 * 1000]
    _, second = index_of(tmp_path, keyed(*(("k", time) for time in times)), settings)
    assert [seconds for _, _, seconds, _ in entries_of(second, settings)] == [10, 2, 0, 2**31 - 1]
    assert header_of(second)[:2] == (times[4], times[7])


def test_a_message_without_keys_behind_a_full_file_makes_the_next(tmp_path: Path) -> None:
    """As does a rolled-back one; the file has the inherited header and the count 0."""
    settings = Settings(max_hash_slot_num=5, max_index_num=2)
    rolled_back = Message("T", properties={"KEYS": "x"}, sys_flag=0xC)
    for number, last in enumerate([Message("T"), rolled_back]):
        first, second = index_of(tmp_path / str(number), [*keyed(("a", T)), last], settings)
        assert header_of(first)[5] == 2
        assert header_of(second) == (T, T, 0, 0, 0, 0)  # the only key is of the record at place 0
        assert not any(second[40:])
    assert index_of(tmp_path / "none", [rolled_back], settings) == [bytes(40 + 20 + 40)]


def test_integer_min_value_becomes_hash_0(tmp_path: Path) -> None:
    """Math.abs of it is negative: the broker takes 0, slot 0."""
    settings = Settings(max_hash_slot_num=5, max_index_num=9)
    for topic, key in MIN_VALUE_KEYS.items():
        assert java_hash(f"{topic}#{key}") == -(2**31)
        message = Message(topic, properties={"KEYS": f"a {key}", "UNIQ_KEY": key})
        (content,) = index_of(tmp_path / topic, [message], settings)
        assert [entry[0] for entry in entries_of(content, settings)][::2] == [0, 0]
        assert struct.unpack_from(">i", content, 40)[0] == 3


def test_slots_say_what_the_chains_say(tmp_path: Path) -> None:
    """Thousands of slots on several pages: each leads to exactly its own entries, newest first."""
    settings = Settings(max_hash_slot_num=5000, max_index_num=900)
    rng = random.Random(5)
    messages = keyed(*((f"key{rng.randrange(700)} key{rng.randrange(10**6)}", T + i) for i in range(1000)))
    for content in index_of(tmp_path, messages, settings):
        entries = entries_of(content, settings)
        expected: dict[int, list[int]] = defaultdict(list)
        for number, entry in enumerate(entries, 1):
            expected[entry[0] % 5000].insert(0, number)
        found = {}
        for slot, (first,) in enumerate(struct.iter_unpack(">i", content[40 : 40 + 4 * 5000])):
            chain, number = [], first
            while number:
                chain.append(number)
                number = entries[number - 1][3]
            if chain:
                found[slot] = chain
        assert found == expected
        assert header_of(content)[4] == len(found)
