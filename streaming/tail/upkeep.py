"""Upkeep while `reput tail` runs: a growing table is tidied, and expired files of queues and index are removed.

The table is tidied after micro-batches, and when a run ends with the log. Files of queues and index expire as a
broker's do (``DefaultMessageStore.CleanConsumeQueueService``).
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from reput.sinks.files.store_path import INDEX, RelativePath
from reput.sinks.index.index_sink import IndexSink
from reput.sinks.queue.queue_sink import QueueSink
from reput.sinks.retention import expired_index_files, expired_queue_files, remove_in_order
from reput.sinks.sink import Sink
from reput.sinks.table.upkeep import TableUpkeep, UpkeepDone
from reput.source import system
from reput.source.errors import ReputError
from reput.source.log.log_reader import LogReader, find_record
from reput.source.log.mapped_file_queue import MappedFileQueue

_log = logging.getLogger("reput")
#: The time for a run that ends with the log to remove expired files and merge small ones; the next run does the rest.
SECONDS_AT_END = 30.0


class BatchUpkeep:
    """Decides when a growing table is tidied, and for how long.

    A merge of many small files takes some tens of milliseconds, one of files that are merged ones themselves takes
    seconds. So that no micro-batch waits for that, a thread writes the merged file beside the next ones.
    """

    def __init__(
        self, table: TableUpkeep, seconds: float, full_batch: int, report: Callable[[UpkeepDone], None]
    ) -> None:
        """Tidy `table`; `report` gets the results.

        A step begins nothing more after `seconds`. A batch of `full_batch` bytes is full: more of the log follows it.
        """
        self._table = table
        self._seconds = seconds
        self._full_batch = full_batch
        self._report = report
        self._writer = ThreadPoolExecutor(1, "reput-merge")

    def after_batch(self, read_bytes: int) -> None:
        """Tidy for a while after a batch of `read_bytes`; a table that is far behind catches up first."""
        if read_bytes < self._full_batch // 2:
            self._step()

    def look(self) -> None:
        """Commit a merge whose files have been written since the last batch."""
        if self._table.has_written:
            self._step()

    def _step(self) -> None:
        done = self._table.step(self._seconds, beside=self._writer)
        if done.merges:
            system.give_back(after_s=system.BEHIND_MUCH_S)
        self._report(done)

    def at_end(self) -> None:
        """Merge small files after the last batch; there may be many when each batch had little of the log."""
        self._report(self._table.step(SECONDS_AT_END, sorts=False))

    def close(self) -> None:
        """Wait for the thread, and remove the files of a merge that was not committed."""
        self._table.give_up()
        self._writer.shutdown()


# The time for which one step delays a micro-batch; the next step continues.
_SECONDS_A_STEP = 0.5


@dataclass(frozen=True)
class CleanReport:
    """The files that were removed after the log's begin had moved.

    Attributes
    ----------
    min_physic_offset
        The begin of the log: the removed files had only records before it.
    removed
        How many files were removed, by the directory of their kind, such as ``consumequeue``.
    failed
        How many queues, with the index as one of them, have files that could not be removed; they are tried again.
    """

    min_physic_offset: int
    removed: Mapping[str, int]
    failed: int


@dataclass
class _Run:
    """The actions left for one begin of the log, one for each queue and one for the index."""

    min_physic_offset: int
    actions: deque[Callable[[Counter[str]], None]]
    removed: Counter[str] = field(default_factory=Counter)
    errors: list[Exception] = field(default_factory=list)


class CleanConsumeQueueService:
    """Removes the files of recovered sinks that have expired from the log, between two micro-batches.

    As in the broker, nothing is done until the log begins further on than the last time, and a queue's last file and
    the last index file stay. A file that cannot be removed is a warning and is tried again: it never ends a run.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        log: LogReader,
        interval_ms: int,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[CleanReport], None] = lambda _: None,
    ) -> None:
        """`interval_ms` is ``cleanResourceInterval``: the time between two looks at the log, 0 for none at all.

        `clock` is monotonic, in seconds. `report` gets the removed files when everything is done for one begin of the
        log.
        """
        self._report = report
        #: The sinks from which the next run removes files.
        self.sinks = sinks
        self._log = LogReader(log.options)
        self._interval = interval_ms / 1000
        self._clock = clock
        self._due = clock()
        # The begin of the log for which everything is done; as in the broker, a log that begins at 0 has lost nothing.
        self._last_physical_min_offset = 0
        self._run: _Run | None = None
        self._warned_of: str | None = None

    def step(self, seconds: float = _SECONDS_A_STEP) -> CleanReport | None:
        """Look at the log if it is time to, and remove files for about `seconds`; sinks must be at rest.

        Return the report when everything is done for one begin of the log, else None. Errors of the log are ignored
        here, because the query that reads it reports them.
        """
        if self._run is None:
            self._run = self._begin()
        run = self._run
        if run is None:
            return None
        deadline = self._clock() + seconds
        while run.actions:
            try:
                run.actions.popleft()(run.removed)
            except (ReputError, OSError) as error:
                run.errors.append(error)
            if self._clock() >= deadline:
                break
        if run.actions:
            return None
        self._run = None
        return self._end(run)

    def _begin(self) -> _Run | None:
        now = self._clock()
        if not self._interval or now < self._due:
            return None
        self._due = now + self._interval
        try:
            queue = self._log.queue()
            begin = queue.min_offset
            if begin <= self._last_physical_min_offset or not self._is_log_of_sinks(queue):
                return None
        except (ReputError, OSError):
            return None
        actions: deque[Callable[[Counter[str]], None]] = deque()
        for sink in self.sinks:
            if isinstance(sink, QueueSink):
                queues = sink.queues_with_older_files()
                actions += [partial(_clean_queue, sink, *queue, begin) for queue in queues]
            elif isinstance(sink, IndexSink):
                actions.append(partial(_clean_index, sink, begin))
        return _Run(begin, actions)

    def _is_log_of_sinks(self, queue: MappedFileQueue) -> bool:
        """Whether the log still has the last record of every sink: the begin of another log means nothing."""
        return all(
            record is not None and queue.find(record.offset) is not None and find_record(queue, record) == record
            for record in {sink.last_record for sink in self.sinks}
        )

    def _end(self, run: _Run) -> CleanReport:
        if run.removed:
            index_files = run.removed[INDEX]
            _log.info(
                "expired: %d queue files, %d index files, log begins at %d",
                run.removed.total() - index_files,
                index_files,
                run.min_physic_offset,
            )
        if not run.errors:
            self._last_physical_min_offset, self._warned_of = run.min_physic_offset, None
        elif (first := str(run.errors[0])) != self._warned_of:
            self._warned_of = first
            more = f" (and {len(run.errors) - 1} more)" if len(run.errors) > 1 else ""
            _log.warning("expired files stay for now: %s%s; trying again every %g s", first, more, self._interval)
        report = CleanReport(run.min_physic_offset, dict(run.removed), len(run.errors))
        self._report(report)
        return report


def _clean_queue(sink: QueueSink, topic: bytes, queue_id: int, begin: int, removed: Counter[str]) -> None:
    def forget(path: RelativePath) -> None:
        sink.forget_file(path)
        removed[path[0]] += 1

    expired = expired_queue_files(sink.reader(topic, queue_id), begin, sink.end_offset)
    remove_in_order(sink.files, expired, forget)


def _clean_index(sink: IndexSink, begin: int, removed: Counter[str]) -> None:
    expired = expired_index_files(sink.files.root, begin)
    remove_in_order(sink.files, expired, lambda _: removed.update([INDEX]))
