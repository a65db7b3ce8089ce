"""For which broker and which query a thread works: lines of the log and Spark's jobs name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_broker: ContextVar[str | None] = ContextVar("broker", default=None)
_query: ContextVar[str | None] = ContextVar("query", default=None)


def broker_of_thread() -> str | None:
    """The name of the broker for which this thread works; None where the process keeps one alone."""
    return _broker.get()


def query_of_thread() -> str | None:
    """The name of the query for which this thread works just now; None for work that belongs to none."""
    return _query.get()


def work_for(broker: str | None) -> None:
    """Have this thread work for `broker` from now on.

    A thread that it starts works for nobody, unless it runs in a copy of this one's context.
    """
    _broker.set(broker)


@contextmanager
def at_work_for(broker: str | None, query: str) -> Iterator[None]:
    """Have this thread work for a query of `broker` within the block, and afterwards for whom it did before."""
    before = _broker.set(broker), _query.set(query)
    try:
        yield
    finally:
        _broker.reset(before[0])
        _query.reset(before[1])
