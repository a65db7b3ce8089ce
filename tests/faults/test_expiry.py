"""G11: segments that expire at any moment of a batch: every record has its effect, or the loss is reported."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from support.model import Record
from support.outputs import SETTINGS, Output
from support.proof_counts import Proof
from support.sink_runner import MEMORY, SinkRun, expected_queue_files, no_fsync, queue_files

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.piece import PieceRow, QueueFilter, make_pieces
from reput.source.errors import DataLossError, ReputError, SegmentError
from reput.source.log.log_reader import LogReader
from reput.source.log.range_reader import read_windows
from reput.source.log.segment_scan import Window
from reput.source.options import SourceOptions
from reput.streaming.output.logic_sinks import recover_sinks

SEGMENTS = 6
MOMENTS = ["before the start", "before the plan", "between plan and read", "while it is read"]


def unlink(output: Output, count: int) -> None:
    """The oldest segments go."""
    for segment in sorted(output.log.iterdir())[:count]:
        segment.unlink()


def batch(log: LogReader, start: int, at_moment: Callable[[str], None]) -> LogicBatch | None:
    """The rest of the log in one batch, in the steps of a micro-batch."""
    at_moment("before the plan")
    spans = list(log.split(start, log.end(start)))
    at_moment("between plan and read")
    decode = log.decode_options

    def windows(number: int) -> Iterator[Window]:
        span = spans[number]
        for window in read_windows(span.file, span.start, span.end, decode, 300):
            yield window
            if number == len(spans) // 2:
                at_moment("while it is read")

    rows: list[PieceRow] = []
    for number, span in enumerate(spans):
        rows += make_pieces(windows(number), span.file, LogicNeeds(), decode.delays_ms, QueueFilter(), None)
    return LogicBatch.merge(rows) if rows else None


def expire_once(output: Output, moment: str, count: int, *, fail_on_data_loss: bool) -> str:
    """How a run ends during which `count` segments go: the error's name, or "went on"."""
    assert len(list(output.log.iterdir())) > SEGMENTS
    left = [moment]

    def at_moment(now: str) -> None:
        if left == [now]:
            left.clear()
            unlink(output, count)

    given = output.config.source_options(failOnDataLoss=str(fail_on_data_loss).lower())
    log = LogReader(SourceOptions.parse(given))
    run = SinkRun(output.out, output.settings)
    try:
        at_moment("before the start")
        recover_sinks(run.sinks, log, fail_on_data_loss=fail_on_data_loss)
        found = batch(log, run.end, at_moment)
        if found is not None:
            run.write(found)
    except ReputError as error:
        outcome, said = type(error).__name__, str(error)
    else:
        return "went on"
    finally:
        run.close()
    assert any(words in said for words in ("the log begins at", "was still to be read", "bytes are missing"))
    return outcome


@pytest.mark.parametrize("done", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("moment", MOMENTS)
def test_segments_that_go(moment: str, done: float, proof: Proof) -> None:
    """An error that names the loss and leaves nothing half done, or every record's effect."""
    outcomes = set()
    for count in range(1, SEGMENTS + 1):
        with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
            output = Output.make(Path(directory), Random(count), 110, done=done)
            outcome = expire_once(output, moment, count, fail_on_data_loss=True)
            outcomes.add(outcome)
            assert outcome in ("went on", DataLossError.__name__, SegmentError.__name__)
            if outcome == "went on":
                output.check()
            else:
                assert check_nothing_half_done(output) < log_begin(output)
            proof("G11 expiries at a moment of a batch")
    if done == 1.0:
        assert outcomes == {"went on"}
    elif moment != "while it is read":  # then the segment is open, and those after it may be left
        assert DataLossError.__name__ in outcomes


def check_nothing_half_done(output: Output) -> int:
    """The queues are those of the records before the place where they end, which is returned."""
    with SinkRun(output.out, output.settings) as run:
        end = run.end
    known: list[Record] = [record for record in output.records if record.physical_offset < end]
    assert queue_files(output.out) == expected_queue_files(known, SETTINGS)
    return end


def log_begin(output: Output) -> int:
    return int(min(path.name for path in output.log.iterdir()))


@pytest.mark.parametrize("done", [0.0, 0.4])
def test_going_on_without_them_is_told(done: float, caplog: pytest.LogCaptureFixture, proof: Proof) -> None:
    """With failOnDataLoss=false: the gap is logged with both its ends, and no record after it is missing."""
    for count in range(1, SEGMENTS + 1):
        with TemporaryDirectory(dir=MEMORY) as directory, no_fsync(), caplog.at_level(logging.WARNING):
            output = Output.make(Path(directory), Random(count), 110, done=done)
            end = check_nothing_half_done(output)
            caplog.clear()
            assert expire_once(output, "before the start", count, fail_on_data_loss=False) == "went on"
            begin = log_begin(output)
            told = [text for text in caplog.messages if f"the log begins at {begin}: records between expired" in text]
            assert len(told) == (2 if end < begin else 0)
            assert all(f"ends at {end} " in text for text in told)
            queued = {record.physical_offset for record in output.records if record.message.is_queued}
            assert queued_offsets(output) == {offset for offset in queued if offset >= begin or offset < end}
            proof("G11 expiries gone on without")


def queued_offsets(output: Output) -> set[int]:
    """The records that any queue leads to."""
    units = [data[at : at + 20] for data in queue_files(output.out).values() for at in range(0, len(data), 20)]
    found = [(int.from_bytes(unit[:8], "big"), int.from_bytes(unit[8:12], "big")) for unit in units]
    return {offset for offset, size in found if size not in (0, 0x7FFFFFFF)}


def test_a_hole_is_never_jumped(proof: Proof) -> None:
    """A segment missing in the middle is an error that names both neighbours, at every place of the row."""
    for number in itertools.count(1):
        with TemporaryDirectory(dir=MEMORY) as directory, no_fsync():
            output = Output.make(Path(directory), Random(number), 110, done=0.0)
            segments = sorted(output.log.iterdir())
            if number == len(segments) - 1:
                return
            segments[number].unlink()
            log = LogReader(SourceOptions.parse(output.config.source_options()))
            with SinkRun(output.out, output.settings) as run, pytest.raises(SegmentError) as caught:
                batch(log, run.end, lambda _: None)
            assert segments[number - 1].name in str(caught.value)
            assert segments[number + 1].name in str(caught.value)
            proof("G11 holes")
