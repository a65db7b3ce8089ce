"""Where the log ends now, as the driver sees it: what the queries are measured against."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, anomaly_at_end
from reput.source.errors import ReputError
from reput.source.log.log_reader import LogReader
from reput.source.segments.segment_head import HEAD_SIZE, first_store_timestamp


@dataclass(frozen=True)
class LogEnd:
    """The end of the whole records that may be read, and the last of them.

    Attributes
    ----------
    offset
        Exclusive. A last record that is still held back (``tailGuardMs``) lies behind it.
    store_timestamp
        Of the last record before `offset`, in milliseconds; None where it is not known.
    at_end
        What stands at the end, where that is nothing a growing log has there.
    """

    offset: int
    store_timestamp: int | None = None
    at_end: AnomalyCounts = NO_ANOMALIES


class LogEndWatch:
    """Looks at the end of the log whenever it is asked, from any thread; a log that did not grow costs no reading."""

    def __init__(self, log: LogReader) -> None:
        """`log` is used by nobody else."""
        self._log = log
        self._lock = threading.Lock()
        self._last: LogEnd | None = None

    def look_ahead(self, start: int) -> None:
        """Look once in a thread of its own, while nobody waits: of a segment of 1 GiB the first look takes a while."""
        threading.Thread(target=self.look, args=(start,), name="reput-log-end", daemon=True).start()

    def look(self, start: int) -> LogEnd | None:
        """The end now, looking on from `start`, where a record begins; None where the log cannot be read just now.

        The queries read the same log, and tell what is wrong with it.
        """
        with self._lock:
            try:
                return self._look(start)
            except (ReputError, OSError):
                return None

    def _look(self, start: int) -> LogEnd:
        end = self._log.end(start)
        known = self._last
        bad = self._log.bad_end
        at_end = NO_ANOMALIES if bad is None else anomaly_at_end(bad)
        if known is not None and known.offset == end:
            timestamp = known.store_timestamp
        else:
            timestamp = self._store_timestamp_before(end) or (known.store_timestamp if known else None)
        self._last = LogEnd(end, timestamp, at_end)
        return self._last

    def _store_timestamp_before(self, end: int) -> int | None:
        """None where no record is before it, or the blank at the end of a segment."""
        file = self._log.queue().find(end - 1) if end else None
        if file is None:
            return None
        offset = self._log.align_down(file.file_from_offset, end - 1)
        _, _, head = self._log.look_at(offset, HEAD_SIZE)
        return first_store_timestamp(head, file.frame)
