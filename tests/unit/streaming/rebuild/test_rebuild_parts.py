"""The parts of a rebuild on their own: array files, runs of queue offsets, moves of directories, memory of a task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
from support.outputs import config_of
from support.rebuild_runner import LocalTasks
from support.record_writer import CommitLogWriter, Message, write_log
from support.sink_runner import SMALL

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.entries import RUN, Run, find_runs, run_of
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.scratch import read_arrays, write_arrays
from reput.sinks.files.swap import finish_swap
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.queue.consume_queue import ConsumeQueueSink
from reput.source.errors import OutputError, OutputFullError, SinkError
from reput.streaming.rebuild.pipeline import RebuildProgress
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild

MB = 1 << 20


def test_arrays_come_back(tmp_path: Path) -> None:
    """Any dtype and shape, empty ones; a change stays in memory."""
    arrays = {
        "bytes": np.arange(60, dtype=np.uint8).reshape(3, 20),
        "none": np.empty((0, 20), np.uint8),
        "runs": np.array([(1, 2, 3, 4, True)], RUN),
        "numbers": np.array([1, -2, 2**62], np.int64),
    }
    path = write_arrays(tmp_path, arrays)
    found = read_arrays(path)
    written = path.read_bytes()
    assert list(found) == list(arrays)
    for name, expected in arrays.items():
        assert found[name].dtype == expected.dtype
        np.testing.assert_array_equal(found[name], expected)
        found[name].view(np.uint8)[...] = 7
    assert path.read_bytes() == written


def test_runs_are_found_as_one_by_one() -> None:
    """Blocks of entries: each queue offset after its predecessor's, each record after it in the log."""
    rng = Random(5)
    top = (2**63 - 1) // 20
    for _ in range(300):
        counts = [rng.randrange(1, 5) for _ in range(rng.randrange(1, 5))]
        blocks = []
        for count in counts:
            first = rng.choice([0, 7, top - 1, 2**63 - 2, -1])
            offsets = [(first + i + (rng.random() < 0.05) + 2**63) % 2**64 - 2**63 for i in range(count)]
            physical_offsets = [1000 + 100 * i - 150 * (rng.random() < 0.05) for i in range(count)]
            blocks.append((offsets, physical_offsets))
        entries = np.zeros(sum(counts), ENTRY)
        entries["physical_offset"] = [at for _, physical_offsets in blocks for at in physical_offsets]
        entries["msg_size"] = 30
        queue_offsets = np.array([offset for offsets, _ in blocks for offset in offsets], np.int64)
        raw = entries.view(np.uint8).reshape(-1, 20)
        found = find_runs(raw, queue_offsets, np.array(counts))
        at = 0
        for count, run, (offsets, physical_offsets) in zip(counts, found, blocks, strict=True):
            steps = zip(offsets, offsets[1:], physical_offsets, physical_offsets[1:], strict=False)
            is_run = all(b == a + 1 and q > p for a, b, p, q in steps) and offsets[-1] <= top
            assert run["runs_on"] == is_run
            first, last = physical_offsets[0], physical_offsets[-1]
            expected = Run(offsets[0], count, first, first + 30, last + 30) if is_run else None
            assert run_of(raw[at : at + count], queue_offsets[at : at + count]) == expected
            at += count


def test_a_moved_directory_is_known_no_more(tmp_path: Path) -> None:
    """New files at the old name are written; there may be nothing at the new one; nothing leaves the root."""
    files = DurableFiles(tmp_path)
    files.create("a", "b", "c", size=4)
    files.write("a", "b", "c", offset=0, data=b"old!")
    files.sync()
    files.move(("a", "b"), ("d", "e"))
    files.create("a", "b", "c", size=4)
    files.write("a", "b", "c", offset=0, data=b"new!")
    files.sync()
    assert [(tmp_path / path).read_bytes() for path in ("a/b/c", "d/e/c")] == [b"new!", b"old!"]
    with pytest.raises(OutputError, match=r"cannot move .*a/b: "):
        files.move(("a", "b"), ("d", "e"))
    with pytest.raises(OutputError, match=r"'\.\.' is not a name"):
        files.move(("a",), ("..", "a"))
    files.remove_tree("a")
    files.create("a", "b", "c", size=2)
    files.close()


def test_a_note_that_is_none_is_told(tmp_path: Path) -> None:
    """A swap whose note was damaged is not guessed."""
    files = DurableFiles(tmp_path)
    files.replace("reput", "rebuild", "swap.json", data=b"[[1]]")
    with pytest.raises(SinkError, match=r"swap.json is not a note of a swap"):
        finish_swap(files)


_MEASURE = """
import sys
from pathlib import Path
from reput.sinks.dispatch import piece as range_entries
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import cut_ranges
from reput.source.log.range_reader import DecodeOptions
from reput.streaming.effects.range_task import RangeTask
from reput.streaming.spark.warm_up import compile_kernels

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

range_entries.PIECE_BYTES = 4 << 20
compile_kernels()
for directory, end in zip(sys.argv[1::2], sys.argv[2::2]):
    scratch = Path(directory, "scratch")
    scratch.mkdir()
    task = RangeTask(DecodeOptions(), LogicNeeds(), scratch=scratch)
    cut, = cut_ranges(MappedFileQueue.load([Path(directory, "log")]), 0, int(end), 1 << 40, 1 << 40)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    result = task(cut)
    print(memory("VmHWM") - before, sum(piece["messages"] for piece in result.pieces), len(result.pieces))
"""

LOGS = {
    "keys only": ([Message(body=b"", properties={"KEYS": "k " * 16_000})], 400, 140 * MB),
    "4 MiB records": ([Message(body=bytes(4 * MB - 200), properties={"KEYS": "k"})], 10, 40 * MB),
    "many queues": ([Message(f"Topic{i % 1000}", queue_id=i // 1000) for i in range(20_000)], 1, 120 * MB),
}


def test_a_task_needs_little_memory(tmp_path: Path) -> None:
    """Its memory depends on windows and pieces (here 4 MiB each), not on its range; in a process of its own."""
    arguments, counts = [], []
    for name, (messages, times, _) in LOGS.items():
        with CommitLogWriter(tmp_path / name / "log", 128 * MB) as writer:
            for _ in range(times):
                for message in messages:
                    writer.append(message)
        last = writer.records[-1]
        counts.append(len(writer.records))
        arguments += [str(tmp_path / name), str(last.physical_offset + last.msg_size)]
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, *arguments], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [count for _, count, _ in found] == counts
    for (name, (_, _, most)), (peak, _, pieces) in zip(LOGS.items(), found, strict=True):
        assert peak < most, f"{name}: {peak / MB:.0f} MB, {pieces} pieces"


def test_a_wave_that_cannot_be_written_ends_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So an hour of reading is not lost."""
    write_log(tmp_path / "store" / "commitlog", (Message(queue_offset=number) for number in range(200)), 1 << 20)

    def fail(*_: object) -> AnomalyCounts:
        raise OutputFullError("no room")

    monkeypatch.setattr(ConsumeQueueSink, "write", fail)
    config = config_of(tmp_path / "store", SMALL, "rebuildMaxBytesPerWave=2k", "rebuildMaxBytesPerPartition=1k")
    tasks = LocalTasks()
    with (
        Rebuild(config, RebuildRequest(tmp_path / "out"), RebuildProgress()) as job,
        pytest.raises(OutputFullError, match="no room"),
    ):
        job.run(tasks)
    assert 0 < tasks.count <= 10
