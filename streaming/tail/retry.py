"""Whether a query that failed is opened again, and when: pauses that grow, and what is behind a failure."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reput.sinks.table.delta_table import is_table
from reput.sinks.table.location import TableLocation, table_away
from reput.source.errors import DataLossError, OutputAwayError, ReputError, TransientError
from reput.source.log.log_reader import LogReader
from reput.streaming.output.paths import TABLE
from reput.streaming.process.failures import has_jvm_died, is_passing, jvm_death, may_pass_in_a_run
from reput.streaming.spark.session import Sessions

#: Pauses before the first, the second and later attempts, in seconds; the last one is repeated.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True)
class Pause:
    """What comes before an attempt.

    Attributes
    ----------
    seconds
        How long it is.
    attempt
        Which attempt in a row follows it, counted from 1.
    since_s
        How long ago the first failure in this row was.
    is_news
        Whether it says more than the pause before: it is longer, or the failure is another.
    """

    seconds: float
    attempt: int
    since_s: float
    is_news: bool


class Retry:
    """The attempts of one query. They are in a row as long as the query does not go on between two failures."""

    def __init__(
        self,
        retry_for_s: float,
        pauses_s: Sequence[float] = PAUSES_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A row lasts for `retry_for_s` seconds at most; `clock` is monotonic, in seconds."""
        self._retry_for_s = retry_for_s
        self._pauses_s = pauses_s
        self._clock = clock
        self._since: float | None = None
        self._attempts = 0
        self._told: str | None = None

    @property
    def is_in_row(self) -> bool:
        """Whether the query failed, and was not seen to go on since."""
        return self._since is not None

    def after(self, failure: str) -> Pause | None:
        """The pause after a failure, given as its text; None if it is given up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        left = self._since + self._retry_for_s - now
        if left <= 0:
            return None
        self._attempts += 1
        # The last attempt is made at the very end.
        seconds = min(self._pauses_s[min(self._attempts, len(self._pauses_s)) - 1], left)
        is_news = self._attempts <= len(self._pauses_s) or failure != self._told
        self._told = failure
        return Pause(seconds, self._attempts, now - self._since, is_news)

    def went_on(self) -> float:
        """End the row; returns how many seconds it lasted."""
        lasted = 0.0 if self._since is None else self._clock() - self._since
        self._since, self._attempts, self._told = None, 0, None
        return lasted

    def given_up(self, query: str, failure: ReputError) -> ReputError:
        """The error that ends a run in which `query` could not get over `failure`.

        A supervisor starts the same command again, unless a directory of the output is missing: a start would make a
        new one there.
        """
        kind = type(failure) if isinstance(failure, TransientError | OutputAwayError) else TransientError
        cause, lasted = failure.cause, 0.0 if self._since is None else self._clock() - self._since
        if self._attempts:
            times = "once" if self._attempts == 1 else f"{self._attempts} times"
            cause = f"{query} did not go on within {lasted:.0f} s and was opened again {times}: {cause}"
        return kind(cause, advice=failure.advice, file=failure.file, physical_offset=failure.physical_offset)


# ----------------------------------------------------------------------------------------------------------------------
# What is behind a failure of a query, and whether the run waits for that to pass.
#
# Without the output, Spark, the log or the table everything fails, in many ways: the failure is told by what is gone.

# The connections of a killed process close before the process is seen to have ended.
_JVM_ENDS_WITHIN_S = 0.5


class Causes:
    """Judges the failures of one run; for one thread."""

    def __init__(
        self,
        check_output: Callable[[], None],
        log: LogReader,
        sessions: Sessions,
        table: TableLocation | None,
        *,
        available_now: bool,
    ) -> None:
        """`check_output` raises if the output is gone; `log` has listed the log before.

        A run that ends with the log (`available_now`) waits for little: whoever started it waits for its end.
        """
        self._check_output = check_output
        self._log = log
        self._sessions = sessions
        self._table = table
        self._available_now = available_now

    def judge(self, names: Sequence[str], error: BaseException, *, in_batch: bool) -> tuple[BaseException, bool]:
        """What is behind `error` of the query that keeps `names`, and whether to wait for it to pass.

        `in_batch` says that it ended a batch, and not Spark's own work between two of them.
        """
        cause = self._cause(names, error)
        if self._available_now:
            return cause, not (in_batch or self._sessions.has_died()) and is_passing(cause)
        if self._sessions.has_died() and not self._sessions.can_start:
            return cause, False
        return cause, may_pass_in_a_run(cause)

    def _cause(self, names: Sequence[str], error: BaseException) -> BaseException:
        try:
            self._check_output()
        except ReputError as away:
            return away
        self._sessions.look()
        if has_jvm_died(within_s=_JVM_ENDS_WITHIN_S) or self._sessions.has_died():
            return jvm_death()
        try:
            self._log.queue()
        except (ReputError, OSError) as away:
            return away
        if isinstance(error, DataLossError) and error.file is not None and os.path.exists(error.file):  # noqa: PTH110
            return TransientError(f"{error.file} was away for a moment", file=error.file)
        if TABLE in names and isinstance(self._table, Path):
            try:
                if not is_table(self._table):
                    return table_away(self._table)
            except ReputError as away:
                return away
        return error
