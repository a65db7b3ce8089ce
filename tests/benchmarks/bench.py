"""reput beside the broker's own reput on the same log: medians, ratios, memory; every run's files are compared.

``make bench`` measures the standard shape, ``make bench-all`` all shapes. Cases of a round alternate. The log is held
in memory, outputs go to the file system of ``--work``, and a run begins after what the one before wrote is on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import machine, plots, report
from benchmarks.decoder_rates import decoder_rates
from benchmarks.digests import Digests, differing_files, store_digests
from benchmarks.measure import Run, Summary, as_dict, in_turn, summarize
from benchmarks.page_cache import drop, held_in_memory
from benchmarks.run_files import sweep
from benchmarks.shapes import ALL, SHAPES, MadeLog, fitting, made_log
from benchmarks.subjects import COMMAND, TAIL, BrokerCase, ReputCase

Case = BrokerCase | ReputCase

V4, V5 = "broker 4.9.3", "broker 5.5.0"
V4_QUEUES, V5_QUEUES = f"{V4}, queues only", f"{V5}, queues only"
QUEUES_ONLY = (("messageIndexEnable", "false"),)
CONCURRENT = (("enableBuildConsumeQueueConcurrently", "true"),)
TWO_CORES, ONE_CORE = (("sparkMaster", "local[2]"),), (("sparkMaster", "local[1]"),)
WITH_TABLE = ReputCase("reput local[2], with table", V4, TWO_CORES, has_table=True)

PAIRS: tuple[Case, ...] = (
    BrokerCase(V4, V4, "4.9.3"),
    ReputCase("reput local[2]", V4, TWO_CORES),
    BrokerCase(V4_QUEUES, V4_QUEUES, "4.9.3", QUEUES_ONLY),
    ReputCase("reput local[2], queues only", V4_QUEUES, TWO_CORES, index_of=None),
    WITH_TABLE,
)
TAILS: tuple[Case, ...] = (
    ReputCase("reput tail local[2]", V4, TWO_CORES, command=TAIL),
    ReputCase("reput tail local[2], with table", V4, TWO_CORES, has_table=True, command=TAIL),
)
STANDARD: tuple[Case, ...] = (
    *PAIRS,
    BrokerCase(V5, V5, "5.5.0"),
    ReputCase("reput local[1]", V4, ONE_CORE),
    BrokerCase(V5_QUEUES, V5_QUEUES, "5.5.0", QUEUES_ONLY),
    ReputCase("reput local[2], index as 5.5.0", V5, TWO_CORES, index_of="5.5.0"),
    BrokerCase(f"{V5}, concurrent", V5, "5.5.0", CONCURRENT),
    ReputCase("reput local[1], queues only", V4_QUEUES, ONE_CORE, index_of=None),
    *([] if COMMAND is TAIL else TAILS),
)
COLD: tuple[Case, ...] = PAIRS[:2]
# Beside the log: index files and queues of a run, processes, Spark.
OTHER_BYTES = 7 * machine.GIB
PAGE = "benchmarks.md"


class Judge:
    """Compares each run's files with those of the first broker's run that made such files."""

    def __init__(self) -> None:
        self._wanted: dict[str, Digests] = {}

    def judge(self, case: Case, output: Path) -> int:
        """How many files equal the broker's; 0 when no broker made such files before.

        Raises
        ------
        SystemExit
            A file differs, is missing or is too many.
        """
        found = store_digests(output, index=case.has_index)
        index = {name: found.pop(name) for name in list(found) if name.startswith("index/")}
        kinds = {"queues": found}
        if case.has_index:
            # Releases index different keys.
            kinds[f"index of {case.version if isinstance(case, BrokerCase) else case.index_of}"] = index
        equal = 0
        for kind, digests in kinds.items():
            wanted = self._wanted.get(kind)
            if wanted is not None:
                if differing := differing_files(wanted, digests):
                    raise SystemExit(f"{case.name}: {len(differing)} files differ from the broker's: {differing[:5]}")
                equal += len(digests)
            elif isinstance(case, BrokerCase):
                self._wanted[kind] = digests
        return equal


class Bench:
    """Cases on one log, in the directory `work`."""

    def __init__(self, log: MadeLog, work: Path) -> None:
        self._log = log
        self._work = work
        self._judge = Judge()

    def run(self, case: Case, *, is_cold: bool = False) -> Run:
        """Measure a case once, compare its files, say how it went."""
        os.sync()  # what the run before wrote would be written back during this one
        before = {"log in memory": drop(self._log.commit_log)} if is_cold else {}
        result = case.measure(self._log, self._work)
        run = replace(result.run, details={**result.run.details, **before})
        if run.messages != self._log.messages:
            raise SystemExit(f"{case.name} dispatched {run.messages} of {self._log.messages} messages")
        run = replace(run, files_equal=self._judge.judge(case, result.output))
        if isinstance(case, ReputCase) and not run.files_equal:
            case.prove(self._log, result.output)
        print(
            f"  {case.name:<32} {run.messages / run.seconds:12,.0f}/s {run.seconds:8.2f} s, in all "
            f"{run.seconds_in_all:7.2f} s, CPU {run.usage.cpu_in_all:7.2f} s, {run.files_equal} files equal",
            flush=True,
        )
        return run

    def warm(self, cases: Sequence[Case], rounds: int) -> dict[Case, list[Run]]:
        """Measure with the log held in memory."""
        with held_in_memory(self._log.commit_log):
            return in_turn(cases, rounds, self.run)

    def cold(self, cases: Sequence[Case], rounds: int) -> dict[Case, list[Run]]:
        """Measure with the log dropped from memory before each run."""
        return in_turn(cases, rounds, lambda case: self.run(case, is_cold=True))


def summaries_of(runs: dict[Case, list[Run]]) -> list[Summary]:
    """Medians, in the order of the cases."""
    return [summarize(case.name, case.base, found) for case, found in runs.items()]


def results_of(runs: dict[Case, list[Run]]) -> list[dict[str, Any]]:
    """Everything about the cases, for JSON."""
    return [as_dict(summary, found) for summary, found in zip(summaries_of(runs), runs.values(), strict=True)]


def spark_bound(work: Path, rounds: int) -> dict[str, Any]:
    """Rows of reput's last table from Parquet into Delta with Spark's own writer, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.spark_bound", "--table", str(work / "messages")]
    words += ["--target", str(work / "spark-bound"), "--rounds", str(rounds)]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def standard(given: argparse.Namespace) -> None:
    """The standard shape: all cases, cold runs, Spark's own bound, the decoder alone."""
    log = given_log(given, "standard")
    bench = Bench(log, given.work)
    found_on = machine.facts(given.work)
    with held_in_memory(log.commit_log):
        rates = decoder_rates(log.store)
    runs = bench.warm(STANDARD, given.rounds)
    bench.run(WITH_TABLE)  # leaves the table whose rows Spark is to write
    bound = spark_bound(given.work, given.rounds)
    cold = bench.cold(COLD, given.cold_rounds)
    share = max(float(run.details["log in memory"]) for found in cold.values() for run in found)
    size = f"{log.messages:,} messages of {log.size_bytes / log.messages:.1f} bytes"
    parts = [
        f"{size}; {machine.sentence(found_on)}; medians of {given.rounds}.",
        report.summary_table(summaries_of(runs)),
        f"The log dropped from memory before each run ({share:.1%} of it stayed), medians of {given.cold_rounds}:",
        report.summary_table(summaries_of(cold)),
        f"Spark's own bound: {bound['rows']:,} rows from Parquet into Delta with the DataFrame writer, local[2]:",
        report.markdown_table(
            ("statistics", "rows/s", "µs"),
            [
                [name, f"{bound['rows'] / seconds:,.0f}", f"{seconds / bound['rows'] * 1e6:.2f}"]
                for name, seconds in bound["seconds"].items()
            ],
        ),
        "The decoder alone, one core, the best of three:",
        report.markdown_table(
            ("step", "µs", "messages/s"), [[name, f"{micros:.3f}", f"{1e6 / micros:,.0f}"] for name, micros in rates]
        ),
    ]
    results = {
        "machine": found_on,
        "log": {"messages": log.messages, "size_bytes": log.size_bytes},
        "warm": results_of(runs),
        "cold": results_of(cold),
        "spark_bound": bound,
        "decoder_micros": dict(rates),
    }
    block = "\n\n".join(parts)
    print(block)
    directory = report.save(results, block, "standard", given.work, given.docs, PAGE, "Messages a second by case")
    plots.rates(summaries_of(runs), directory / "standard.png", "Reput of one log, messages a second")


def all_shapes(given: argparse.Namespace) -> None:
    """Every shape with the main cases."""
    found_on = machine.facts(given.work)
    results: dict[str, Any] = {"machine": found_on, "shapes": {}}
    rows = []
    for name in given.shapes or ALL:
        log = given_log(given, name)
        print(f"{name}: {log.messages:,} messages of {log.size_bytes / log.messages:.1f} bytes", flush=True)
        runs = Bench(log, given.work).warm(PAIRS, given.rounds)
        summaries = summaries_of(runs)
        results["shapes"][name] = {"messages": log.messages, "size_bytes": log.size_bytes, "cases": results_of(runs)}
        rows.append([name, f"{log.messages:,}", f"{log.size_bytes / log.messages:,.0f}", *shape_figures(summaries)])
    head = f"{machine.sentence(found_on)}; medians of {given.rounds}; messages/s without start-up."
    block = f"{head}\n\n{report.markdown_table(SHAPE_COLUMNS, rows)}"
    print(block)
    directory = report.save(results, block, "shapes", given.work, given.docs, PAGE, "Messages a second by shape")
    plots.shapes(results["shapes"], directory / "shapes.png")


SHAPE_COLUMNS = (
    "shape",
    "messages",
    "bytes each",
    *("broker 4.9.3", "reput", "ratio"),
    *("broker, queues only", "reput, queues only", "ratio"),
    *("reput, with table", "files equal"),
    "memory of its own, MB: driver, worker",
    "with table: driver, worker, JVM",
)


def shape_figures(summaries: Sequence[Summary]) -> list[str]:
    """A shape's figures in the order of `PAIRS`, as `SHAPE_COLUMNS` has them."""
    broker, ours, broker_queues, our_queues, table = summaries
    return [
        *(f"{broker.rate:,.0f}", f"{ours.rate:,.0f}", f"{ours.rate / broker.rate:.2f}"),
        *(f"{broker_queues.rate:,.0f}", f"{our_queues.rate:,.0f}", f"{our_queues.rate / broker_queues.rate:.2f}"),
        *(f"{table.rate:,.0f}", f"{ours.files_equal:,}"),
        *(memory(ours, "driver Python", "worker"), memory(table, "driver Python", "worker", "driver JVM")),
    ]


def memory(summary: Summary, *kinds: str) -> str:
    """The most that a process of each kind had."""
    return ", ".join(f"{summary.own_mb[kind]:,.0f}" for kind in kinds)


def given_log(given: argparse.Namespace, name: str) -> MadeLog:
    """The log of a shape, with as many messages as were asked for or fit in memory."""
    shape = SHAPES[name]
    if given.messages:
        shape = replace(shape, messages=given.messages)
    room = machine.available_memory() - OTHER_BYTES
    fits = fitting(shape, max(room, machine.GIB))
    if given.all:
        fits = fitting(fits, given.log_bytes)
    if fits.messages < shape.messages and not given.all:
        print(f"{shape.messages:,} messages do not fit in memory, {fits.messages:,} do", flush=True)
    return made_log(given.work, name, fits)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="a directory for logs, which are kept, and outputs")
    parser.add_argument("--all", action="store_true", help="all shapes, the main cases")
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), help="of --all, only these")
    parser.add_argument("--messages", type=int, help="of the log; 10 million unless told")
    parser.add_argument("--log-bytes", type=int, default=2 << 30, help="of --all, at most so much log a shape")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold-rounds", type=int, default=3)
    parser.add_argument("--docs", type=Path, help="put results into the pages of this directory")
    given = parser.parse_args()
    given.work = given.work.resolve()
    given.work.mkdir(parents=True, exist_ok=True)
    (all_shapes if given.all else standard)(given)
    sweep(given.work)


if __name__ == "__main__":
    main()
