"""What is behind a failure of a query, and whether the run waits for that to pass.

Without the output, Spark, the log or the table everything fails, in many ways: the failure is told by what is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from reput.sinks.table.creation import is_table
from reput.sinks.table.location import TableLocation, table_away
from reput.source.errors import DataLossError, ReputError, TransientError
from reput.source.log.log_reader import LogReader
from reput.streaming.output.spark_checkpoint import TABLE
from reput.streaming.process.failures import is_passing, jvm_death, may_pass_in_a_run
from reput.streaming.process.jvm import has_jvm_died
from reput.streaming.spark.sessions import Sessions

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
