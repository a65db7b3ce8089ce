"""Checks before a micro-batch is written: whether the log still has the sinks' last records, and what has expired."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import DataFrame

from reput.sinks.files.sink_progress import RecordFingerprint
from reput.source.errors import CorruptRecordError, DataLossError, TransientError
from reput.source.log.log_reader import LogReader, rewound
from reput.streaming.effects.range_task import RangeEffects

_log = logging.getLogger("reput")
# A record that is being written looks like a bad one for a moment.
_STANDS_S = 5.0


class LogContinuity:
    """The checks for one query; it has its own reader of the log, since queries run side by side."""

    def __init__(self, name: str, log: LogReader, *, fail_on_data_loss: bool) -> None:
        """`name` is the query's; with `fail_on_data_loss`, as the option has it, no record may be passed over."""
        self._name = name
        self._log = LogReader(log.options)
        self._fail_on_data_loss = fail_on_data_loss

    def check(self, records: Iterable[RecordFingerprint | None]) -> None:
        """Raise CommitLogRewoundError unless the log has each of the `records`, the sinks' last ones.

        This is called after a batch was read and before any of it is written: a broker that cuts its log overwrites
        these records before it writes anything behind them.

        Raises
        ------
        TransientError
            The log has no segment at all.
        """
        for known in {record for record in records if record is not None}:
            found = self._log.find_record(known)
            if found != known:
                raise rewound(known, found, self._name)

    def left_after(self, error: Exception, ranges: DataFrame, records: Iterable[RecordFingerprint | None]) -> DataFrame:
        """The ranges of a batch that are left to be read after `error`: with ``failOnDataLoss=false`` some expired.

        Raises
        ------
        CommitLogRewoundError, TransientError
            The log was cut, or is away. `records` are the sinks' last ones.
        Exception
            The error itself: reading fewer ranges would not help.
        """
        self.check(records)
        if isinstance(error, CorruptRecordError):  # a cut may have made it: it was valid when the batch was planned
            rows = ranges.collect()
            self.check_reaches(min(row["start"] for row in rows), max(row["end"] for row in rows))
        if self._fail_on_data_loss or not isinstance(error, DataLossError):
            raise error
        self._log.look_anew()
        rows, queue = ranges.collect(), self._log.queue()
        left = [row for row in rows if queue.find(row["start"]) is not None]
        if len(left) == len(rows):
            raise error
        return ranges.sparkSession.createDataFrame(left, ranges.schema)

    def check_reaches(self, start: int, stop: int) -> None:
        """Check that the log's records still lead from `start` to `stop`, the end of a batch that was planned.

        Damage in a segment that another one follows does not end the log, and is not reported here.

        Raises
        ------
        TransientError
            The log ends before `stop`: it was cut. The next start forgets the batch.
        """
        end = LogReader(self._log.options).end(start)
        if end < stop:
            raise TransientError(
                f"{self._name}: the log was cut: it reached {stop} when a batch was planned, and ends at {end} now",
                advice="nothing behind that end was written: start the same command again",
                physical_offset=end,
            )

    def rows_of(self, results: Sequence[RangeEffects]) -> list[RangeEffects]:
        """The results (at least one, in log order) joined, except where records between two of them have expired.

        Raises
        ------
        SinkError
            Two are not consecutive, and the log has what is between them.
        """
        rows = [[results[0]]]
        for each in results[1:]:
            end = rows[-1][-1].end
            if not self._fail_on_data_loss and end < each.start and self.is_gone(end, each.start):
                rows.append([])
            rows[-1].append(each)
        return [RangeEffects.join(row) for row in rows]

    def next_available(self, end_offset: int) -> int:
        """Where sinks that end at `end_offset` go on: there, unless what follows has expired and may be passed over."""
        return end_offset if self._fail_on_data_loss else self._log.next_available(end_offset)

    def is_gone(self, end_offset: int, start: int) -> bool:
        """Whether all of `[end_offset, start)` has expired from the log and may be passed over."""
        return end_offset < start <= self.next_available(end_offset)

    def report_expired(self, name: str, end_offset: int, start: int) -> None:
        """Warn that what is kept as `name` goes on without `[end_offset, start)`."""
        _log.warning(
            "%s ends at %d and the log goes on at %d: %d bytes between expired unread; going on without them",
            name,
            end_offset,
            start,
            start - end_offset,
        )


class BadEndWatch:
    """Warns, once for each offset, that a query waits at something that is no record, and says what can be done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic, in seconds."""
        self._clock = clock
        self._since: dict[str, tuple[int, str | None, float]] = {}
        self._warned: dict[str, tuple[int, str]] = {}

    def note(self, query: str, offset: int, verdict: str | None) -> str | None:
        """Note that the query saw the log's end at `offset`, with a bad record of this verdict there, None if none.

        Returns what the query waits at once that has stood there for a while; None otherwise.
        """
        now = self._clock()
        known = self._since.get(query)
        if known is None or known[:2] != (offset, verdict):
            self._since[query] = offset, verdict, now
            return None
        if verdict is None or now - known[2] < _STANDS_S:
            return None
        if query not in self._warned or self._warned[query] != (offset, verdict):
            self._warned[query] = offset, verdict
            _log.warning(
                "%s: waiting at offset %d: what stands there is no record (%s); if the log goes on behind it, that "
                "record is damaged, and onDamage=quarantine goes on",
                query,
                offset,
                verdict,
            )
        return f"what stands at offset {offset} is no record ({verdict})"
