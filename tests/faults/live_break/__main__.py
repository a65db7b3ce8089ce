"""`make break`: a real broker under load, `reput tail` after it, and everything around it breaks.

Kills of every process of the tail, signals, a broker whose machine loses power, segments that expire unread, disks that
are full or read-only. After each event the tail is started again as its exit code says (0 and 75: start it again; 1: do
what its line says), until it follows the log. At the end every message must be in queues, index and table once, no
traceback may have been printed, and no process or file may be left over.

    PYTHONPATH=tests python -m faults.live_break --release 4.9.3 --events 100 --seed 1 --work .work/break
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from faults.live_break.events import EVENTS, SIGNALS, choose
from faults.live_break.run import LiveBreak

EVENTS_DEFAULT = 100


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="4.9.3", help="of RocketMQ: 4.9.3 or 5.5.0")
    parser.add_argument("--events", type=int, default=EVENTS_DEFAULT)
    parser.add_argument("--only", action="append", choices=sorted(EVENTS), help="a kind of event; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="decides the events, their order and their moments")
    parser.add_argument("--rate", type=int, default=300, help="messages a second")
    parser.add_argument("--work", type=Path, required=True, help="a directory for the run's files; emptied first")
    given = parser.parse_args(words)
    kinds = (given.only * given.events)[: given.events] if given.only else choose(given.seed, given.events)
    shutil.rmtree(given.work, ignore_errors=True)
    given.work.mkdir(parents=True)
    for number in SIGNALS:
        # However the test is stopped, it leaves nothing running and nothing mounted.
        signal.signal(number, signal.default_int_handler)
    run = LiveBreak(given.work, given.release, given.seed, given.rate, lambda text: print(text, flush=True))
    try:
        with run:
            run.run(kinds)
    finally:
        run.report.write(run.work / "report.json")
        print(run.report.table(), flush=True)
        if run.report.wrong:
            print(f"kept for a look: {run.work}: tail.log is all that reput said, report.json every event,")
            print("  kept-output and kept-table what it made, broker/store the log, archive the log with what expired")
    if run.report.wrong:
        return 1
    for path in run.work.iterdir():
        if path.name != "report.json":
            run_remove(path)
    return 0


def run_remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
