"""The quarantine: what is waited for, what is left out, its lines, and the records that no queue takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.anomaly_logs import SETTINGS, offsets
from support.command_line import invoke, run_reput
from support.live_log import Clock
from support.logs import end_of, put_bytes
from support.record_writer import CommitLogWriter, Message, encode, write_log
from support.sink_runner import LogBatches, SinkRun, queue_files
from support.tail_runs import tail_of

from reput.sinks.dispatch.batch import LogicBatch
from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.formats.consume_queue import ENTRY
from reput.sinks.quarantine import Quarantine, QuarantinedRange, count_causes, expired_range, load_quarantine
from reput.sinks.queue.consume_queue import QueueAdmission, RefusedRecord
from reput.source.errors import CorruptRecordError, OptionError, OutputError, SinkError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.reput_end_offset import ReputEndFinder
from reput.source.options import SourceOptions
from reput.source.record.damage import DamagedRange
from reput.source.record.message_decoder import Verdict
from reput.streaming.config.pipeline import load_config

# --- the end of a live log -------------------------------------------------------------------------------

SIZE = 2048
GUARD_MS = 500


class Live:
    """A log in one segment, and the finder of its end under onDamage=quarantine."""

    def __init__(self, directory: Path) -> None:
        self.path = directory
        self.writer = CommitLogWriter(directory, SIZE)
        self.clock = Clock()
        self.finder = ReputEndFinder(check_crc=True, tail_guard_ms=GUARD_MS, clock=self.clock, on_damage="quarantine")

    def end(self, after_ms: int = 0) -> int:
        self.clock.now += after_ms / 1000
        return self.finder.find(MappedFileQueue.load([self.path]), 0).offset

    def append(self, *store_times: int) -> list[int]:
        """Append a record a store time; gives where each begins, and where the last one ends."""
        physical_offsets = [self.writer.append(Message(store_timestamp=time)) for time in store_times]
        self.writer.close()
        return [*physical_offsets, self.writer.max_offset]


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return Live(tmp_path)


@pytest.mark.parametrize("size", [4, 60])
def test_damage_with_records_behind_it_is_passed_when_it_stood_for_the_guard(live: Live, size: int) -> None:
    """Not before: the bytes may be a record that a writer is writing at this moment."""
    *physical_offsets, end = live.append(1, 2, 3, 4, 5)
    put_bytes(live.path / f"{0:020d}", physical_offsets[2] + 4, b"\x55" * size)
    assert live.end() == physical_offsets[1]  # the record before it has its guard, too
    assert live.end(GUARD_MS - 1) == physical_offsets[1]
    assert live.end(1) == physical_offsets[4]
    assert live.end(GUARD_MS) == end


def test_a_place_that_changes_is_waited_for_anew(live: Live) -> None:
    """The guard runs from the last change."""
    *physical_offsets, _ = live.append(1, 2, 3, 4)
    segment = live.path / f"{0:020d}"
    put_bytes(segment, physical_offsets[1] + 4, b"\x55" * 4)
    assert live.end() == physical_offsets[0]
    put_bytes(segment, physical_offsets[1] + 4, b"\x66" * 4)
    assert live.end(GUARD_MS) == physical_offsets[1]
    assert live.end(GUARD_MS) == physical_offsets[3]


def test_a_torn_record_at_the_end_is_waited_for_for_ever(live: Live) -> None:
    """Without records after it, it is the visible end."""
    *physical_offsets, _ = live.append(1, 2, 3)
    put_bytes(live.path / f"{0:020d}", physical_offsets[2] + 60, bytes(30))
    for _ in range(3):
        assert live.end(GUARD_MS) <= physical_offsets[2]
    assert live.end(10**6) == physical_offsets[2]


def test_older_records_behind_the_end_are_no_successors(live: Live) -> None:
    """After a crash the broker cut the log after the first record and wrote another over a part of the old ones."""
    *physical_offsets, _ = live.append(10, 11, 12, 13)
    record = encode(Message(body=b"longer than before", store_timestamp=20), physical_offsets[1])
    put_bytes(live.path / f"{0:020d}", physical_offsets[1], record)
    new_end = physical_offsets[1] + len(record)
    live.end()
    assert live.end(GUARD_MS) in (physical_offsets[1], new_end)
    assert live.end(10 * GUARD_MS) == new_end


def test_a_segment_whose_first_record_is_damaged_is_in_the_middle(tmp_path: Path) -> None:
    """A later segment was begun, so the log continues, and under `stop` the error names the damaged place."""
    records = write_log(tmp_path, [Message(body=bytes(100))] * 40, SIZE)
    first = next(record for record in records if record.physical_offset == SIZE)
    put_bytes(tmp_path / f"{SIZE:020d}", 4, b"\x55" * 4)
    for policy in ("stop", "quarantine"):
        log = LogReader(SourceOptions.parse({"path": str(tmp_path), "tailGuardMs": "0", "onDamage": policy}))
        assert log.settled_end(0) == end_of(records)
    batches = LogBatches(tmp_path)
    with pytest.raises(CorruptRecordError, match=f"offset {first.physical_offset} .*onDamage=quarantine"):
        batches(0, end_of(records))


def test_a_last_segment_whose_first_record_is_damaged(tmp_path: Path) -> None:
    """The segment before ends with its blank; the one behind is entered when good records are in it."""
    records = write_log(tmp_path, [Message(body=bytes(100))] * 20, SIZE)
    last = max(record.physical_offset for record in records) // SIZE * SIZE
    put_bytes(tmp_path / f"{last:020d}", 4, b"\x55" * 4)
    options = {"path": str(tmp_path), "tailGuardMs": "0"}
    assert LogReader(SourceOptions.parse(options)).settled_end(0) == last
    log = LogReader(SourceOptions.parse(options | {"onDamage": "quarantine"}))
    assert log.settled_end(0) == end_of(records)


def test_a_last_segment_with_several_damaged_records(live: Live) -> None:
    """Its first and others: each has a guard of its own, once, and the end that was found stays."""
    *physical_offsets, end = live.append(*range(30))
    first, *others = [offset for offset in physical_offsets if offset >= SIZE]
    assert end < 2 * SIZE
    for offset in (first, others[1], others[4]):
        put_bytes(live.path / f"{SIZE:020d}", offset - SIZE + 4, b"\x55" * 4)
    ends = [live.end(), *(live.end(GUARD_MS) for _ in range(5))]
    # The last record of each has its guard, too.
    assert ends == [SIZE, others[0], others[3], physical_offsets[-1], end, end]
    live.append(30)
    assert [live.end(), live.end(GUARD_MS)] == [end, live.writer.max_offset]


def test_bodies_are_not_checked_as_a_broker() -> None:
    """Two options that exclude each other are refused together."""
    with pytest.raises(OptionError, match="onDamage=broker and checkCrc=all exclude each other"):
        SourceOptions.parse({"path": "x", "onDamage": "broker", "checkCrc": "all"})


# --- the lines -------------------------------------------------------------------------------------------


def damaged(start: int, end: int, cause: str = "BAD_MAGIC") -> DamagedRange:
    return DamagedRange(start, end, cause, "/log/0", start, bytes([start % 256]) * 8)


def opened(output: Path, least: int = 0, most: int = 1 << 60) -> Quarantine:
    quarantine = Quarantine(DurableFiles(output), "b", "quarantine", lambda: 1_700_000_000.25)
    quarantine.recover(least, most)
    return quarantine


def offsets_of(output: Path) -> list[int]:
    return [line.physical_offset for line in load_quarantine(output)]


def test_a_range_is_one_line(tmp_path: Path) -> None:
    """All that is known of it, once it is durable."""
    quarantine = opened(tmp_path)
    new = quarantine.write(500, [damaged(100, 130)])
    expected = QuarantinedRange(
        "b", 100, 30, "BAD_MAGIC", "/log/0", 100, "64" * 8, "2023-11-14T22:13:20.250Z", "quarantine"
    )
    assert [expected] == list(new) == load_quarantine(tmp_path)
    assert quarantine.end_offset == 500
    assert dict(count_causes(new)) == {"BAD_MAGIC": 1}


def test_a_replay_with_other_cuts_adds_nothing(tmp_path: Path) -> None:
    """By the same run and by the next, and what is new is added behind."""
    opened(tmp_path).write(500, [damaged(300, 310), damaged(100, 130)])
    quarantine = opened(tmp_path)
    assert quarantine.write(400, [damaged(100, 130), damaged(300, 310)]) == ()
    quarantine.write(900, [damaged(300, 310), damaged(600, 610)])
    assert offsets_of(tmp_path) == [100, 300, 600]


def test_what_was_written_without_its_record_is_dropped(tmp_path: Path) -> None:
    """A process died between the lines and the progress record: the batch comes again."""
    quarantine = opened(tmp_path)
    quarantine.write(500, [damaged(100, 130)])
    progress = tmp_path / "reput" / "progress" / "quarantine.json"
    before = progress.read_bytes()
    quarantine.write(900, [damaged(600, 630)])
    progress.write_bytes(before)
    quarantine = opened(tmp_path)
    assert offsets_of(tmp_path) == [100]
    quarantine.write(700, [damaged(600, 630)])
    assert offsets_of(tmp_path) == [100, 600]


def test_lines_behind_every_sink_are_dropped(tmp_path: Path) -> None:
    """The log was cut and the sinks with it: a run finds those ranges again, or they no longer exist."""
    opened(tmp_path).write(900, [damaged(100, 130), damaged(600, 630)])
    quarantine = opened(tmp_path, 400, 600)
    assert (offsets_of(tmp_path), quarantine.end_offset) == ([100], 600)


def test_a_tail_of_a_table_alone_keeps_its_lines(tmp_path: Path) -> None:
    """The end of the table is not known yet; only lines after the log's files are dropped."""
    write_log(tmp_path / "store" / "commitlog", [Message() for _ in range(9)], 2000)
    out = tmp_path / "out"
    opened(out).write(1800, [damaged(100, 130)])
    options = ("consumeQueueEnable=false", "messageIndexEnable=false", "onDamage=quarantine", "tailGuardMs=0")
    config = load_config(tmp_path / "store", overrides=options)
    for _ in range(2):
        with tail_of(config, out, tmp_path / "table"):
            assert offsets_of(out) == [100]
    assert opened(out).end_offset == 1800


def test_a_new_quarantine_begins_where_the_sinks_are(tmp_path: Path) -> None:
    """The sinks read everything before that without damage."""
    quarantine = opened(tmp_path, 400, 600)
    assert (quarantine.end_offset, load_quarantine(tmp_path)) == (400, [])
    (line,) = quarantine.write(700, [expired_range(400, 700)])
    assert (line.cause, line.length, line.file, line.position, line.head) == ("EXPIRED", 300, "", -1, "")


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    """It is shorter than it was written, or has a line that is not a range."""
    opened(tmp_path).write(900, [damaged(100, 130)])
    path = tmp_path / "reput" / "quarantine.jsonl"
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(OutputError, match="holds a line that reput did not write"):
        load_quarantine(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(SinkError, match="0 bytes where"):
        opened(tmp_path)
    with pytest.raises(OutputError, match="no output at"):
        load_quarantine(tmp_path / "nowhere")


def test_the_command_lists_them(tmp_path: Path) -> None:
    """As text and as JSON, in log order; an output without any has none."""
    opened(tmp_path).write(900, [damaged(600, 630), damaged(100, 130)])
    command = ["quarantine", "list", "--output", str(tmp_path)]
    text = run_reput(command)
    assert text.stdout.splitlines()[0] == (
        "100: 30 bytes, BAD_MAGIC, /log/0 byte 100, found 2023-11-14T22:13:20.250Z (quarantine), begins "
        "6464646464646464"
    )
    rows = [json.loads(line) for line in invoke([*command, "--json"]).stdout.splitlines()]
    assert [row["physical_offset"] for row in rows] == [100, 600]
    (tmp_path / "empty").mkdir()
    assert invoke([*command[:3], str(tmp_path / "empty")]).exit_code == 0
    assert invoke([*command[:3], str(tmp_path / "nowhere")]).exit_code == 1


# --- records that no queue takes -------------------------------------------------------------------------

ADMISSION = QueueAdmission(60)


def sifted(batch: LogicBatch, run: SinkRun) -> tuple[LogicBatch, tuple[RefusedRecord, ...]]:
    return run.queues.admission.sift(batch, run.queues.end_offset, run.queues.is_begun)


def test_only_what_no_queue_takes_is_left_out(tmp_path: Path) -> None:
    """Hostile topics, negative queue ids, impossible first offsets: each record once, everything else is kept."""
    messages = [
        *offsets(0, 1),
        Message("../x"),
        Message("T", -1),
        *(replace(message, topic="Late") for message in offsets(-1, -(2**63), 2**60, 7, -1, 8)),
        Message("Bad", queue_offset=-5),
    ]
    records = write_log(tmp_path / "log", messages)
    batches = LogBatches(tmp_path / "log")
    allowed = [record.physical_offset for record in records] + [end_of(records)]
    causes = {2: "HOSTILE_TOPIC", 3: "NEGATIVE_QUEUE_ID", **dict.fromkeys((4, 5, 6, 10), "BAD_QUEUE_OFFSET")}
    expected = [RefusedRecord(records[n].physical_offset, records[n].msg_size, why) for n, why in causes.items()]
    sound = [record for number, record in enumerate(records) if number not in causes]
    with SinkRun(tmp_path / "sound", SETTINGS) as run:
        only = LogBatches(tmp_path / "log")(0, allowed[-1])
        kept, _ = sifted(only, run)
        run.write(kept)
    for name, cuts in (("one", [0, allowed[-1]]), ("each", [0, *allowed[1:]])):
        found: list[RefusedRecord] = []
        with SinkRun(tmp_path / name, SETTINGS) as run:
            for start, end in zip(cuts, cuts[1:], strict=False):
                batch, refused = sifted(batches(start, end), run)
                found += refused
                run.write(batch)
        assert found == expected
        assert queue_files(tmp_path / name) == queue_files(tmp_path / "sound")
    entries = np.frombuffer((tmp_path / "one" / "consumequeue" / "Late" / "0" / f"{120:020d}").read_bytes(), ENTRY)
    late = [record.physical_offset for record in sound if record.message.topic == "Late"]
    assert entries["physical_offset"].tolist()[1:] == [late[0], late[2]]


def test_the_bound_of_a_first_queue_offset(tmp_path: Path) -> None:
    """An option: what lies beyond it ends the run with the option's name, or is left out."""
    assert QueueAdmission(60, 5).can_begin(np.array([-1, 0, 5, 6])).tolist() == [False, True, True, False]
    assert ADMISSION.can_begin(np.array([2**40, 2**58, 2**63 - 1])).tolist() == [True, True, False]
    records = write_log(tmp_path / "log", offsets(2**60))
    batch = LogBatches(tmp_path / "log")(0, end_of(records))
    with SinkRun(tmp_path / "out", SETTINGS) as run, pytest.raises(SinkError, match="onDamage=quarantine leaves"):
        run.write(batch)


def test_what_the_queues_have_already_is_not_judged_again(tmp_path: Path) -> None:
    """A replay that begins before the queues' end: their first record is not the batch's."""
    records = write_log(tmp_path / "log", offsets(7, -1, 8))
    batch = LogBatches(tmp_path / "log")(0, end_of(records))
    with SinkRun(tmp_path / "out", SETTINGS) as run:
        run.write(sifted(batch, run)[0])
        assert sifted(batch, run)[1] == ()


def test_verdict_of_a_blank_is_no_decoders() -> None:
    """BAD_BLANK is found by the bytes after a blank; a decoder finds the others."""
    assert Verdict.BAD_BLANK == max(Verdict)


def test_settle_waits_for_each_damaged_place(tmp_path: Path) -> None:
    """Three of them in the last segment, each with a guard of its own, and the run's end is the log's."""
    records = write_log(tmp_path, [Message()] * 12, SIZE)
    for number in (2, 5, 8):
        put_bytes(tmp_path / f"{0:020d}", records[number].physical_offset + 4, b"\x55")
    options = {"path": str(tmp_path), "tailGuardMs": "30", "onDamage": "quarantine"}
    assert LogReader(SourceOptions.parse(options)).settled_end(0) == end_of(records)
