"""What Spark says of each micro-batch when it is done: how long planning took, and how far the source has read."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from reput.streaming.output.spark_checkpoint import LOGIC
from reput.streaming.status.run_state import RunState

_PLANNING = ("latestOffset", "getBatch", "queryPlanning", "walCommit")
_COMMIT = "commitOffsets"


class SparkProgress(StreamingQueryListener):
    """Notes Spark's part of each micro-batch of one query in a `RunState`; Spark calls it from a thread of its own."""

    def __init__(self, spark: SparkSession, query: str, state: RunState) -> None:
        """Begin to listen, before the query of that name is started."""
        self._spark = spark
        self._query = query
        self._state = state
        spark.streams.addListener(self)

    def close(self) -> None:
        """Listen no more."""
        with suppress(Exception):  # Spark may have died
            self._spark.streams.removeListener(self)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        """Note the batch's phases and how far it read."""
        progress: Any = event.progress
        took = progress.durationMs
        if progress.name != self._query or "addBatch" not in took:  # nothing was read
            return
        planned = sum(took.get(name, 0) for name in _PLANNING) / 1000
        committed = took.get(_COMMIT, 0) / 1000
        # The table's commit is the one to its own log.
        phases = {"plan": planned, "commit": committed} if progress.name == LOGIC else {"plan": planned + committed}
        self._state.on_phases(progress.name, phases)
        for source in progress.sources:
            if source.endOffset:
                self._state.on_read(progress.name, int(json.loads(source.endOffset)["physicOffset"]))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing: the run knows."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing: an idle query changes nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing: the run knows."""
