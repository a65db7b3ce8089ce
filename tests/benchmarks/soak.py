"""`make soak`: a real broker under load for an hour and a half, and `reput tail` beside it as a service.

    PYTHONPATH=tests python -m benchmarks.soak --work .work/soak --docs docs

Two kills of the tail, a full disk, a restart of the broker, segments that expire, and stretches without a message, at
times that ``soaking/plan.py`` tells. Every ten seconds memory, descriptors, threads, processor time and files are
noted; a real Prometheus with the project's rules notes each alert. At the end every file of queues and index that
there ever was is compared with the broker's own, and every row of the table with its message.

``--only lag`` compares the lag that reput shows with the lag that is seen from outside; ``--only metrics-cost``
measures what metrics and page take of the throughput; ``--judge`` looks again at what a run has left in ``--work``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from faults.live_break.events import SIGNALS

from benchmarks.soaking import lag, metrics_cost
from benchmarks.soaking import run as soaking
from benchmarks.soaking.page import write
from benchmarks.soaking.samples import load
from benchmarks.soaking.verdict import failures

RATE = 400
RESTART_SECONDS = 30.0  # RestartSec of conf/deploy/systemd/reput@.service


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="4.9.3", help="of RocketMQ: 4.9.3 or 5.5.0")
    parser.add_argument("--rate", type=int, default=RATE, help="messages a second")
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--restart-s", type=float, default=RESTART_SECONDS, help="the supervisor's pause")
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    parser.add_argument("--docs", type=Path, help="put results into the pages of this directory")
    parser.add_argument("--only", choices=("soak", "lag", "metrics-cost"), default="soak")
    parser.add_argument("--rates", type=int, nargs="*", default=list(lag.RATES), help="of --only lag")
    parser.add_argument("--seconds", type=float, default=lag.SECONDS, help="of --only lag, for each rate")
    parser.add_argument("--rounds", type=int, default=metrics_cost.ROUNDS, help="of --only metrics-cost")
    parser.add_argument("--messages", type=int, default=metrics_cost.MESSAGES, help="of --only metrics-cost")
    parser.add_argument("--judge", action="store_true", help="look again at what a run has left in --work")
    given = parser.parse_args(words)
    given.work = given.work.resolve()
    if not given.judge:
        _prepare(given.work)
    if given.only == "lag":
        return _tell(lag.run(given.release, given.rates, given.seconds, given.work, given.docs, _say))
    if given.only == "metrics-cost":
        return _tell(metrics_cost.run(given.rounds, given.messages, given.work, given.docs, _say))
    if not given.judge:
        with soaking.Soak(given.work, given.release, given.rate, given.minutes, given.restart_s, _say) as soak:
            soak.run()
    record = soaking.Record.load(given.work / soaking.RECORD)
    samples = load(given.work / soaking.SAMPLES)
    wrong = failures(record, samples)
    write(record, samples, wrong, given.work, given.docs)
    return _tell(wrong)


def _prepare(work: Path) -> None:
    """Make the directory empty; however the command is stopped, it leaves nothing running and nothing mounted."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)


def _say(text: str) -> None:
    print(text, flush=True)


def _tell(wrong: Sequence[str]) -> int:
    """Print what failed; the exit code."""
    for line in wrong:
        _say(f"FAILED: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
