"""What is predicted of a broker's start.

All offsets are physical offsets unless they are called queue offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Recovery(Enum):
    """How a broker takes its store: as after a clean stop, or not trusting it because of its ``abort`` file."""

    NORMAL = "normal"
    ABNORMAL = "abnormal"


class Part(Enum):
    """What of a store keeps a broker from starting."""

    SETTINGS = "settings"
    ABORT = "abort"
    CHECKPOINT = "checkpoint"
    LOG = "log"
    RECORD = "record"
    QUEUES = "queues"
    INDEX = "index"
    REPLAY = "replay"
    DISPATCH = "dispatch"
    NOTIFY = "notify"


@dataclass(frozen=True)
class Obstacle:
    """Why a broker does not start: what it meets, in which part and file (None for no single one).

    `size` is the size in bytes that the file should have, where it has another one.
    """

    part: Part
    why: str
    file: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class LostRecords:
    """Good records that the broker cuts off: how many, their bytes, the first and the last, and how many by topic.

    `end` is where the last one ends.
    """

    count: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    end: int | None = None
    topics: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LogCut:
    """Where the broker ends the log: at `offset`, byte `position` of the segment `file`, and what stands there to it.

    `why` is empty at a file's blank. `removed` are the segments that the broker deletes.
    """

    offset: int
    file: str
    position: int
    why: str
    lost: LostRecords
    removed: tuple[str, ...]


@dataclass(frozen=True)
class PredictedQueue:
    """A queue once the broker has dispatched all it will: its next queue offset, and how far it is from the log.

    `records` is how many records of the log belong into it, and `missing` how many of these it stays without.
    `entries` is how many of the log's records it has: of an earlier life, too, if its topic was deleted and made again.
    """

    topic: str
    queue_id: int
    max_offset: int
    entries: int
    records: int
    missing: int


@dataclass(frozen=True)
class Moving:
    """A queue with entries that a rebuild would put at other queue offsets than they have today, and how many."""

    topic: str
    queue_id: int
    entries: int


@dataclass(frozen=True)
class PredictedTimers:
    """What becomes of the timer messages of the log that have a unique key.

    Attributes
    ----------
    waiting
        How many were neither delivered nor recalled.
    are_sent
        Whether the release, with its settings, sends any.
    reads_from
        The queue offset from which on it reads ``rmq_sys_wheel_timer``; None where it reads nothing.
    due
        How many it sends at once, because their time is over.
    sent_again
        How many of these were delivered before, or recalled.
    lost
        How many of those that wait are never sent: they are not read again, and in no slot that is still read.
    """

    waiting: int = 0
    are_sent: bool = True
    reads_from: int | None = None
    due: int = 0
    sent_again: int = 0
    lost: int = 0


@dataclass(frozen=True)
class PredictedTransactions:
    """What becomes of the half messages of the log.

    Attributes
    ----------
    open
        How many were neither committed nor rolled back.
    unchecked
        How many of these the release, with its settings, never checks.
    checked_again
        How many that were ended are checked again.
    """

    open: int = 0
    unchecked: int = 0
    checked_again: int = 0


@dataclass(frozen=True)
class Prediction:
    """What one release does with a store.

    Attributes
    ----------
    release
        The broker's release.
    recovery
        Which of its recoveries.
    obstacle
        Why it does not start; None if it does. The rest is what it does before that.
    recovers_from
        The segment that recovery begins at; None without one.
    holes
        Ranges of the log that no segment holds, each with its end (exclusive).
    log_end, cut
        Where the log ends then, and how that comes; None where it does not get so far.
    removed_segments
        Paths of segments that it deletes as it loads them, where it does not get to a cut.
    dispatched, dispatches_from
        How many records it dispatches, in recovery and in the replay, and the first of them; None without one.
    replays_from
        Where the replay begins.
    queues
        All queues, in order.
    removed_queue_files, removed_index_files
        Paths of files that it deletes.
    damaged_ranges
        How many ranges of the log before its end hold no good record, and are not cut off.
    unserved
        How many entries more than records the queues have, at least: they lead into the damaged ranges.
    beyond_end
        How many entries of queues in RocksDB lead behind the log's end, and stay: new messages of these queues get
        queue offsets after them.
    index_end
        The offset before which the index takes no keys: of its last record when it is loaded, or of a later record
        that states a wrong offset.
    astray
        Where that later record begins; None without one.
    missing_entries
        How many queue entries lead to records whose segments are missing: in `holes`, or behind the last segment.
    reach
        Where the last record ends, or begins, that queues or index have when they are loaded.
    last_is_missing
        Queues or index have records behind the last segment's end.
    renumbered
        Topics whose queues it does not look for, so that their messages get other queue offsets.
    recovered_bytes, recovery_seconds
        How many bytes of the log recovery reads, and about how many seconds that takes (``predict.recovery_seconds``).
    index_missing
        How many records with keys stay out of the index: no file has them, and they are not dispatched again.
    misread_index
        Why it takes the index files for files of other sizes, so that it finds no key in them; empty if it does not.
    not_seen
        Which queues are where reput does not look, in a sentence; empty without such.
    timers, transactions
        What becomes of timer messages and of half messages; None where the log has none.
    """

    release: str
    recovery: Recovery
    obstacle: Obstacle | None = None
    recovers_from: str | None = None
    holes: tuple[tuple[int, int], ...] = ()
    log_end: int | None = None
    cut: LogCut | None = None
    dispatched: int = 0
    dispatches_from: int | None = None
    replays_from: int | None = None
    queues: tuple[PredictedQueue, ...] = ()
    removed_queue_files: tuple[str, ...] = ()
    removed_index_files: tuple[str, ...] = ()
    damaged_ranges: int = 0
    unserved: int = 0
    beyond_end: int = 0
    index_end: int = 0
    astray: int | None = None
    index_missing: int = 0
    misread_index: str = ""
    not_seen: str = ""
    missing_entries: int = 0
    last_is_missing: bool = False
    reach: int = 0
    removed_segments: tuple[str, ...] = ()
    recovered_bytes: int = 0
    recovery_seconds: float = 0.0
    renumbered: tuple[str, ...] = ()
    timers: PredictedTimers | None = None
    transactions: PredictedTransactions | None = None

    @property
    def starts(self) -> bool:
        """Whether the broker starts."""
        return self.obstacle is None

    @property
    def has_lost_its_log(self) -> bool:
        """Whether queues or index have records, and there is no segment."""
        return self.last_is_missing and self.recovers_from is None and self.log_end == 0

    @property
    def lost(self) -> LostRecords:
        """The good records that are cut off."""
        return self.cut.lost if self.cut is not None else LostRecords()

    @property
    def is_cut_back(self) -> bool:
        """Whether queues or index have a record behind the last good one of the log: a rebuild wants to be sure."""
        # Good records that the broker would cut off are there for a rebuild.
        good_end = self.log_end if self.lost.end is None else self.lost.end
        return self.last_is_missing or (good_end is not None and self.reach > good_end)

    @property
    def short_queues(self) -> tuple[PredictedQueue, ...]:
        """The queues that stay without some of their records."""
        return tuple(queue for queue in self.queues if queue.missing)

    @property
    def index_is_ahead(self) -> bool:
        """Whether the index ends behind the log: the broker will put no keys of new messages before that offset."""
        return self.log_end is not None and self.index_end >= max(1, self.log_end)

    @property
    def removed(self) -> tuple[str, ...]:
        """Paths of all files that it deletes."""
        segments = self.cut.removed if self.cut is not None else self.removed_segments
        return (*segments, *self.removed_queue_files, *self.removed_index_files)

    @property
    def leaves_a_way_back(self) -> bool:
        """Whether the store is as it was after such a start, as long as no message came."""
        is_unchanged = self.obstacle is not None and self.obstacle.part is Part.SETTINGS
        return is_unchanged or (self.is_harmless and not self.removed)

    @property
    def is_harmless(self) -> bool:
        """Whether it starts and nothing is lost, in log, queues or index."""
        is_lossless = not (self.lost.count or self.short_queues or self.index_missing or self.index_is_ahead)
        is_lossless &= not self.missing_entries
        is_lossless &= not self.beyond_end
        is_lossless &= not self.renumbered
        is_lossless &= self.timers is None or not self.timers.lost
        return self.starts and is_lossless and not self.misread_index
