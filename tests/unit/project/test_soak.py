"""The criteria of `make soak`: slopes, idleness, alerts, files and rows, the lag seen from outside; no soak runs."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.soaking import lag, page
from benchmarks.soaking.equality import Equality, Keeper, compare_files, compare_rows, entries, newest_offset
from benchmarks.soaking.judgement import SERIES, Series, false_alerts, growths, idles, of_process, slope, stretches
from benchmarks.soaking.metrics_cost import Ratio, too_dear
from benchmarks.soaking.plan import EXPIRE, FULL, KILL, QUIET, RESTART, Event, plan
from benchmarks.soaking.prometheus import Firing, firings
from benchmarks.soaking.run import Record
from benchmarks.soaking.samples import (
    DRIVER,
    JVM,
    KINDS,
    WORKERS,
    Files,
    Processes,
    Sample,
    load,
    look_at_files,
    look_at_processes,
)
from benchmarks.soaking.supervisor import Supervisor, tail_words, wait_until
from benchmarks.soaking.verdict import failures
from deltalake import write_deltalake
from support.record_writer import CommitLogWriter, Message

HOUR = 3600.0
BEGIN = 1_700_000_000.0
END = BEGIN + 1.5 * HOUR
DRIVER_MEMORY = Series("memory", "MB", lambda sample: sample.processes[DRIVER].rss, 0.05, 20)


def sample(at: float, pid: int | None = 1, **figures: float) -> Sample:
    """One with the same figures for each kind of process."""
    found = Sample(at, pid)
    if pid is not None:
        found.processes = {kind: Processes(1, 300, 200, 50, 20, 0) for kind in KINDS}
        for name, value in figures.items():
            for each in found.processes.values():
                setattr(each, name, value)
    found.files = {name: Files(100, 1_000_000) for name in ("output", "table", "checkpoint", "logs")}
    return found


def even(growth: float = 0.0, noise: float = 0.0, pid: int = 1) -> list[Sample]:
    """Samples ten seconds apart; the memory grows by this many MB an hour."""
    rng = random.Random(1)
    times = [BEGIN + 10 * number for number in range(541)]
    return [sample(at, pid, rss=300 + growth * (at - BEGIN) / HOUR + rng.uniform(-noise, noise)) for at in times]


EVEN = even()


# --- growth ----------------------------------------------------------------------------------------------


def test_a_slope_is_not_moved_by_wild_values() -> None:
    """A quarter of the values are anything."""
    times = list(range(100))
    values = [2.0 * at if at % 4 else 10_000.0 * (at % 3) for at in times]
    assert slope(times, values) == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(("growth", "is_wrong"), [(0, False), (15, False), (25, True), (-50, False)])
def test_growth_is_wrong_from_its_limit_on(growth: float, is_wrong: bool) -> None:
    """20 MB an hour are allowed, at noise of as much."""
    (found,) = growths(even(growth, noise=10), BEGIN, END, [DRIVER_MEMORY])
    assert found.is_wrong is is_wrong
    assert found.an_hour == pytest.approx(growth, abs=3)
    assert found.begin == pytest.approx(BEGIN + 0.5 * HOUR, abs=10)


def test_a_share_of_a_large_median_is_allowed() -> None:
    """5 % of 1,000 MB are more than 20 MB."""
    found = growths([sample(each.at, rss=700 + 40 / HOUR * (each.at - BEGIN) + 300) for each in EVEN], BEGIN, END)
    assert not any(each.is_wrong for each in found)


@pytest.mark.parametrize(("bound", "is_wrong"), [(250, True), (400, False)])
def test_what_never_exceeds_its_bound_may_grow_up_to_that(bound: float, is_wrong: bool) -> None:
    """As a JVM's heap does until garbage is collected; here it ends at 345 MB."""
    (found,) = growths(even(30), BEGIN, END, [replace(DRIVER_MEMORY, bound=bound)])
    assert found.is_wrong is is_wrong


def test_what_a_restart_gives_back_is_no_decline() -> None:
    """Each run grows by 60 MB an hour and is followed by another that begins low; each is judged alone, warmed up."""
    first = [replace(each, pid=1) for each in even(60) if each.at < BEGIN + HOUR]
    gap = sample(BEGIN + HOUR, None)
    second = [sample(each.at, 2, rss=each.processes[DRIVER].rss - 60) for each in even(60) if each.at > BEGIN + HOUR]
    parts = list(stretches([*first, gap, *second], BEGIN, END))
    assert [{each.pid for each in part} for part in parts] == [{1}, {2}]
    assert parts[1][0].at >= second[0].at + 300
    found = growths([*first, gap, *second], BEGIN, END, [DRIVER_MEMORY])
    assert [each.is_wrong for each in found] == [True, True]


def test_every_series_is_there_in_a_sample() -> None:
    """And is a number."""
    full = sample(BEGIN)
    full.live_heap_mb = 100.0
    assert all(isinstance(series.value(full), float) for series in SERIES)


def test_a_jvm_that_forks_is_not_counted_twice() -> None:
    forking = sample(BEGIN)
    forking.processes[JVM].count = 2
    assert of_process(JVM, "rss")(forking) is None
    assert of_process(JVM, "rss")(sample(BEGIN)) == 300
    assert of_process(JVM, "rss")(sample(BEGIN, None)) is None


# --- idle ------------------------------------------------------------------------------------------------


def quiet(begin: float, cores: float, pid: int = 1) -> list[Sample]:
    """Five minutes; the first is as busy as a core."""
    found = []
    for number in range(31):
        seconds = 10.0 * number
        cpu = min(seconds, 60) + cores * max(0.0, seconds - 60)
        found.append(sample(begin + seconds, pid, cpu=cpu / len(KINDS)))
    return found


@pytest.mark.parametrize("cores", [0.01, 0.03])
def test_idle_is_what_all_processes_take_behind_the_first_minute(cores: float) -> None:
    """As a share of a core."""
    (found,) = idles(quiet(BEGIN, cores), [Event(QUIET, BEGIN, BEGIN + 300)])
    assert found.share == pytest.approx(cores)
    assert set(found.by_kind) == {DRIVER, JVM, WORKERS}


def test_what_a_look_at_the_heap_takes_is_left_out() -> None:
    """The JVM collected its heap on request, for a second, between two samples."""
    samples = quiet(BEGIN, 0.01)
    samples[20].live_heap_mb = 70.0
    for each in samples[21:]:
        each.processes[JVM].cpu += 1
    (found,) = idles(samples, [Event(QUIET, BEGIN, BEGIN + 300)])
    assert found.share == pytest.approx(0.01)


def test_a_disturbed_quiet_stretch_says_nothing() -> None:
    """The tail was started again in it."""
    samples = [*quiet(BEGIN, 0.0)[:20], *quiet(BEGIN, 0.0, pid=2)[20:]]
    assert idles(samples, [Event(QUIET, BEGIN, BEGIN + 300)]) == []


# --- alerts ----------------------------------------------------------------------------------------------


def test_a_hole_in_a_series_ends_a_firing() -> None:
    """Steps of 15 s."""
    metric = {"__name__": "ALERTS", "alertstate": "firing", "alertname": "A", "job": "reput"}
    values = [[at, "1"] for at in (0, 15, 30, 90, 105)]
    assert firings([{"metric": metric, "values": values}], 15) == [
        Firing("A", "job=reput", 0, 30),
        Firing("A", "job=reput", 90, 105),
    ]


@pytest.mark.parametrize(
    ("alert", "after", "is_false"),
    [("ReputOutputFull", 70, False), ("ReputOutputFull", 900, True), ("ReputDamage", 70, True)],
)
def test_an_alert_is_false_when_no_event_explains_it(alert: str, after: float, is_false: bool) -> None:
    """By its kind, and by its time."""
    firing = Firing(alert, "", BEGIN + after, BEGIN + after + 60)
    events = [Event(FULL, BEGIN, BEGIN + 60), Event(KILL, BEGIN, BEGIN + 60), Event(RESTART, BEGIN, BEGIN + 60)]
    assert (false_alerts([firing], events) == [firing]) is is_false


# --- the verdict -----------------------------------------------------------------------------------------


def sound_record() -> Record:
    """A run of which nothing failed."""
    record = Record({"date": "today"}, "4.9.3", 400, 90.0, BEGIN, END)
    record.events = [
        Event(EXPIRE, BEGIN, BEGIN + 1, "2 segments"),
        Event(QUIET, BEGIN + 3000, BEGIN + 3300, "quiet"),
        Event(KILL, BEGIN + 3600, BEGIN + 3660, "again"),
    ]
    record.starts = [{"at": BEGIN, "pid": 1, "ended_at": END, "code": code} for code in (-9, 0)]
    record.equality = Equality(messages=10, rows=10, entries=10, files=2)
    record.exit_code = record.verify_code = 0
    return record


def test_a_sound_run_has_no_failure() -> None:
    assert failures(sound_record(), EVEN) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exit_code": 75}, "ended with 75 when it was stopped"),
        ({"verify_code": 1}, "reput verify ended with 1"),
        ({"equality": Equality()}, "nothing was compared"),
        ({"equality": Equality(10, 9, 10, 2, wrong=["1 messages: missing"])}, "1 messages: missing"),
        ({"starts": [{"code": 0}]}, "1 starts of the tail for 1 kills"),
        ({"events": []}, "no segment has expired"),
        ({"minutes": 10.0}, "too short"),
        ({"complaints": ["a process outlived the tail"]}, "outlived"),
        ({"alerts": [Firing("ReputGap", "", BEGIN + 5, BEGIN + 60)]}, "ReputGap fired in minute 0.1 for nothing"),
    ],
)
def test_each_failure_is_told(change: dict[str, Any], words: str) -> None:
    record = sound_record()
    for name, value in change.items():
        setattr(record, name, value)
    assert any(words in line for line in failures(record, EVEN))


def test_growth_and_an_idle_tail_at_work_are_told() -> None:
    found = failures(sound_record(), [sample(each.at, cpu=each.at - BEGIN, rss=each.at - BEGIN) for each in EVEN])
    assert any("memory of the driver grow" in line for line in found)
    assert any("an idle tail takes 300.0 % of a core" in line for line in found)


def test_samples_that_are_missing_are_told() -> None:
    assert any("samples instead of 540" in line for line in failures(sound_record(), EVEN[::2]))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """Samples and record, and the page of both."""
    samples = EVEN[:5]
    samples[0].shown = {"logic seconds": 0.5}
    (tmp_path / "samples.jsonl").write_text("".join(f"{json.dumps(each.as_dict())}\n" for each in samples))
    assert load(tmp_path / "samples.jsonl") == samples
    record = sound_record()
    record.alerts = [Firing("ReputOutputFull", "job=reput", BEGIN, BEGIN + 60)]
    (tmp_path / "record.json").write_text(json.dumps(record.as_dict()))
    assert Record.load(tmp_path / "record.json") == record
    block = page.page_block(record, EVEN, ["this"], growths(EVEN, BEGIN, END), idles(EVEN, record.events))
    assert "* this" in block
    assert "ReputOutputFull from minute 0.0 to 1.0" in block
    assert page.thin(EVEN, BEGIN)["minute"][:3] == [0.0, 1.0, 2.0]


def test_a_shorter_run_has_the_same_events() -> None:
    """At times in proportion, quiet for half a minute at least."""
    long, short = plan(90.0), plan(9.0)
    assert [each.kind for each in long] == [each.kind for each in short]
    assert [each.at for each in short] == pytest.approx([each.at / 10 for each in long])
    assert {each.seconds for each in long if each.kind == QUIET} == {300.0}
    assert {each.seconds for each in short if each.kind == QUIET} == {36.0}


# --- processes and files ---------------------------------------------------------------------------------


def test_a_supervisor_starts_again_what_was_killed_and_not_what_must_not_be(tmp_path: Path) -> None:
    """Killed and 75: again; 1: never."""
    words = [sys.executable, "-c", CODES]
    counter = tmp_path / "counter"
    counter.write_text("")
    supervisor = Supervisor(words, tmp_path / "log", tmp_path, dict(os.environ), 0.01)
    supervisor.start()
    try:
        wait_until(lambda: supervisor.gave_up, 30, "it gives up")
    finally:
        supervisor.end()
    assert [start.code for start in supervisor.starts] == [-9, 75, 1]
    assert supervisor.pid is None


CODES = """
import os, pathlib, signal, sys
counter = pathlib.Path("counter")
number = len(counter.read_text())
counter.write_text("x" * (number + 1))
if number == 0:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit([0, 75, 1][number])
"""


def test_a_supervisor_stops_what_it_started(tmp_path: Path) -> None:
    """With SIGTERM, once; it reports the exit code and starts nothing again."""
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(60)"
    )
    supervisor = Supervisor([sys.executable, "-c", code], tmp_path / "log", tmp_path, dict(os.environ), 0.0)
    supervisor.start()
    try:
        wait_until(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text(), 30, "it is up")
        assert supervisor.stop() == 0
    finally:
        supervisor.end()
    assert len(supervisor.starts) == 1
    assert not supervisor.gave_up


def test_words_of_the_tail() -> None:
    words = tail_words(["reput"], {"store": Path("s"), "table": Path("t")}, {"metricsPort": 1})
    assert words == ["reput", "tail", "--store", "s", "--table", "t", "--option", "metricsPort=1"]


def test_waiting_ends() -> None:
    with pytest.raises(TimeoutError, match=r"not in 0 s: never"):
        wait_until(lambda: False, 0.0, "never")


def test_this_process_is_seen() -> None:
    found = look_at_processes(os.getpid(), {})
    assert found[DRIVER].count == 1
    assert found[DRIVER].rss > 10
    assert found[DRIVER].descriptors > 2
    assert found[DRIVER].cpu > 0


def test_what_ended_processes_have_taken_counts() -> None:
    """As it was seen last, beside what the others take now."""
    known = {(WORKERS, 1, "then"): 5.0, (DRIVER, os.getpid(), "another of this number"): 1.0}
    found = look_at_processes(os.getpid(), known)
    assert found[WORKERS].cpu == 5.0
    assert found[DRIVER].cpu > 1.0
    assert len(known) == 3


def test_files_are_counted(tmp_path: Path) -> None:
    for name in ("a/b", "a/c/d", "e"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(10))
    assert look_at_files(tmp_path) == Files(3, 30)
    assert look_at_files(tmp_path, (tmp_path / "a" / "c",)) == Files(2, 20)
    assert look_at_files(tmp_path / "e") == Files(1, 10)
    assert look_at_files(tmp_path / "none") == Files(0, 0)


# --- equality --------------------------------------------------------------------------------------------


def queue_file(path: Path, offsets: list[int], size: int = 200) -> Path:
    """A queue's file of ten entries, the rest of it zeros."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lag.UNIT.pack(offset, 50, 7) for offset in offsets).ljust(size, b"\0"))
    return path


@pytest.mark.parametrize(("offsets", "newest"), [([], -1), ([0], 0), ([5, 9, 12], 12), (list(range(10)), 9)])
def test_the_newest_record_of_a_queue_file(offsets: list[int], newest: int, tmp_path: Path) -> None:
    path = queue_file(tmp_path / "0", offsets)
    assert newest_offset(path) == newest
    assert entries(path) == len(offsets)


def test_a_keeper_keeps_what_expired_and_drops_what_is_made_again(tmp_path: Path) -> None:
    store, kept = tmp_path / "store", tmp_path / "kept"
    queue = store / "consumequeue" / "A" / "0"
    old, new = queue_file(queue / "0", [1, 2]), queue_file(queue / "200", [100])
    begin = [0]
    keeper = Keeper(store, kept, lambda: begin[0])
    keeper.look()
    old.unlink()
    new.unlink()
    begin[0] = 50  # records before 50 have expired, the one at 100 has not
    keeper.look()
    assert sorted(path.name for path in (kept / "consumequeue/A/0").iterdir()) == ["0"]
    assert keeper.dropped == 1
    queue_file(new, [100, 101])
    keeper.look()
    assert entries(kept / "consumequeue/A/0/200") == 2


def test_files_that_differ_are_told(tmp_path: Path) -> None:
    for side in ("broker", "output"):
        queue_file(tmp_path / side / "consumequeue/A/0/0", [1, 2])
    found = Equality()
    compare_files(tmp_path / "broker", tmp_path / "output", found)
    assert (found.files, found.entries, found.wrong) == (1, 2, [])
    queue_file(tmp_path / "output/consumequeue/A/0/0", [1, 3])
    compare_files(tmp_path / "broker", tmp_path / "output", found)
    assert found.wrong == ["consumequeue/A/0/0 differs from the broker's in 1 bytes"]


@pytest.fixture
def archive(tmp_path: Path) -> list[dict[str, Any]]:
    """A log of five messages below `tmp_path`, and the rows that its table must have."""
    rows = []
    with CommitLogWriter(tmp_path / "archive" / "commitlog", 1 << 16) as writer:
        for number in range(5):
            properties = {"KEYS": f"k{number}", "UNIQ_KEY": f"u{number}", "TAGS": "T"}
            writer.append(Message("A", 1, body=b"x", queue_offset=number, properties=properties))
        for number, record in enumerate(writer.records):
            place = {"physical_offset": record.physical_offset, "topic": "A", "queue_id": 1, "queue_offset": number}
            texts = {"tags": "T", "keys": [f"k{number}"], "uniq_key": f"u{number}"}
            rows.append({**place, "msg_size": record.msg_size, "sys_flag": 0, **texts})
    return rows


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda rows: None, []),
        (lambda rows: rows.reverse(), []),
        (lambda rows: rows.pop(2), ["1 messages: missing from the table"]),
        (lambda rows: rows.append(dict(rows[3])), ["1 messages: doubled"]),
        (lambda rows: rows.append(dict(rows[4])), ["1 messages: doubled"]),
        (lambda rows: rows.append({**rows[0], "physical_offset": 7}), ["1 messages: rows of no message"]),
        (lambda rows: rows.append({**rows[0], "physical_offset": 10**6}), ["1 messages: rows of no message"]),
        (lambda rows: rows[1].update(uniq_key="another"), ["1 messages: differ"]),
    ],
)
def test_rows_are_compared_one_for_one(
    spoil: Any, words: list[str], archive: list[dict[str, Any]], tmp_path: Path
) -> None:
    spoil(archive)
    write_deltalake(str(tmp_path / "table"), pa.Table.from_pylist(archive))
    found = Equality()
    compare_rows(tmp_path / "archive", tmp_path / "table", [], found)
    assert found.messages == 5
    assert [line.partition(",")[0] for line in found.wrong] == words


def test_what_expired_unread_is_counted_apart(archive: list[dict[str, Any]], tmp_path: Path) -> None:
    """Only where reput said so."""
    begin, end = archive[1]["physical_offset"], archive[3]["physical_offset"]
    del archive[1:4]
    write_deltalake(str(tmp_path / "table"), pa.Table.from_pylist(archive))
    found = Equality()
    compare_rows(tmp_path / "archive", tmp_path / "table", [(begin, end)], found)
    assert found.expired_unread == 2
    assert found.wrong == [f"1 messages: missing from the table, the first at {end}"]


# --- the lag ---------------------------------------------------------------------------------------------


def look(shown: tuple[float, float], seen: float, batch: float = 0.5) -> lag.Look:
    """Seconds shown before and after, and seen; bytes are a thousand times as many."""
    before, after = (lag.Lag(1000 * each, each) for each in shown)
    return lag.Look("logic", BEGIN, before, lag.Lag(1000 * seen, seen), after, lag.Lag(1000 * batch, batch), 0.0)


@pytest.mark.parametrize(
    ("shown", "seen", "is_within"),
    [((1.0, 1.2), 1.1, True), ((1.0, 1.2), 2.6, True), ((1.0, 1.2), 2.8, False), ((3.0, 2.9), 1.3, False)],
)
def test_shown_and_seen_may_differ_by_a_second_and_a_batch(
    shown: tuple[float, float], seen: float, is_within: bool
) -> None:
    """From the nearest of what was shown before and after."""
    assert look(shown, seen).is_within(1000.0) is is_within


def test_bytes_are_judged_too() -> None:
    """At 10 bytes a second, one second and a batch of 500 bytes are 510 bytes."""
    assert not look((1.0, 1.0), 1.6).is_within(10.0)


def test_what_status_shows() -> None:
    """The period from batch to batch counts where it is longer than a batch."""
    recent = [{"at": 10.0, "start": 5, "end": 9, "seconds": 0.2}, {"at": 9.0, "start": 0, "end": 5, "seconds": 0.3}]
    query = {"query": "table", "behind": {"bytes": 3, "seconds": 0.1}, "recent": recent}
    assert lag.shown({"brokers": [{"queries": [query]}]}) == {"table": (lag.Lag(3, 0.1), lag.Lag(5, 1.0))}


def test_ends_of_queues_in_a_table(tmp_path: Path) -> None:
    """Of each commit as it comes; files of a merge bring nothing new."""
    follower = lag.TableFollower(tmp_path / "table")
    follower.look()
    assert follower.ends == {}
    for ends in ((0, 4), (1, 2)):
        rows = [{"topic": "A", "queue_id": queue, "queue_offset": end} for queue, end in enumerate(ends)]
        write_deltalake(str(tmp_path / "table"), pa.Table.from_pylist(rows), mode="append")
        follower.look()
    assert follower.ends == {("A", 0): 2, ("A", 1): 5}


def test_the_lag_is_that_of_the_first_message_that_is_missing(tmp_path: Path) -> None:
    """Two queues; the output has all but the last message of the one, the table all but the last of each."""
    store, output, table = tmp_path / "store", tmp_path / "out", tmp_path / "table"
    stored = [int(1000 * (time.time() - seconds)) for seconds in (40, 30, 20, 10)]
    with CommitLogWriter(store / "commitlog", lag.SEGMENT_BYTES) as writer:
        for number, at in enumerate(stored):
            writer.append(Message("A", number % 2, body=b"x", queue_offset=number // 2, store_timestamp=at))
        records = [(record.physical_offset, record.msg_size) for record in writer.records]
    for queue in (0, 1):
        for root, count in ((store, 2), (output, 2 - queue)):
            path = root / "consumequeue" / "A" / str(queue) / f"{0:020d}"
            path.parent.mkdir(parents=True)
            units = [lag.UNIT.pack(*records[2 * number + queue], 0) for number in range(count)]
            path.write_bytes(b"".join(units).ljust(lag.QUEUE_FILE_BYTES, b"\0"))
    rows = [{"topic": "A", "queue_id": queue, "queue_offset": 0} for queue in (0, 1)]
    write_deltalake(str(table), pa.Table.from_pylist(rows))
    found = lag.Outside(store, lambda topic, queue_id: 2, output, table).look()
    end = sum(records[3])
    assert (found["logic"].bytes, found["table"].bytes) == (end - records[3][0], end - records[2][0])
    assert found["logic"].seconds == pytest.approx(10, abs=5)
    assert found["table"].seconds == pytest.approx(20, abs=5)


def test_a_ratio_of_rounds() -> None:
    """Each round is compared with itself; chance is what the rounds differ by."""
    found = Ratio.of_rounds([90, 198, 303, 99], [100, 200, 300, 100])
    assert found.median == pytest.approx(0.99)
    assert found.uncertainty == pytest.approx(1.57 * (0.995 - 0.9675) / 2)
    assert str(found) == "0.990 (± 0.022)"


def test_what_costs_too_much() -> None:
    """More than a hundredth, however uncertain it is."""
    same = Ratio(1.0, 0.0)
    assert not too_dear(Ratio(0.991, 0.0), Ratio(1.009, 0.0))
    assert too_dear(Ratio(0.97, 0.1), same) == ["metrics and page take 3.0 % of the throughput"]
    assert too_dear(same, Ratio(1.03, 0.1)) == ["metrics and page add 3.0 % of processor time"]
