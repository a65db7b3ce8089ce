"""The other files of an output than queues, index and table do not grow with the batches that are written."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from support.outputs import config_of
from support.record_writer import CommitLogWriter, Message
from support.seen_log import SeenLog
from support.sink_runner import SMALL, take_step

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.files.durable_file import DurableFiles
from reput.source.log.log_reader import LogReader
from reput.source.options import SourceOptions
from reput.streaming.effects.write_step import WriteStep
from reput.streaming.output.logic_sinks import LogicSinks
from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.run_state import RunState
from reput.streaming.status.status_document import STATUS_FILE, StatusFile

BATCHES = 300
#: A hundred batches are enough for everything of which some are kept.
SETTLED = 100


def sizes(output: Path) -> dict[str, int]:
    """Every file but those of queues and index, and its size."""
    return {
        str(path.relative_to(output)): path.stat().st_size
        for path in output.rglob("*")
        if path.is_file() and path.relative_to(output).parts[0] not in {"consumequeue", "index"}
    }


def test_many_batches_leave_no_more_files_than_few(tmp_path: Path) -> None:
    """Progress records, scratch files, checkpoint and status: after 300 batches what there was after 100."""
    with CommitLogWriter(tmp_path / "commitlog", 1 << 20) as writer:
        ends = []
        for number in range(BATCHES):
            writer.append(Message("AB"[number % 2], properties={"KEYS": f"k{number}"}))
            ends.append(writer.max_offset)
    output = tmp_path / "out"
    config = config_of(tmp_path, replace(SMALL, max_index_num=10_000))
    log = LogReader(SourceOptions.parse(config.source_options()))
    files = DurableFiles(output)
    logic = LogicSinks.open(config, files)
    for sink in logic.sinks:
        sink.recover(0)
    step, state = WriteStep(logic, files, log.decode_options), RunState("b")
    status_file = StatusFile(output, state)
    seen: list[dict[str, int]] = []
    start = 0
    for number, end in enumerate(ends):
        take_step(step, log, start, end)
        report = BatchReport("logic", start, end, 1, 0.1, AnomalyCounts(gap=1), Counter({"BAD_MAGIC": 1}))
        state.on_batch(report)
        state.on_finding("logic", "a finding that is as long as every other one")
        state.look(SeenLog(LogEnd(end), {}))
        status_file.write({}, float(number), at_once=True)
        start = end
        if number >= SETTLED:
            seen.append(sizes(output))
    files.close()
    assert {frozenset(each) for each in seen} == {frozenset(seen[0])}
    assert "/".join(STATUS_FILE) in seen[0]
    assert not any("scratch" in name for name in seen[0])
    # Figures of a batch get longer, by a digit here and there.
    assert sum(seen[-1].values()) < sum(seen[0].values()) + 500
