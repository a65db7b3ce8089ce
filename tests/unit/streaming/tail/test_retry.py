"""How long a query that fails again and again is waited for, by a clock that the test moves; without Spark."""

from __future__ import annotations

import pytest
from support.live_log import Clock

from reput.source.errors import (
    TRY_AGAIN,
    OutputAwayError,
    OutputFailingError,
    OutputFullError,
    ReputError,
    StoreError,
    TransientError,
)
from reput.streaming.tail.query import Pause, Retry


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pauses(retry: Retry, clock: Clock, *, opening_s: float = 0.0) -> list[float]:
    """The pauses of a row that ends by itself, if each attempt fails after `opening_s`."""
    found = []
    while (pause := retry.after("full")) is not None:
        found.append(pause.seconds)
        clock.now += pause.seconds + opening_s
    return found


def test_pauses_grow_and_the_last_attempt_is_made_at_the_end(clock: Clock) -> None:
    """They add up to what was asked for, to the second."""
    assert pauses(Retry(200, clock=clock), clock) == [1, 2, 5, 10, 30, 60, 60, 32]


def test_what_attempts_take_counts(clock: Clock) -> None:
    """An opening of half a minute does not make the row longer."""
    began = clock.now
    assert pauses(Retry(100, clock=clock), clock, opening_s=30) == [1, 2, 5, 2]
    assert clock.now - began == 130


def test_no_time_means_no_attempt(clock: Clock) -> None:
    assert Retry(0, clock=clock).after("full") is None


def test_a_query_that_goes_on_begins_a_new_row(clock: Clock) -> None:
    """With the first pause, and all of its time."""
    retry = Retry(10, clock=clock)
    for _ in range(3):
        assert retry.after("full") == Pause(1, 1, 0, is_news=True)
        clock.now += 4
        assert retry.after("full") == Pause(2, 2, 4, is_news=True)
        clock.now += 5
        assert retry.is_in_row
        assert retry.went_on() == 9
        assert not retry.is_in_row


def test_each_longer_pause_is_told_and_then_only_another_failure(clock: Clock) -> None:
    """A log that cannot be reached for a night is not a line a minute."""
    retry = Retry(10_000, clock=clock)
    failures = ["full"] * 9 + ["away"] * 3
    told = []
    for failure in failures:
        pause = retry.after(failure)
        assert pause is not None
        told.append(pause.is_news)
        clock.now += pause.seconds
    assert told == [True] * 6 + [False] * 3 + [True, False, False]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (OutputFullError("full", file="/out"), TRY_AGAIN),
        (OutputFailingError("Input/output error", advice="look", file="/out"), TRY_AGAIN),
        (StoreError("no commitlog", file="/log", physical_offset=5), TRY_AGAIN),
        (TransientError("killed"), TRY_AGAIN),
        (ReputError("Spark failed"), TRY_AGAIN),
        # A start would make a new one.
        (OutputAwayError("no table", file="/table"), 1),
    ],
)
def test_what_a_run_that_gives_up_says(failure: ReputError, code: int, clock: Clock) -> None:
    """How long and how often it tried, what is wrong, and whether a supervisor is to start it again."""
    retry = Retry(8, clock=clock)
    assert len(pauses(retry, clock)) == 3
    end = retry.given_up("table", failure)
    assert end.exit_code == code
    assert end.cause == f"table did not continue within 8 s and was opened again 3 times: {failure.cause}"
    assert (end.advice, end.file, end.physical_offset) == (failure.advice, failure.file, failure.physical_offset)
    at_once = Retry(0, clock=clock)
    assert at_once.after("full") is None
    assert at_once.given_up("table", failure).cause == failure.cause
    assert at_once.given_up("table", failure).exit_code == code
