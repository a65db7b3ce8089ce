"""How time grows with messages, queues and cores, and on a Spark standalone cluster of one worker against two.

``make bench-scale``; one curve only with ``--only messages|queues|cores|cluster``, the parts of a cluster's work with
``--only parts``.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, astuple, replace
from pathlib import Path
from statistics import median
from typing import Any

from support.cpu_quota import CpuQuota
from support.spark_cluster import SparkCluster

from benchmarks import machine, plots, report
from benchmarks.bench import ONE_CORE, OTHER_BYTES, TWO_CORES, V4, Bench, Case, results_of, summaries_of
from benchmarks.cluster_parts import Parts, parts_of
from benchmarks.measure import Run, in_turn
from benchmarks.page_cache import held_in_memory
from benchmarks.run_files import sweep
from benchmarks.shapes import SHAPES, MadeLog, fitting, made_log
from benchmarks.subjects import BrokerCase, ReputCase

CURVES = ("messages", "queues", "cores", "cluster")
PARTS = "parts"
MESSAGES = (3_000_000, 10_000_000, 30_000_000)
QUEUES = ("queues-10", "standard", "queues-1000", "queues-10000", "queues-100000")
QUEUE_MESSAGES = 3_000_000
# Two workers of this size, and a driver, do not want more than two cores.
PART_OF_A_CORE = 0.4
MAP_COUNT = Path("/proc/sys/vm/max_map_count")
BROKER = BrokerCase(V4, V4, "4.9.3")
REPUT = ReputCase("reput local[2]", V4, TWO_CORES)
REPUT_ONE = ReputCase("reput local[1]", V4, ONE_CORE)
PAGE = "scale.md"
COLUMNS = ("case", "messages", "seconds", "messages/s", "slowest to fastest", "seconds in all", "CPU µs", "files equal")
# The estimate's log and cluster.
LOG_BYTES = 10e12
MACHINES = 50
CORES = 16
STANDARD_RECORD_BYTES = 517.4
# Bytes a second from a machine's disk, and to the directory that all share; and what is written of a message, once
# into scratch files and once into the output.
READ_RATE, WRITE_RATE = 500e6, 1e9
WRITTEN_BYTES = 2 * 60

Runs = dict[Case, list[Run]]


def measured(given: argparse.Namespace, log: MadeLog, cases: tuple[Case, ...]) -> Runs:
    """Measure the cases on a log, in memory if it fits there."""
    fits = log.size_bytes + OTHER_BYTES < machine.available_memory()
    print(f"{log.name}: {log.messages:,} messages, {'held in memory' if fits else 'read from the disk'}", flush=True)
    bench = Bench(log, given.work)
    with held_in_memory(log.commit_log) if fits else nullcontext():
        return in_turn(cases, given.rounds, bench.run)


def of_messages(given: argparse.Namespace) -> dict[str, Runs]:
    """The standard shape, longer and longer."""
    shape = SHAPES["standard"]
    counts = [count // given.divide for count in MESSAGES]
    logs = [made_log(given.work, "standard", replace(shape, messages=count)) for count in counts]
    return {f"{log.messages:,} messages": measured(given, log, (BROKER, REPUT)) for log in logs}


def of_queues(given: argparse.Namespace) -> dict[str, Runs]:
    """The same number of messages over more and more queues."""
    found = {}
    for name in QUEUES:
        shape = replace(SHAPES[name], messages=QUEUE_MESSAGES // given.divide)
        # A broker maps every queue file into memory.
        has_broker = shape.queues < int(MAP_COUNT.read_text())
        cases = (BROKER, REPUT) if has_broker else (REPUT,)
        found[f"{shape.queues:,} queues"] = measured(given, made_log(given.work, name, shape), cases)
    return found


def of_cores(given: argparse.Namespace) -> dict[str, Runs]:
    """One core and two."""
    shape = replace(SHAPES["standard"], messages=given.messages // given.divide)
    log = made_log(given.work, "standard", fitting(shape, machine.available_memory() - OTHER_BYTES))
    return {"cores": measured(given, log, (BROKER, REPUT_ONE, REPUT))}


def of_cluster(given: argparse.Namespace) -> dict[str, Runs]:
    """A master with one worker, then with two; the driver is a process beside them.

    Workers of a whole core each, which the driver and the system have to share here; and of so little each that both
    and the driver have room on two cores.
    """
    shape = replace(SHAPES["standard"], messages=given.messages // given.divide)
    log = made_log(given.work, "standard", fitting(shape, machine.available_memory() - OTHER_BYTES))
    bench = Bench(log, given.work)
    runs: Runs = {BROKER: []}
    shares = (None, PART_OF_A_CORE) if CpuQuota.is_possible() else (None,)
    with held_in_memory(log.commit_log):
        runs[BROKER].append(bench.run(BROKER))
        for _ in range(given.rounds):
            for share in shares:
                for workers in (1, 2):
                    on_cluster(given.work, bench, runs, workers, share)
    return {"cluster": runs}


def on_cluster(work: Path, bench: Bench, runs: Runs, workers: int, share: float | None) -> None:
    """One run more on a cluster of its own."""
    with (
        tempfile.TemporaryDirectory(dir=work) as scratch,
        SparkCluster(Path(scratch), workers, share) as cluster,
    ):
        name = f"reput, cluster of {workers} x {share or 1} core"
        case = ReputCase(name, V4, (("sparkMaster", cluster.url),), also=cluster.pids, environment=cluster.environment)
        # Each cluster has a port and processes of its own; what is measured is the same case.
        known = next((kept for kept in runs if kept.name == name), case)
        runs.setdefault(known, []).append(bench.run(case))


def save_parts(given: argparse.Namespace) -> None:
    """Save the parts of a rebuild on a cluster, the median of several rounds, and the estimate for `LOG_BYTES`."""
    shape = replace(SHAPES["standard"], messages=given.messages // given.divide)
    log = made_log(given.work, "standard", fitting(shape, machine.available_memory() - OTHER_BYTES))
    found_on = machine.facts(given.work)
    with held_in_memory(log.commit_log):
        runs = [parts_of(log, given.work) for _ in range(given.rounds)]
    middle = Parts(*(median(values) for values in zip(*map(astuple, runs), strict=True)))
    block = f"{machine.sentence(found_on)}; medians of {given.rounds}.\n\n{estimate(middle, STANDARD_RECORD_BYTES)}"
    print(block)
    results = {"machine": found_on, "record_bytes": STANDARD_RECORD_BYTES, "rounds": [asdict(run) for run in runs]}
    report.save(results, block, f"scale-{PARTS}", given.work, given.docs, PAGE, None)


def table_of(found: dict[str, Runs]) -> str:
    """A row for each point and case."""
    rows = [
        [
            f"{point}: {summary.case}",
            f"{summary.messages:,}",
            f"{summary.seconds:.2f}",
            f"{summary.rate:,.0f}",
            f"{summary.rate_min:,.0f} to {summary.rate_max:,.0f}",
            f"{summary.seconds_in_all:.2f}",
            f"{summary.cpu_micros:.2f}",
            f"{summary.files_equal:,}" if summary.files_equal else "-",
        ]
        for point, runs in found.items()
        for summary in summaries_of(runs)
    ]
    return report.markdown_table(COLUMNS, rows)


def estimate(parts: Parts, record_bytes: float) -> str:
    """Estimate the time for `LOG_BYTES` on `MACHINES`, from the measured parts and the disks' rates."""
    messages = LOG_BYTES / record_bytes
    cores = MACHINES * CORES
    rows = [
        ("tasks that read, one core, measured", parts.reading),
        ("tasks that write queues, one core, measured", parts.queues),
        ("tasks that write the index, one core, measured", parts.index),
        ("the driver, which no core can share, simulated", parts.driver),
        (f"processors of {MACHINES} machines of {CORES} cores, extrapolated", parts.on(cores)),
        (
            f"reading with {READ_RATE / 1e6:.0f} MB/s on each machine, computed",
            record_bytes / READ_RATE / MACHINES * 1e6,
        ),
        (f"writing with {WRITE_RATE / 1e9:.0f} GB/s in all, computed", WRITTEN_BYTES / WRITE_RATE * 1e6),
    ]
    return report.markdown_table(
        (f"{messages:,.0f} messages of {record_bytes:.0f} bytes", "µs a message", "hours"),
        [[name, f"{micros:.4f}", f"{messages * micros / 3.6e9:.2f}"] for name, micros in rows],
    )


def points(found: dict[str, Runs]) -> dict[str, list[tuple[float, float]]]:
    """Lines of a plot: messages a second by the number that a point's name begins with."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for point, runs in found.items():
        for summary in summaries_of(runs):
            number = float(point.partition(" ")[0].replace(",", ""))
            lines.setdefault(summary.case, []).append((number, summary.rate))
    return lines


def main() -> None:
    """Measure the curves that were asked for, each into its own block of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", choices=(*CURVES, PARTS), nargs="*", default=[*CURVES, PARTS])
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the log for cores and cluster")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--divide", type=int, default=1, help="all numbers of messages by this: for a trial")
    parser.add_argument("--docs", type=Path, help="put results into the pages of this directory")
    given = parser.parse_args()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    measures = {"messages": of_messages, "queues": of_queues, "cores": of_cores, "cluster": of_cluster}
    if PARTS in given.only:
        save_parts(given)
    for name in [each for each in given.only if each != PARTS]:
        found_on = machine.facts(given.work)
        found = measures[name](given)
        block = f"Measured: {machine.sentence(found_on)}; medians of {given.rounds}.\n\n{table_of(found)}"
        results: dict[str, Any] = {"machine": found_on, **{point: results_of(runs) for point, runs in found.items()}}
        print(block)
        is_curve = name in {"messages", "queues"}
        title = f"Messages a second by {name}" if is_curve else None
        directory = report.save(results, block, f"scale-{name}", given.work, given.docs, PAGE, title)
        if is_curve:
            plots.curves(points(found), directory / f"scale-{name}.png", f"Reput by {name}", (name, "messages/s"))
    sweep(given.work)


if __name__ == "__main__":
    main()
