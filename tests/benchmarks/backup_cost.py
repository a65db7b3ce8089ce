"""The cost of `reput backup --follow` for a broker: producers' throughput and delay with and without it, in turn.

    PYTHONPATH=tests python -m benchmarks.backup_cost --work .work/backup-cost --rounds 5 --seconds 60

In each round a broker is started twice, once with a backup beside it, and producers send as fast as it answers. Which
is first changes. On a machine where other things run the figures mean nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from broker.lifeline_run import CONF, TOPICS, Following, Target
from broker.rocketmq import RocketMQ
from broker.server import write_conf

from benchmarks.brokers import used_by

THREADS = 16
WARM_UP_S = 10
#: With a backup beside it, a broker's throughput may be lower, and its delay higher, by this much in percent.
LIMIT = 2.0


@dataclass(frozen=True)
class Run:
    """Messages a second, microseconds within which 99 % were answered, cores that the backup took."""

    rate: float
    p99_us: float
    cores: float


def one(release: str, root: Path, seconds: float, *, has_backup: bool) -> Run:
    """Start a broker, and load it."""
    root.mkdir(parents=True)
    write_conf(root / "broker.conf", CONF)
    rocketmq = RocketMQ(release, is_short_lived=False)
    words = {"topics": TOPICS, "mode": "sync", "threads": THREADS, "batch": 0}
    with (
        rocketmq.name_server(root / "names") as names,
        rocketmq.broker(root / "home", names, CONF) as broker,
    ):
        rocketmq.workload("send", names, **words, seconds=WARM_UP_S)
        following = Following(broker.store, root, release, Target("a folder", str(root / "backup"), {}, {}))
        if has_backup:
            following.start()
            while following.unprotected_s() is None:
                assert not following.has_ended, following.said()
        before = sum(used.cpu_s for used in used_by(following.pid).values()) if has_backup else 0.0
        sent = rocketmq.workload("send", names, **words, seconds=seconds, seed=2)
        used = sum(used.cpu_s for used in used_by(following.pid).values()) - before if has_backup else 0.0
        if has_backup:
            assert following.end() == 0, following.said()
    shutil.rmtree(root)
    return Run(sent["sent_per_second"], sent["answered_within_us"]["p99"], used / seconds)


def told(without: Sequence[Run], with_backup: Sequence[Run]) -> Iterator[str]:
    """The medians of all rounds, and of the rounds' ratios."""
    for name, runs in (("without", without), ("with", with_backup)):
        rate, p99, cores = (median(values) for values in zip(*((r.rate, r.p99_us, r.cores) for r in runs), strict=True))
        yield f"{name}: {rate:,.0f} messages a second, 99 % answered within {p99 / 1000:.2f} ms, {cores:.2f} cores"
    pairs = list(zip(without, with_backup, strict=True))
    slower = [100 * (1 - ours.rate / other.rate) for other, ours in pairs]
    later = [100 * (ours.p99_us / other.p99_us - 1) for other, ours in pairs]
    yield f"fewer messages: {median(slower):.1f} % ({', '.join(f'{each:.1f}' for each in slower)}), limit {LIMIT:.0f} %"
    yield f"later answers (99 %): {median(later):.1f} % ({', '.join(f'{each:.1f}' for each in later)})"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if the backup costs no more messages than the limit allows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    parser.add_argument("--release", default="5.5.0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    given = parser.parse_args(words)
    work = given.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    runs: dict[bool, list[Run]] = {False: [], True: []}
    for number in range(given.rounds):
        for has_backup in (number % 2 == 1, number % 2 == 0):
            found = one(given.release, work / f"{number}-{has_backup}", given.seconds, has_backup=has_backup)
            runs[has_backup].append(found)
            print(f"round {number + 1}, {'with' if has_backup else 'without'}: {found}", flush=True)
    print("\n".join(told(runs[False], runs[True])))
    return 0 if median(1 - a.rate / b.rate for a, b in zip(runs[True], runs[False], strict=True)) <= LIMIT / 100 else 1


if __name__ == "__main__":
    sys.exit(main())
