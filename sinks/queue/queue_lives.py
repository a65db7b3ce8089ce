"""The lives of a queue whose topic was deleted and made again: what a store may have of them.

A broker removes a queue's files with the topic, and queue offsets begin at 0 once more: it keeps the later life. One
that has lost its queues since, and makes them again from the log, appends the first record of the later life to the
earlier one and passes over those that follow. The log alone does not say which a store has; so both are followed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from reput.sinks.anomalies import AnomalyCounts
from reput.sinks.dispatch.entries import QueueEntries
from reput.sinks.dispatch.runs import BEFORE
from reput.sinks.queue.queue_sink import Queue


class Follower(Protocol):
    """Follows one life of the queue, or all of them as one."""

    @property
    def queue(self) -> Queue:
        """The queue as it is then."""

    def take(self, incoming: QueueEntries) -> AnomalyCounts:
        """Go on with the next entries; returns what was met."""


Followed = TypeVar("Followed", bound=Follower)


@dataclass(frozen=True)
class Life(Generic[Followed]):
    """A life that begins with the record at the offset `began_at`, which a replay appends as entry `queue_offset`."""

    follower: Followed
    began_at: int
    queue_offset: int


class QueueLives(Generic[Followed]):
    """Gives a queue's entries, in log order, to a follower of all lives and to those of the later ones.

    Attributes
    ----------
    replay
        Follows all lives as one, as a broker's replay of the log does.
    proven
        The last life that the log proves (``last_life``); None without one.
    latest
        The life that a later record of queue offset 0 may begin; None without one.
    passed_over
        How many records of the proven life a replay passes over.
    """

    def __init__(self, replay: Followed, follow: Callable[[], Followed]) -> None:
        """`follow` makes a follower of a queue without entries."""
        self.replay = replay
        self.proven: Life[Followed] | None = None
        self.latest: Life[Followed] | None = None
        self.passed_over = 0
        self._follow = follow

    @property
    def later(self) -> list[Life[Followed]]:
        """The later lives, the last one first."""
        return [life for life in (self.latest, self.proven) if life is not None]

    @property
    def goes_on_joined(self) -> bool:
        """Whether a record shows that a broker has joined the lives: it goes on where the joined queue ends."""
        return self.proven is not None and self.proven.follower.queue.is_joined

    def take(self, incoming: QueueEntries, unit_size: int) -> None:
        """Go on with the next entries, whose units have `unit_size` bytes."""
        queue = self.replay.queue
        found, (rows, _) = queue.last_life(incoming), queue.unbuilt(incoming)
        if found.row == BEFORE:
            self.proven, self.latest = self.latest, None
        zeros = rows[incoming.queue_offsets[rows] == 0].tolist()
        if zeros and zeros[0] == rows[0] and not queue.files:
            del zeros[0]
        done = 0
        for row in sorted({*zeros[-1:], *(() if found.row in (None, BEFORE) else (found.row,))}):
            self._take_all(incoming.rows(done, row))
            self.latest, done = self._begin(incoming.rows(row), unit_size), row
            if row == found.row:
                self.proven, self.latest, self.passed_over = self.latest, None, 0
        self._take_all(incoming.rows(done))
        queue.awaited = found.awaited

    def _begin(self, incoming: QueueEntries, unit_size: int) -> Life[Followed]:
        follower, end = self._follow(), self.replay.queue.end
        follower.queue.replay_end = end + unit_size
        return Life(follower, incoming.first_physical_offset, end // unit_size)

    def _take_all(self, incoming: QueueEntries) -> None:
        if not len(incoming.entries):
            return
        self.passed_over += self.replay.take(incoming).repeated
        for life in self.later:
            life.follower.take(incoming)
