"""Which broker a thread works for, in a process that keeps several: lines of the log and Spark's jobs name it."""

from __future__ import annotations

from contextvars import ContextVar

_broker: ContextVar[str | None] = ContextVar("broker", default=None)


def broker_of_thread() -> str | None:
    """The name of the broker for which this thread works; None where the process keeps one alone."""
    return _broker.get()


def work_for(broker: str | None) -> None:
    """Have this thread work for `broker` from now on.

    A thread that it starts works for nobody, unless it runs in a copy of this one's context.
    """
    _broker.set(broker)
