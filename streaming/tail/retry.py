"""When a query that failed is opened again, and when that is given up: pauses that grow, by a clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reput.source.errors import OutputAwayError, ReputError, TransientError

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
