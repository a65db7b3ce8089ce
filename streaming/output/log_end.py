"""Where the log ends now, as the driver sees it; the queries' lag is measured from there."""

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
        The end, exclusive. A last record that is still held back (``tailGuardMs``) lies behind it.
    store_timestamp
        That of the last record before `offset`, in milliseconds; None if it is not known.
    at_end
        The anomaly at the end, if what stands there is not what every growing log has.
    """

    offset: int
    store_timestamp: int | None = None
    at_end: AnomalyCounts = NO_ANOMALIES


class LogEndWatch:
    """Looks for the end of the log on request, from any thread; a log that did not grow is not read again."""

    def __init__(self, log: LogReader) -> None:
        """`log` must not be used by anything else."""
        self._log = log
        self._lock = threading.Lock()
        self._last: LogEnd | None = None

    def look_ahead(self, start: int) -> None:
        """Look once in a separate thread, before anyone waits: in a segment of 1 GiB the first look takes a while."""
        threading.Thread(target=self.look, args=(start,), name="reput-log-end", daemon=True).start()

    def look(self, start: int) -> LogEnd | None:
        """The end now, searched from `start`, where a record begins; None if the log cannot be read just now.

        The queries read the same log and report what is wrong with it.
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
        """The last record's store timestamp before `end`; None if there is no record, or a segment's blank."""
        file = self._log.queue().find(end - 1) if end else None
        if file is None:
            return None
        offset = self._log.align_down(file.file_from_offset, end - 1)
        _, _, head = self._log.look_at(offset, HEAD_SIZE)
        return first_store_timestamp(head, file.frame)
