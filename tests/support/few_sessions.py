"""Which process of a run takes which file: a Spark session more costs it about a minute of processor time.

Each process starts its session for the first test that takes it, compiles what that runs, and keeps it to the end. So
the last process does without as long as there are files that need none.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_SESSION = re.compile(r'\bspark: SparkSession\b|\busefixtures\("(?:spark|compiled)"\)')


@cache
def takes_session(file: Path) -> bool:
    """Whether tests of this file take the session of their process, by its text: they name the fixture or its type."""
    return _SESSION.search(file.read_text()) is not None


class FewSessions(LoadFileScheduling):
    """Files in their order, to whoever is free; the last process passes over those with a session, while it can."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node is self.nodes[-1]:
            without = (name for name in self.workqueue if not takes_session(self.config.rootpath / name))
            first = next(without, None)
            if first is not None:
                self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)
