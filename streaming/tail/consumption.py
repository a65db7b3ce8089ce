"""Write each move of a consumer group's offset into the ledger beside the message table while a tail runs."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final

from reput.sinks.files.durable_file import DurableFiles
from reput.sinks.files.store_path import REPUT
from reput.sinks.table.consumption import ConsumptionTable, Move, Offsets, moves_between
from reput.streaming.config.consumer_offsets import ConsumerOffsetsWatch
from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.output.paths import OutputPaths
from reput.streaming.status.run_state import RunState

_log = logging.getLogger("reput")

LOOKED_AT_S: Final = 1.0
MARK: Final = "consumption.json"
_FORMAT: Final = 1
# After a failure the table is left alone for this long.
_PAUSE_S: Final = 30.0


class ConsumptionWatch:
    """Keeps the ledger of one broker; one thread calls `look` repeatedly."""

    def __init__(
        self, config: PipelineConfig, paths: OutputPaths, files: DurableFiles, run: RunState | None = None
    ) -> None:
        """`files` are those of the output, for this watch alone; `run` gets the groups' moves."""
        assert paths.table is not None
        self._source = ConsumerOffsetsWatch(config, config.store)
        options = config.table
        self._table = ConsumptionTable(paths.table, config.broker.name, options.versions_kept, options.retention)
        self._files, self._run = files, run
        self._trigger_s = options.trigger_ms / 1000
        self._state: Offsets | None = None
        self._version: int | None = None
        # No move before this time is missing in the rows and in the waiting moves; None is unknown.
        self._seen_ms: int | None = None
        self._last_ms = -1
        self._waiting: list[Move] = []
        self._committed_at = self._paused_until = float("-inf")
        self._said = ""

    def look(self, *, at_end: bool = False) -> None:
        """Find moves, and commit them when they are due or `at_end`; each failure is logged once."""
        if time.monotonic() < self._paused_until and not at_end:
            return
        try:
            self._look()
            self._commit(at_end=at_end)
            self._said = ""
        except Exception as error:  # noqa: BLE001  queues and rows must not end for it
            # Waiting moves will be found again, because the ledger has the last offset of each queue.
            self._state, self._waiting, self._paused_until = None, [], time.monotonic() + _PAUSE_S
            if str(error) != self._said:
                self._said = str(error)
                _log.warning("the ledger of consumption is not written for now: %s", error)

    def _look(self) -> None:
        if self._state is None:
            self._load()
        assert self._state is not None
        seen = self._source.look(takes_backup=self._version is None)
        if seen is None:
            return
        # Keep rows in the order of their times, even if the clock was set back.
        most = self._last_ms = max(seen.most_ms, self._last_ms + 1)
        before = None if self._seen_ms is None else min(self._seen_ms, most)
        moves = moves_between(self._state, seen.offsets, before, most)
        self._waiting += moves
        self._state, self._seen_ms = seen.offsets, seen.least_ms
        if moves and self._run is not None:
            self._run.on_moves((each.group, each.topic, each.offset_before, each.offset_after) for each in moves)
        if not self._waiting and self._version is not None:
            self._mark()

    def _commit(self, *, at_end: bool) -> None:
        is_due = at_end or time.monotonic() - self._committed_at >= self._trigger_s
        if not (self._waiting and is_due):
            return
        version = self._waiting[-1].seen_after_ms
        self._table.append(self._waiting, version)
        self._version, self._waiting, self._committed_at = version, [], time.monotonic()
        self._mark()
        self._table.tidy()

    def _load(self) -> None:
        """Begin where the ledger ends; the mark says how long nothing moved after that."""
        self._version = self._table.version
        self._state, seen_ms = self._table.state()
        self._source.forget()
        mark = self._read_mark()
        if self._version is not None and mark.get("version") == self._version:
            seen_ms = mark["seen_ms"]
        self._seen_ms, self._last_ms = seen_ms, -1 if self._version is None else self._version

    def _mark(self) -> None:
        """Note until when the rows are complete. A crash may lose the note, and an interval is then longer."""
        mark = {"format": _FORMAT, "table": str(self._table.path), "version": self._version, "seen_ms": self._seen_ms}
        self._files.put_unsynced(REPUT, MARK, data=json.dumps(mark).encode() + b"\n")

    def _read_mark(self) -> dict[str, Any]:
        with suppress(OSError, ValueError, AttributeError):
            mark = json.loads(self._files.root.joinpath(REPUT, MARK).read_bytes())
            is_ours = mark.get("format") == _FORMAT and mark.get("table") == str(self._table.path)
            if is_ours and type(mark.get("seen_ms")) is int:
                return dict(mark)
        return {}


@contextmanager
def consumption_watched(config: PipelineConfig, paths: OutputPaths, run: RunState | None = None) -> Iterator[None]:
    """Keep the ledger in a thread of its own, so that neither queues nor rows wait for it; `run` gets the moves.

    Do nothing without a table, or with ``tableConsumption=false``.
    """
    if paths.table is None or not config.table.consumption:
        yield
        return
    stop = threading.Event()

    def work() -> None:
        with closing(DurableFiles(paths.output)) as files:
            watch = ConsumptionWatch(config, paths, files, run)
            while not stop.is_set():
                watch.look()
                stop.wait(LOOKED_AT_S)
            watch.look(at_end=True)

    thread = threading.Thread(target=work, name="reput-consumption", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
