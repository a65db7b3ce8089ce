"""The prediction of a broker's start.

All offsets are physical offsets unless they are called queue offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Recovery(Enum):
    """The ways to take a store: as after a clean stop, or without trusting it because of its ``abort`` file."""

    NORMAL = "normal"
    ABNORMAL = "abnormal"


class Part(Enum):
    """The part of a store that keeps a broker from starting."""

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
    """The reason why a broker does not start, with the part and the file (None if it is not a single file).

    `size` is the right size of the file in bytes, if its size is the reason.
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
    """The place where the broker ends the log: at `offset`, byte `position` of the segment `file`.

    `why` is how the broker reads the bytes there; it is empty at a file's blank. `removed` are the segments that the
    broker deletes.
    """

    offset: int
    file: str
    position: int
    why: str
    lost: LostRecords
    removed: tuple[str, ...]


@dataclass(frozen=True)
class PredictedQueue:
    """A queue after the broker has dispatched everything it will: its next queue offset, and how complete it is.

    `records` is how many records of the log belong in it, and `missing` how many of these it lacks for good. `entries`
    is how many of the log's records it has, including those of an earlier life if its topic was deleted and made again.
    """

    topic: str
    queue_id: int
    max_offset: int
    entries: int
    records: int
    missing: int


@dataclass(frozen=True)
class Moving:
    """A queue with entries that a rebuild would put at other queue offsets than today, and how many."""

    topic: str
    queue_id: int
    entries: int


@dataclass(frozen=True)
class PredictedTimers:
    """The fate of the timer messages in the log that have a unique key.

    Attributes
    ----------
    waiting
        How many were neither delivered nor recalled.
    are_sent
        Whether the release, with its settings, sends any.
    reads_from
        The queue offset from which it reads ``rmq_sys_wheel_timer``; None if it does not read it.
    due
        How many it sends at once, because their time is over.
    sent_again
        How many of these were delivered before, or recalled.
    lost
        How many waiting ones are never sent: they are not read again, and not in a slot that is still read.
    """

    waiting: int = 0
    are_sent: bool = True
    reads_from: int | None = None
    due: int = 0
    sent_again: int = 0
    lost: int = 0


@dataclass(frozen=True)
class PredictedTransactions:
    """The fate of the half messages in the log.

    Attributes
    ----------
    open
        How many were neither committed nor rolled back.
    unchecked
        How many of these the release, with its settings, never checks.
    checked_again
        How many of those that were ended are checked again.
    """

    open: int = 0
    unchecked: int = 0
    checked_again: int = 0


@dataclass(frozen=True)
class Prediction:
    """The effects of one release's start on a store.

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
        Ranges of the log that are not in any segment, each with its end (exclusive).
    log_end, cut
        Where the log ends then, and why; None if the start does not get that far.
    removed_segments
        Paths of segments that it deletes while loading them, if the start does not reach a cut.
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
        The least number of entries that the queues have beyond their records: they lead into the damaged ranges.
    beyond_end
        How many entries of queues in RocksDB lead beyond the log's end, and stay: new messages of these queues get
        queue offsets after them.
    index_end
        The offset before which the index takes no keys: that of its last record when it is loaded, or of a later record
        that states a wrong offset.
    astray
        Where that later record begins; None without one.
    missing_entries
        How many queue entries lead to records whose segments are missing: in `holes`, or after the last segment.
    reach
        Where the last record ends, or begins, that queues or index have when they are loaded.
    last_is_missing
        Whether queues or index have records after the last segment's end.
    renumbered
        Topics whose queues it does not look for, so that their messages get other queue offsets.
    recovered_bytes, recovery_seconds
        How many bytes of the log recovery reads, and about how many seconds that takes (``predict.recovery_seconds``).
    index_missing
        How many records with keys stay out of the index: no file has them, and they are not dispatched again.
    misread_index
        Why it takes the index files for files of other sizes, so that it finds no key in them; empty if it does not.
    not_seen
        A sentence about queues where reput does not look; empty without such.
    timers, transactions
        The fate of timer messages and of half messages; None if the log has none.
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
        """Whether queues or index have records but there are no segments."""
        return self.last_is_missing and self.recovers_from is None and self.log_end == 0

    @property
    def lost(self) -> LostRecords:
        """The good records that are cut off."""
        return self.cut.lost if self.cut is not None else LostRecords()

    @property
    def is_cut_back(self) -> bool:
        """Whether queues or index have a record after the last good one of the log: a rebuild then needs ``--yes``."""
        # A rebuild reads good records that the broker would cut off.
        good_end = self.log_end if self.lost.end is None else self.lost.end
        return self.last_is_missing or (good_end is not None and self.reach > good_end)

    @property
    def short_queues(self) -> tuple[PredictedQueue, ...]:
        """The queues that lack some of their records for good."""
        return tuple(queue for queue in self.queues if queue.missing)

    @property
    def index_is_ahead(self) -> bool:
        """Whether the index ends beyond the log: the broker will index no new messages before that offset."""
        return self.log_end is not None and self.index_end >= max(1, self.log_end)

    @property
    def removed(self) -> tuple[str, ...]:
        """The paths of all files that it deletes."""
        segments = self.cut.removed if self.cut is not None else self.removed_segments
        return (*segments, *self.removed_queue_files, *self.removed_index_files)

    @property
    def leaves_a_way_back(self) -> bool:
        """Whether the store is unchanged after such a start, as long as no message came."""
        is_unchanged = self.obstacle is not None and self.obstacle.part is Part.SETTINGS
        return is_unchanged or (self.is_harmless and not self.removed)

    @property
    def is_harmless(self) -> bool:
        """Whether it starts and loses nothing in log, queues or index."""
        is_lossless = not (self.lost.count or self.short_queues or self.index_missing or self.index_is_ahead)
        is_lossless &= not self.missing_entries
        is_lossless &= not self.beyond_end
        is_lossless &= not self.renumbered
        is_lossless &= self.timers is None or not self.timers.lost
        return self.starts and is_lossless and not self.misread_index
