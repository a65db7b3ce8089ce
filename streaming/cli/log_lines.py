"""The lines of the log on standard error: text, JSON, or those of the system's journal; few of each kind."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated, Final

import typer

from reput.source.printable import printable, printable_json
from reput.source.times import utc_text
from reput.streaming.process.process_log import Allowance, broker_of_thread, query_of_thread
from reput.streaming.process.terminal import STANDARD_ERROR, clear

_NAME: Final = "reput"
_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"
_TEXT_OF_JOURNAL: Final = "%(levelname)s %(message)s"
# A place in the code may print 20 warnings at once, then one a minute.
_BURST, _RENEWED_AFTER_S = 20, 60.0
# <syslog.h>, by the least level of Python that has the priority.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.NOTSET, 7))


class LogFormat(Enum):
    """The form of a line of the log."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", help="The form of the log on standard error: text, or one line of JSON for each message."
    ),
]


def write_error(line: str) -> None:
    """Print a line to standard error as it is; the line is lost if nothing reads standard error any more."""
    clear()
    with suppress(OSError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def is_journal() -> bool:
    """Return whether standard error is connected to the system's journal.

    ``JOURNAL_STREAM`` then has its device and inode (systemd.exec(5)). The variable alone proves nothing, since a
    process inherits it even if its standard error is redirected.
    """
    with suppress(OSError):
        status = os.fstat(STANDARD_ERROR)
        return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    return False


class LogLines(logging.Formatter):
    """Makes one line of each message, whatever names are in it.

    In the journal a line begins with its priority, ``<N>`` (sd-daemon(3)), and a line of text has no time, since the
    journal adds it. A line of JSON has `broker` once it is known, and `query` if it is about a query. In a process of
    several brokers each line names the broker for which its thread works.
    """

    def __init__(self, log_format: LogFormat = LogFormat.TEXT) -> None:
        self._is_journal = is_journal()
        super().__init__(_TEXT_OF_JOURNAL if self._is_journal else _TEXT)
        self.is_json = log_format is LogFormat.JSON
        self.broker: str | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the message as one printable line."""
        return self._begun(self._json(record) if self.is_json else self._text(record), record.levelno)

    def failure(self, words: str) -> str:
        """Return the line for the error that ended the command."""
        return self._last(words, logging.ERROR)

    @property
    def stopped(self) -> str:
        """The line for a command that was asked to stop before its result."""
        return self._last("stopped", logging.INFO)

    def _last(self, words: str, level: int) -> str:
        if self.is_json:
            return self.format(logging.makeLogRecord({"name": _NAME, "levelno": level, "msg": words}))
        return self._begun(f"reput: {words}", level)

    def _begun(self, line: str, level: int) -> str:
        if not self._is_journal:
            return line
        return f"<{next(priority for least, priority in _PRIORITIES if level >= least)}>{line}"

    def _text(self, record: logging.LogRecord) -> str:
        more, broker = getattr(record, "untold", 0), broker_of_thread()
        if broker is not None:
            record = copy(record)
            record.msg, record.args = f"{broker}: {record.getMessage()}", ()
        return printable(f"{super().format(record)}{f' (and {more} more like it before)' if more else ''}")

    def _json(self, record: logging.LogRecord) -> str:
        written = utc_text(datetime.fromtimestamp(record.created, timezone.utc))
        found = {
            "broker": broker_of_thread() or self.broker,
            "query": _query_of(record),
            "untold": getattr(record, "untold", None),
        }
        return printable_json(
            {
                "time": written,
                "level": logging.getLevelName(record.levelno),
                "logger": record.name,
                "message": record.getMessage(),
                **{name: value for name, value in found.items() if value is not None},
            }
        )


def _query_of(record: logging.LogRecord) -> str | None:
    """Return the query that a record names, or the query for which this thread works."""
    return getattr(record, "query", None) or query_of_thread()


@dataclass
class _Kind:
    """Warnings from one place in the code."""

    allowance: Allowance
    untold: int = 0


class FewOfAKind(logging.Filter):
    """Lets few warnings of a kind through; the next one has the number of those it held back (``untold``).

    A kind is a place in the code, the query that a record is about, and its broker. A warning that repeats with each
    micro-batch or each attempt for days would fill the disk.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is monotonic, in seconds."""
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, int, str | None, str | None], _Kind] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether `record` is printed."""
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            place = record.pathname, record.lineno, _query_of(record), broker_of_thread()
            if place not in self._kinds:
                self._kinds[place] = _Kind(Allowance(_BURST, _RENEWED_AFTER_S, self._clock))
            kind = self._kinds[place]
            if not kind.allowance.take():
                kind.untold += 1
                return False
            if kind.untold:
                record.untold, kind.untold = kind.untold, 0
        return True


class _StandardError(logging.Handler):
    """Writes to the present standard error: a live table of rich replaces it, and prints above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of `record`."""
        try:
            write_error(self.format(record))
        except Exception:  # noqa: BLE001  as logging's own handlers do
            self.handleError(record)


def log_to_standard_error(lines: LogLines, *, is_bounded: bool) -> None:
    """Log reput's messages as `lines`; if the log `is_bounded`, print few warnings of a kind."""
    handler = _StandardError()
    handler.setFormatter(lines)
    if is_bounded:
        handler.addFilter(FewOfAKind())
    logger = logging.getLogger(_NAME)
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if lines.is_json:  # warnings of other packages are lines of JSON, too
        logging.captureWarnings(True)
        logging.getLogger("py.warnings").handlers = [handler]
