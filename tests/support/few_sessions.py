"""Which process of a run takes which file: a Spark session more costs it about a minute of processor time.

Each process starts its session for the first test that takes it, compiles what that runs, and keeps it to the end. So
the last process does without as long as there are files that need none. It begins with those that start brokers and
other processes: they wait most of their time, while the others keep two cores busy.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SESSION = re.compile(r'\bspark: SparkSession\b|\busefixtures\("(?:spark|compiled)"\)')
_PROCESSES = re.compile(r"\bmark\.(?:broker|spark)\b")


@cache
def takes_session(file: Path) -> bool:
    """Whether tests of this file take the session of their process, by its text: they name the fixture or its type."""
    return _SESSION.search(file.read_text()) is not None


@cache
def starts_processes(file: Path) -> bool:
    """Whether tests of this file take no session and start brokers, or Spark in other processes."""
    return not takes_session(file) and ("faults" in file.parts or _PROCESSES.search(file.read_text()) is not None)


class FewSessions(LoadFileScheduling):
    """Gives files in their order to free processes; the last process takes those of other kinds as long as it can."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[-1]:
            files = {name: self.config.rootpath / name for name in self.workqueue}
            waiting = (name for name, file in files.items() if starts_processes(file))
            without = (name for name, file in files.items() if not takes_session(file))
            first = next(waiting, None) or next(without, None)
            if first is not None:
                self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
