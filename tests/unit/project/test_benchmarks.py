"""The computations and readings of the benchmarks: medians, tables, digests, the shapes' logs; no benchmark runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import measure, page_cache, report, run_files
from benchmarks.bench import Judge
from benchmarks.cluster_parts import Parts, driver_micros
from benchmarks.digests import differing_files, file_digest, store_digests
from benchmarks.latency import pace
from benchmarks.latency_watch import CommitWatch, QueueFollower, QueueWatch
from benchmarks.measure import Run, Usage, in_turn, summarize
from benchmarks.processes import Sampler, kind_of, run_watched, tree
from benchmarks.scale import estimate, points
from benchmarks.shapes import SHAPES, fitting, made_log
from benchmarks.subjects import BrokerCase, RebuildCommand, ReputCase, TailCommand, batch_seconds
from support.paths import ROOT

from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows
from reput.source.log.reput_end_offset import ReputEndFinder

QUIET = Usage({"worker": 2.0, "driver": 1.0}, {"worker": 30.0}, {"worker": 20.0})
IPV6_HOSTS = 0x30
RUNS = [Run(100, seconds, seconds + 10, QUIET, files_equal=equal) for seconds, equal in [(4.0, 0), (1.0, 7), (2.0, 6)]]


# --- measure ---------------------------------------------------------------------------------------------


def test_a_summary_holds_medians_and_the_spread() -> None:
    """The median is the middle run, the spread the slowest and the fastest; the first run had nothing to compare."""
    found = summarize("reput", "broker", RUNS)
    assert (found.seconds, found.seconds_in_all, found.rate, found.runs) == (2.0, 12.0, 50.0, 3)
    assert (found.rate_min, found.rate_max, found.files_equal) == (25.0, 100.0, 6)
    assert (found.cpu_seconds, found.own_mb, found.peak_mb) == (3.0, {"worker": 20.0}, {"worker": 30.0})
    assert found.micros == pytest.approx(20_000)
    assert found.rate_in_all == pytest.approx(100 / 12)
    assert found.cpu_micros == pytest.approx(30_000)


def test_runs_of_different_logs_are_no_case() -> None:
    """Their medians would mean nothing."""
    with pytest.raises(ValueError, match=r"different numbers of messages, \[100, 101\]"):
        summarize("reput", "broker", [*RUNS, replace(RUNS[0], messages=101)])


def test_a_ratio_is_of_rates() -> None:
    """Twice as fast is 2; without its base there is none."""
    ours, broker = summarize("reput", "broker", RUNS), summarize("broker", "broker", [replace(RUNS[0], seconds=4.0)])
    assert measure.ratio(ours, [broker, ours]) == pytest.approx(2.0)
    assert measure.ratio(ours, [ours]) is None


def test_cases_of_a_round_alternate() -> None:
    """Each once a round, and every second round the other way round."""
    asked: list[str] = []
    runs = in_turn(["a", "b"], 3, lambda case: asked.append(case) or RUNS[0])  # type: ignore[func-returns-value]
    assert asked == ["a", "b", "b", "a", "a", "b"]
    assert {case: len(found) for case, found in runs.items()} == {"a": 3, "b": 3}


def test_the_estimate_tells_what_is_extrapolated() -> None:
    """10 TB in records of 500 bytes on 50 machines of 16 cores."""
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in estimate(Parts(0.6, 0.1, 0.1, 0.05), 500).splitlines()
    ]
    assert lines[0][0] == "20,000,000,000 messages of 500 bytes"
    assert [(line[0].rpartition(" ")[2], *line[1:]) for line in lines[2:]] == [
        ("measured", "0.6000", "3.33"),
        ("measured", "0.1000", "0.56"),
        ("measured", "0.1000", "0.56"),
        ("simulated", "0.0500", "0.28"),
        ("extrapolated", "0.0510", "0.28"),
        ("computed", "0.0200", "0.11"),
        ("computed", "0.1200", "0.67"),
    ]


def test_a_driver_gets_all_results_of_a_simulation(tmp_path: Path) -> None:
    """The simulation itself looks whether the sinks end where the log does."""
    assert driver_micros(tmp_path, 40_000_000, 40) > 0


def test_a_plots_points_are_read_from_their_names() -> None:
    """The number a point's name begins with, a line a case."""
    case = ReputCase("reput", "b")
    assert points({"1,000 queues": {case: RUNS}, "10 queues": {case: RUNS[:1]}}) == {"reput": [(1000, 50), (10, 25)]}


# --- report ----------------------------------------------------------------------------------------------


def test_a_table_has_a_row_a_case() -> None:
    """The base has no ratio; memory is by kind, own and with mapped files."""
    broker = summarize("broker", "broker", [replace(RUNS[0], seconds=4.0)])
    lines = report.summary_table([broker, summarize("reput", "broker", RUNS)]).splitlines()
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {len(report.COLUMNS) + 1}
    assert [cell.strip() for cell in lines[2].split("|")[5:6]] == ["-"]
    assert lines[3] == "| reput | 50 | 25 to 100 | 20000.00 | 2.00 of broker | 8 | 30000.00 | worker 20 (30) | 6 |"


def test_a_block_is_replaced_and_nothing_else() -> None:
    """Twice gives the same page; marks that are missing or double are an error."""
    page = "# A\n<!-- begin x -->\nold\n<!-- end x -->\nrest\n"
    new = report.with_block(page, "x", "new\n")
    assert new == "# A\n<!-- begin x -->\nnew\n<!-- end x -->\nrest\n"
    assert report.with_block(new, "x", "new") == new
    for bad in ("", page + page):
        with pytest.raises(ValueError, match="once each"):
            report.with_block(bad, "x", "new")


def test_the_pages_have_a_place_for_each_block() -> None:
    """A benchmark with --docs finds the marks for its results."""
    docs = ROOT / "docs"
    places = {
        "benchmarks.md": ["standard", "shapes", "latency"],
        "scale.md": ["scale-messages", "scale-queues", "scale-cores", "scale-cluster"],
    }
    for page, names in places.items():
        text = (docs / page).read_text(encoding="utf-8")
        for name in names:
            assert "NEW" in report.with_block(text, name, "NEW")


# --- digests and the judge -------------------------------------------------------------------------------


def test_a_hole_equals_written_zeros_and_nothing_else(tmp_path: Path) -> None:
    """Size, place and bytes count; what of a file is on disk does not."""
    data = bytearray(40_000)
    # A hole lies between them, so that the file's data are in two pieces.
    data[9000:9003], data[26000:26003] = b"abc", b"xyz"
    sparse, dense = tmp_path / "sparse", tmp_path / "dense"
    with sparse.open("wb") as file:
        file.truncate(len(data))
        os.pwrite(file.fileno(), b"abc", 9000)
        os.pwrite(file.fileno(), b"xyz", 26000)
    dense.write_bytes(data)
    wanted = file_digest(dense)
    assert file_digest(sparse) == wanted
    for changed in (data + b"\0", data[:-1], data[4096:] + bytes(4096), data.replace(b"abc", b"abd"), bytes(40_000)):
        dense.write_bytes(changed)
        assert file_digest(dense) != wanted


def test_a_store_is_known_by_queue_paths_and_index_order(tmp_path: Path) -> None:
    """The index's names are clocks."""
    for store, names in {"a": ("1", "2"), "b": ("5", "9")}.items():
        write(tmp_path / store / "consumequeue" / "T" / "0" / "00", b"entry")
        for name in names:
            write(tmp_path / store / "index" / name, b"index" + str(names.index(name)).encode())
    first, second = store_digests(tmp_path / "a"), store_digests(tmp_path / "b")
    assert sorted(first) == ["consumequeue/T/0/00", "index/0", "index/1"]
    assert differing_files(first, second) == []
    assert differing_files(first, store_digests(tmp_path / "b", index=False)) == ["index/0", "index/1"]


def test_a_run_is_judged_by_the_broker_that_ran_before(tmp_path: Path) -> None:
    """Queues by any broker's, the index by the same release's; one changed byte ends the benchmark."""
    write(tmp_path / "consumequeue" / "T" / "0" / "00", b"entry")
    write(tmp_path / "index" / "1", b"index")
    judge = Judge()
    assert judge.judge(ReputCase("early", "b"), tmp_path) == 0
    assert judge.judge(BrokerCase("b", "b", "4.9.3"), tmp_path) == 0
    assert judge.judge(ReputCase("r", "b"), tmp_path) == 2
    assert judge.judge(ReputCase("as 5.5.0", "b", index_of="5.5.0"), tmp_path) == 1
    assert judge.judge(BrokerCase("5", "5", "5.5.0"), tmp_path) == 1
    write(tmp_path / "index" / "1", b"indey")
    with pytest.raises(SystemExit, match=r"r: 1 files differ from the broker's: \['index/0'\]"):
        judge.judge(ReputCase("r", "b"), tmp_path)
    assert judge.judge(ReputCase("queues", "b", index_of=None), tmp_path) == 1


# --- the logs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_what_its_name_says(name: str, tmp_path: Path) -> None:
    """Every record is read back, hosts and sizes are the shape's; a second call makes nothing."""
    shape = replace(SHAPES[name], messages=300, mapped_file_size=1 << 20)
    write(tmp_path / "logs" / f"{name}-300" / "commitlog" / "00", b"a stopped run's")
    log = made_log(tmp_path, name, shape)
    queue = MappedFileQueue.load([log.commit_log])
    end = ReputEndFinder(check_crc=True, tail_guard_ms=0).find(queue, 0).offset
    spans = [(file, file.file_from_offset, min(file.end, end)) for file in queue.files]
    columns = [window.columns for span in spans for window in read_windows(*span, DecodeOptions())]
    assert sum(map(len, columns)) == log.messages == 300
    assert sum(int(found.msg_size.sum()) for found in columns) == log.size_bytes
    # `fitting` takes this size for a record.
    assert log.size_bytes / 300 == pytest.approx(shape.body_bytes + 170 + 24 * shape.keys, rel=0.15)
    assert any((found.sys_flag == IPV6_HOSTS).any() for found in columns) == shape.ipv6
    assert len({key for found in columns for key in found.queue_id.tolist()}) <= shape.queues
    made = (log.store / "made.json").stat().st_mtime_ns
    assert made_log(tmp_path, name, shape) == log
    assert (log.store / "made.json").stat().st_mtime_ns == made
    with pytest.raises(SystemExit, match="another shape"):
        made_log(tmp_path, name, replace(shape, seed=2))


def test_a_log_fits_where_it_must() -> None:
    """Fewer messages where there is less room, never more than the shape's own."""
    shape = SHAPES["standard"]
    assert fitting(shape, 1 << 40) == shape
    fewer = fitting(shape, 1 << 30).messages
    assert 1_500_000 < fewer < 2_500_000
    assert fitting(SHAPES["body-64k"], 1 << 30).messages < 20_000


# --- processes, memory, files ----------------------------------------------------------------------------


def test_a_process_and_its_child_are_watched(tmp_path: Path) -> None:
    """Both kinds have memory and processor time, and their output is kept."""
    burn = "import time; data = bytearray(50_000_000)\nwhile time.process_time() < 0.5: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('done')"
    seconds, output, usage = run_watched([sys.executable, "-c", code], tmp_path / "log", "root")
    assert output == "done\n"
    assert seconds > 0.5
    assert usage.own_mb["worker"] > 45
    assert usage.cpu_seconds["worker"] > 0.1
    assert 0 < usage.own_mb["root"] < usage.peak_mb["worker"]


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    """With its exit code and the end of its log."""
    with pytest.raises(SystemExit, match=r"(?s)ended with 3.*boom"):
        run_watched(
            [sys.executable, "-c", "import sys; print('boom', file=sys.stderr); sys.exit(3)"], tmp_path / "l", "r"
        )


def test_time_before_the_run_is_not_the_runs() -> None:
    """Processes that existed before, such as a cluster's, count from the begin of the run."""
    # It works until the system has counted a second of it.
    work = "import time\nwhile time.process_time() < 1: sum(range(100_000))\nprint(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", work], stdin=-1, stdout=-1)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in set(tree(os.getpid()))
        sampler = Sampler(os.getpid(), "root", also=[child.pid])
        sampler.sample()
        assert sampler.usage.cpu_seconds["worker"] < 0.5
    finally:
        child.communicate()


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/usr/bin/java -cp x org.apache.spark.deploy.SparkSubmit", "driver JVM"),
        ("java -cp x org.apache.spark.deploy.master.Master --host", "cluster master"),
        ("java -cp x org.apache.spark.deploy.worker.Worker spark://", "cluster worker"),
        ("java org.apache.spark.executor.CoarseGrainedExecutorBackend --worker-url", "executor JVM"),
        ("/x/bin/python -m reput.streaming.tail.worker_daemon pyspark.worker", "worker"),
    ],
)
def test_processes_are_told_by_their_command_lines(command: str, kind: str) -> None:
    """One kind each."""
    assert kind_of(command) == kind


def test_a_dropped_log_is_not_in_memory(tmp_path: Path) -> None:
    """Reading brings it back; where the file system keeps everything in memory, nothing can be dropped."""
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "00").write_bytes(os.urandom(1 << 20))
    assert page_cache.resident_share(tmp_path / "log") > 0.99
    with page_cache.held_in_memory(tmp_path / "log"):
        assert page_cache.resident_share(tmp_path / "log") == 1
    in_memory = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True).stdout
    if in_memory.strip() != "tmpfs":
        assert page_cache.drop(tmp_path / "log") < 0.5


def test_the_seconds_of_a_tail_are_between_its_first_batchs_begin_and_its_lasts_end() -> None:
    """Two queries at once; other lines say nothing."""
    lines = [
        "2026-11-21 11:43:03,000 INFO logic: [0, 10): 1000 messages, 500 messages/s, 1.3 MB/s, ? bytes behind",
        "2026-11-21 11:43:03,500 INFO table: [0, 10): 1000 messages, 400 messages/s, 1.2 MB/s, ? bytes behind",
        "2026-11-21 11:43:09,000 WARNING a Spark job failed",
        "2026-11-21 11:43:04,000 INFO logic: [10, 20): 1000 messages, 999 messages/s, 1.2 MB/s, 0 bytes behind",
    ]
    assert batch_seconds(lines) == pytest.approx(3.0)
    summary = "logic: 2000 messages in 2 batches, 1.5 s, 1 messages/s\ntable: 2000 messages in 1 batch, 1 s\n"
    assert TailCommand().figures(summary, "\n".join(lines)) == (2000, pytest.approx(3.0))
    with pytest.raises(SystemExit, match="disagree"):
        TailCommand().figures(summary.replace("2000", "2001", 1), "\n".join(lines))


def test_the_seconds_of_a_rebuild_are_without_its_start_up() -> None:
    """Of the JSON report that `reput rebuild --json` prints."""
    said = '{"messages": 2000, "seconds": {"start_up": 9.5, "read": 2.0, "write": 1.5, "all": 12.0}}'
    assert RebuildCommand().figures(said, "INFO rebuild: ...") == (2000, pytest.approx(2.5))


# --- latency ---------------------------------------------------------------------------------------------


def test_the_pace_of_a_query_is_read_from_its_log() -> None:
    """Medians of the micro-batches behind the warm-up; the other query's lines do not count."""
    lines = [
        "2026-11-21 11:43:00,000 INFO logic: [0, 10): 90 messages, 1 messages/s, 1.3 MB/s, ? bytes behind",
        "2026-11-21 11:43:03,000 INFO logic: [10, 20): 100 messages, 500 messages/s, 1.3 MB/s, ? bytes behind",
        "2026-11-21 11:43:03,100 INFO table: [10, 20): 100 messages, 100 messages/s, 1.3 MB/s, ? bytes behind",
        "2026-11-21 11:43:03,400 INFO logic: [20, 30): 100 messages, 1000 messages/s, 1.3 MB/s, ? bytes behind",
        "2026-11-21 11:43:04,000 INFO logic: [30, 40): 300 messages, 1000 messages/s, 1.3 MB/s, ? bytes behind",
    ]
    found = pace("\n".join(lines), "logic", 10)
    assert (found.batch_ms, found.period_ms) == pytest.approx((200, 500))


def entry(offset: int) -> bytes:
    return offset.to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8)


def test_entries_are_seen_once_and_over_the_end_of_a_file(tmp_path: Path) -> None:
    """First the existing ones, then new ones; an entry that is half written is not seen before it is whole."""
    follower = QueueFollower(tmp_path, 60)
    assert follower.new_offsets().tolist() == []
    first, second = tmp_path / f"{0:020d}", tmp_path / f"{60:020d}"
    first.write_bytes(entry(1) + entry(2) + bytes(20))
    assert follower.new_offsets().tolist() == [1, 2]
    assert follower.new_offsets().tolist() == []
    first.write_bytes(entry(1) + entry(2) + entry(3))
    second.write_bytes(entry(4) + bytes(40))
    assert follower.new_offsets().tolist() == [3, 4]
    follower.close()


def test_delays_are_from_the_store_timestamp_to_what_was_seen(tmp_path: Path) -> None:
    """Of entries and of commits; a message that is nowhere is an error."""
    now = time.time() * 1000
    offsets, times = np.array([0, 100, 200]), np.array([now - 1000] * 3, np.int64)
    queues = QueueWatch(tmp_path / "consumequeue", 60)
    commits = CommitWatch(tmp_path / "messages")
    with queues, commits:
        write(tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}", entry(0) + entry(200) + bytes(20))
        write(tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}", entry(100) + bytes(40))
        write(tmp_path / "messages" / "_delta_log" / "00.json", b'{"commitInfo":{}}\n')
        write(tmp_path / "messages" / "_delta_log" / "01.json", b'{"txn":{"appId":"a","version":150}}\n')
        while "01.json" not in commits._seen:
            time.sleep(0.01)
        write(tmp_path / "messages" / "_delta_log" / "02.json", b'{"txn":{"appId":"a","version":300}}\n')
    passed = time.time() * 1000 - now
    delays = queues.delays(offsets, times)
    assert delays.shape == (3,)
    assert 1000 <= delays.min() <= delays.max() <= 1001 + passed
    rows = commits.delays(offsets, times)
    assert 1000 <= rows[0] == rows[1] < rows[2] <= 1001 + passed
    with pytest.raises(ValueError, match="1 of 1 messages have no queue entry"):
        queues.delays(np.array([50]), times[:1])
    with pytest.raises(ValueError, match="1 messages are behind the last commit or record"):
        commits.delays(np.array([300]), times[:1])


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_many_files_are_put_aside_until_all_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is free at once; another run's files do not meet them."""
    monkeypatch.setattr(run_files, "MANY", 3)
    for number in (2, 3, 4):
        for name in range(number):
            (tmp_path / "output" / "a" / f"{name}").mkdir(parents=True)
            (tmp_path / "output" / "a" / f"{name}" / "f").touch()
        run_files.clear(tmp_path / "output")
        assert not (tmp_path / "output").exists()
    assert sorted(len(list(found.rglob("f"))) for found in (tmp_path / "aside").iterdir()) == [3, 4]
    run_files.sweep(tmp_path)
    run_files.sweep(tmp_path)
    run_files.clear(tmp_path / "output")
    assert list(tmp_path.iterdir()) == []
