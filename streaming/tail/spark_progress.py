"""What Spark says of a query's last micro-batch: how long planning it and noting its end took, and what the source saw.

It is asked before the next micro-batch. A listener hears of micro-batches later, and of some not at all where there are
several a second.
"""

from __future__ import annotations

import threading
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from reput.streaming.output.paths import LOGIC
from reput.streaming.status.run_state import RunState

_PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit")
_COMMIT = "commitOffsets"


class SparkProgress:
    """Notes Spark's part of each micro-batch of one query in a `RunState`, once each."""

    def __init__(self, name: str, state: RunState) -> None:
        self._name = name
        self._state = state
        self._query: StreamingQuery | None = None
        self._noted = -1
        self._lock = threading.Lock()

    def watch(self, query: StreamingQuery) -> None:
        """Begin to ask `query`, which has just been started."""
        self._query = query

    def note(self) -> Any:
        """Note what Spark says of the last batch that it has ended, and return its progress; None if there is none.

        Any thread may call this.
        """
        with self._lock:
            progress: Any = None if self._query is None else self._query.lastProgress
            if progress is None:
                return None
            took = progress["durationMs"]
            if progress["batchId"] <= self._noted or "addBatch" not in took:  # nothing was read
                return progress
            self._noted = progress["batchId"]
        planned = sum(took.get(name, 0) for name in _PLANNING) / 1000
        committed = took.get(_COMMIT, 0) / 1000
        # The table's commit is the one to its own log.
        phases = {"plan": planned, "commit": committed} if self._name == LOGIC else {"plan": planned + committed}
        self._state.on_phases(self._name, phases)
        return progress
