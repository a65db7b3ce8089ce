"""Eight batches under which a system may break: what was before them, and what every place's files must be."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from faults.fault_files import Disk, Fault, Stopped, no_fault, system
from support.model import Settings, index_file_contents
from support.record_writer import Message, StoredRecord, write_log
from support.sink_runner import (
    LogBatches,
    SinkRun,
    check_output,
    expected_queue_files,
    files_below,
    index_contents,
    no_fsync,
    queue_files,
    record_bounds,
)

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.logic_needs import LogicNeeds, MultiDispatch
from reput.source.errors import OutputError

SETTINGS = Settings(mapped_file_size_consume_queue=1200, max_hash_slot_num=150, max_index_num=60)
Tree = dict[str, bytes]


def message(number: int, topic: str = "A", keys: int = 1, **fields: int) -> Message:
    names = " ".join(f"k{number % 7}{letter}" for letter in "abcd"[:keys])
    return Message(topic, properties={"KEYS": names}, store_timestamp=1_000_000_000_000 + 700 * number, **fields)


def middle_messages() -> list[Message]:
    return [message(i, "ABC"[i % 3], queue_id=i % 2) for i in range(30)]


def queue_roll_messages() -> list[Message]:
    """A's file has 58 of 60 entries before the batch, and B's is full."""
    return [message(i, "A" if i < 58 else "B", keys=0) for i in range(118)] + [
        message(i, "AB"[i % 2], keys=i % 2) for i in range(118, 132)
    ]


def index_roll_messages() -> list[Message]:
    """The file has 58 of 59 keys before the batch; the batch's first message lies in two files."""
    return [message(i, keys=2) for i in range(29)] + [message(i, keys=4 * (i % 2)) for i in range(29, 45)]


def segment_roll_messages() -> list[Message]:
    """Of 2,000 bytes; the batch crosses two of them."""
    return [message(i, "AB"[i % 2]) for i in range(50)]


def many_topics_messages() -> list[Message]:
    """New queues, some of which begin in the middle of a file, among old ones."""
    old = [message(i, "AB"[i % 2]) for i in range(6)]
    new = [message(i, f"New{i}", queue_id=i % 3, queue_offset=[None, 7, 60, 0][i % 4]) for i in range(6, 13)]
    return old + new + [message(i, f"New{i - 7}", queue_id=(i - 7) % 3) for i in range(13, 20)]


def ext_messages() -> list[Message]:
    """Queues with ConsumeQueueExt units: files of four units roll, queues begin, a message goes to a further queue."""
    messages = [message(i, "AB"[i % 2] if i < 20 else "ABC"[i % 3]) for i in range(34)]
    further = {"INNER_MULTI_DISPATCH": "%LMQ%x", "INNER_MULTI_QUEUE_OFFSET": "0", "TAGS": "t"}
    return [*messages[:15], replace(messages[15], properties=further), *messages[16:]]


def inner_batch_messages() -> list[Message]:
    """B has a BatchConsumeQueue, in files of three entries; A has a plain one."""
    messages = []
    for number in range(24):
        inner = {"INNER_NUM": "2", "INNER_BASE": str(2 * (number // 4)), "TAGS": "t", "KEYS": f"k{number % 5}"}
        is_batch = number % 2 == 0
        topic, queue_id = ("B", number // 2 % 2) if is_batch else ("A", 0)
        messages.append(replace(message(number, topic, queue_id=queue_id), properties=inner if is_batch else {}))
    return messages


#: The messages; how many are before the batch, and up to its end.
SHAPES: dict[str, tuple[Callable[[], list[Message]], int, int]] = {
    "first": (middle_messages, 0, 9),
    "middle": (middle_messages, 11, 22),
    "queue-file roll": (queue_roll_messages, 118, 126),
    "index roll": (index_roll_messages, 29, 37),
    "segment roll": (segment_roll_messages, 11, 39),
    "many topics": (many_topics_messages, 4, 14),
    "many topics, synced whole": (many_topics_messages, 4, 14),
    "ext": (ext_messages, 11, 25),
    "inner batches": (inner_batch_messages, 7, 17),
}
#: The additional settings of shapes beyond plain queues and index.
NEEDS = {
    "ext": LogicNeeds(ext=True, multi_dispatch=MultiDispatch(enable_lmq=True)),
    "inner batches": LogicNeeds(batch_topics=frozenset({b"B"})),
}
EXT_FILE_SIZES = {"ext": 84}
#: How `system` differs for them.
SYSTEMS: dict[str, dict[str, Any]] = {
    "many topics": {"_OPEN_FILES_MAX": 4},
    "many topics, synced whole": {"_OPEN_FILES_MAX": 4, "_SYNCED_WHOLE_FROM": 4, "is_synced_whole": True},
}
BATCH_FILE_SIZES = {"inner batches": 3 * 46}


@dataclass
class Shape:
    """One shape's log. `start`, `middle`, `end`, `last`: the batch, a place to cut it, the end of the log."""

    name: str
    log: Path
    root: Path
    records: list[StoredRecord]
    start: int
    middle: int
    end: int
    last: int
    states: dict[int, Tree] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._batches = LogBatches(self.log, needs=NEEDS.get(self.name))
        self._known: dict[tuple[int, int], LogicBatch] = {}
        cuts = [0, *([self.start] if self.start else []), self.middle, self.end, self.last]
        with no_fsync(), self.new_run() as run:
            self.states[0] = files_below(self.root) if self.start else {}
            for start, end in itertools.pairwise(cuts):
                run.write(self.batch(start, end))
                self.states[end] = files_below(self.root)
        if self.name in EXT_FILE_SIZES:
            check_ext_output(self.root, self.records)
        elif self.name in BATCH_FILE_SIZES:
            check_batch_output(self.root, self.records)
        else:
            check_output(self.root, self.records, SETTINGS)

    def new_run(self) -> SinkRun:
        """A process's sinks on the root, not recovered yet."""
        ext, batch = EXT_FILE_SIZES.get(self.name), BATCH_FILE_SIZES.get(self.name)
        return SinkRun(self.root, SETTINGS, ext_file_size=ext, batch_file_size=batch)

    def batch(self, start: int, end: int) -> LogicBatch:
        """The batch of a range, made once: sinks change nothing of it."""
        if (start, end) not in self._known:
            self._known[start, end] = self._batches(start, end)
        return self._known[start, end]

    def restore(self) -> None:
        """Put the root back to where the batch begins."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        for path, data in self.states[self.start].items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(data)

    def cuts(self, *, other: bool) -> list[int]:
        """The batch and the rest of the log; with `other`, in other batches."""
        return [self.start, self.middle, self.last] if other else [self.start, self.end, self.last]


def make_shape(name: str, directory: Path) -> Shape:
    """Write a shape's log and run it without a fault."""
    messages, before, until = SHAPES[name]
    records = write_log(directory / "log", messages(), 2000)
    start, middle, end = (_place(records, count) for count in (before, (before + until) // 2, until))
    return Shape(name, directory / "log", directory / "out", records, start, middle, end, record_bounds(records)[-1])


def _place(records: Sequence[StoredRecord], count: int) -> int:
    return records[count].physical_offset


def check_ext_output(root: Path, records: Sequence[StoredRecord]) -> None:
    """Each entry of a message's own queue leads to a unit with its tags code and store time, all units are led to."""
    times = {record.physical_offset: record.message.store_timestamp for record in records}
    units = 0
    for path in (root / "consumequeue").glob("*/*/*"):
        data = path.read_bytes()
        for at in range(0, len(data), 20):
            physical_offset, size, code = struct.unpack_from(">qiq", data, at)
            if not size or path.parent.parent.name == "%LMQ%x":
                assert code in (0, ord("t"))
                continue
            offset = code + 2**63
            directory = root / "consumequeue_ext" / path.parent.parent.name / path.parent.name
            unit = (directory / f"{offset - offset % 84:020d}").read_bytes()[offset % 84 :]
            assert struct.unpack_from(">hqqh", unit)[::2] == (20, times[physical_offset])
            units += 1
    assert units == len(records)
    assert len(list((root / "consumequeue_ext").glob("*/*/*"))) > 3


def check_batch_output(root: Path, records: Sequence[StoredRecord]) -> None:
    """Each inner batch has its entry of 46 bytes in its own queue, every other message one in its ConsumeQueue."""
    found: dict[tuple[str, str], bytes] = {}
    for path in sorted((root / "batchconsumequeue").glob("*/*/*")):
        key = path.parent.parent.name, path.parent.name
        found[key] = found.get(key, b"") + path.read_bytes()
    expected: dict[tuple[str, str], bytes] = {}
    for at, record, size in records:
        if record.topic == "B":
            assert isinstance(record.properties, dict)
            base, count = int(record.properties["INNER_BASE"]), int(record.properties["INNER_NUM"])
            entry = struct.pack(">qiqqqhii", at, size, ord("t"), record.store_timestamp, base, count, -1, 0)
            key = "B", str(record.queue_id)
            expected[key] = expected.get(key, b"") + entry
    assert {key: data.rstrip(b"\0") for key, data in found.items()} == {
        key: data.rstrip(b"\0") for key, data in expected.items()
    }
    others = [record for record in records if record.message.topic != "B"]
    assert queue_files(root) == expected_queue_files(others, SETTINGS)
    assert index_contents(root) == index_file_contents(records, SETTINGS)


class NothingKept(Random):
    """The plainest of power failures: what was not synced is gone."""

    def random(self) -> float:
        return 0.0

    def randrange(self, *_: object) -> int:
        return 0

    def choice(self, seq: Sequence[Any]) -> Any:
        return seq[0]


class Processes:
    """One output through a series of processes on one disk; knows what was promised to last."""

    def __init__(self, shape: Shape, *, in_waves: bool = False) -> None:
        """With `in_waves` the batch is written in two, the first of which leaves for later what may wait."""
        shape.restore()
        self.shape = shape
        self._in_waves = in_waves
        self.disk = Disk(shape.root)
        self.promised: dict[str, int] = {}

    def recover_one(self, name: str) -> None:
        """A new process recovers this sink, and dies."""
        with system(self.disk):
            run = self.shape.new_run()
            sink = next(sink for sink in run.sinks if sink.name == name)
            self.promised[name] = sink.recover(self.shape.start).end_offset
            run.close()

    def run(self, fault: Fault, *, other_cuts: bool = False, seed: int = 0) -> BaseException | None:
        """Recover and dispatch up to the batch's end in a new process; returns what ended it before that."""
        cuts = [offset for offset in self.shape.cuts(other=other_cuts) if offset <= self.shape.end]
        if self._in_waves:
            cuts = [self.shape.start, self.shape.middle, self.shape.end]
        with system(self.disk, fault, seed, **SYSTEMS.get(self.shape.name, {})):
            run = self.shape.new_run()
            try:
                run.recover()
                for start, end in itertools.pairwise(cuts):
                    run.write(self.shape.batch(start, end), more_follow=self._in_waves and end < cuts[-1])
            except (Stopped, OutputError) as error:
                return error
            finally:
                self.promised.update(run.returned)
                run.close()
            return None

    def check(self, *, other_cuts: bool) -> None:
        """Promised effects exist, and none is half done; continuing ends with the bytes of a run without a fault."""
        with system(self.disk, no_fault), self.shape.new_run() as run:
            for sink in run.sinks:
                assert sink.end_offset >= self.promised.get(sink.name, 0), f"{sink.name}: lost what was promised"
                assert sink.end_offset in self.shape.states, f"{sink.name} ends inside a batch, at {sink.end_offset}"
                expected = _below(self.shape.states[sink.end_offset], sink.name)
                assert _below(files_below(self.shape.root), sink.name) == expected, f"{sink.name} at {sink.end_offset}"
            for start, end in itertools.pairwise(self.shape.cuts(other=other_cuts)):
                run.write(self.shape.batch(start, end))
        assert files_below(self.shape.root) == self.shape.states[self.shape.last]


def _below(tree: Tree, folder: str) -> Tree:
    """A sink's files with something in them: a full queue may have its next file, or not, until the batch is done."""
    return {path: data for path, data in tree.items() if path.startswith(folder) and data.strip(b"\0")}
