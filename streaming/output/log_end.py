"""Where the log ends now, as the driver sees it; the queries' lag is measured from there."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from reput.sinks.anomalies import NO_ANOMALIES, AnomalyCounts, anomaly_at_end
from reput.source.errors import ReputError
from reput.source.log.log_reader import LogReader
from reput.source.log.mapped_file_queue import HEAD_SIZE, first_store_timestamp, is_blank


@dataclass(frozen=True)
class LogEnd:
    """The end of the whole records that may be read, and the last of them.

    Attributes
    ----------
    offset
        The end, exclusive. A last record that is still held back (``tailGuardMs``) lies behind it.
    at_end
        The anomaly at the end, if what stands there is not what every growing log has.
    """

    offset: int
    at_end: AnomalyCounts = NO_ANOMALIES


class LogEndWatch:
    """Looks for the end of the log on request, from any thread; a log that did not grow is not read again."""

    def __init__(self, log: LogReader) -> None:
        """`log` must not be used by anything else; it warns of nothing that it meets."""
        self._log = log
        log.warns = False
        self._lock = threading.Lock()

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
        bad = self._log.bad_end
        at_end = NO_ANOMALIES if bad is None else anomaly_at_end(bad)
        return LogEnd(end, at_end)

    def store_timestamp_at(self, offset: int) -> int | None:
        """The store time in milliseconds of the first record at or behind `offset`, where a record begins.

        None if what stands there is no record, or cannot be read.
        """
        with self._lock:
            try:
                return self._store_timestamp_at(offset)
            except (ReputError, OSError):
                return None

    def _store_timestamp_at(self, offset: int) -> int | None:
        queue = self._log.queue()
        file = queue.find(offset)
        while file is not None:
            _, _, head = self._log.look_at(offset, HEAD_SIZE)
            if not is_blank(head, file.frame):
                return first_store_timestamp(head, file.frame)
            offset = file.end
            file = queue.find(offset)
        return None
