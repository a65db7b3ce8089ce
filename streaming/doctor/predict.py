"""What a broker's start does with a store, step by step as the broker takes them; nothing is written.

``DefaultMessageStore#load``, ``#recover`` and ``#start`` of 4.9.3 and 5.5.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reput.sinks.files.store_path import ABORT
from reput.source.segments.mapped_file_queue import MappedFile
from reput.streaming.doctor.dispatcher import Dispatcher
from reput.streaming.doctor.kept_records import Expected, Indexed, belonging, lost_records
from reput.streaming.doctor.log_recovery import LogEnd, cut_log, cut_queues, recover_log
from reput.streaming.doctor.prediction import LogCut, Obstacle, Part, Prediction, QueueState, Recovery
from reput.streaming.doctor.replay import replay, replay_from
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.doctor.stored_files import (
    IndexFiles,
    NoStartError,
    Segment,
    load_checkpoint,
    load_index,
    load_queues,
    load_segments,
)


@dataclass
class _Start:
    """One start, as far as it has come."""

    store: Path
    settings: StartSettings
    is_abnormal: bool
    files: list[MappedFile] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    dispatcher: Dispatcher = field(init=False)
    index: IndexFiles = field(default_factory=IndexFiles)
    end: LogEnd | None = None
    removed: list[Path] = field(default_factory=list)
    replays_from: int | None = None
    missing_entries: int = 0
    last_is_missing: bool = False
    reach: int = 0

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(self.settings, {})

    def load(self, commit_log: Sequence[Path]) -> None:
        """Load what there is, recover queues and log, and cut both."""
        self.segments = load_segments(commit_log, self.settings, self.removed)
        self.files = [segment.file for segment in self.segments]
        self.dispatcher.queues = load_queues(self.store, self.settings)
        checkpoint = load_checkpoint(self.store)
        self.index = load_index(self.store, checkpoint, self.settings, is_abnormal=self.is_abnormal)
        queues = self.dispatcher.queues.values()
        for queue in queues:
            queue.recover()
        end_of_files = self.files[-1].end if self.files else 0
        self.reach = reach = max(self.index.end + 1, self.dispatcher.max_physic_offset)
        self.last_is_missing = bool(self.files) and reach > end_of_files
        ranges = list(self.holes) + ([(end_of_files, reach)] if self.last_is_missing else [])
        self.missing_entries = sum(queue.entries_in(ranges) for queue in queues)
        if not self.segments:
            for queue in queues:
                queue.destroy()
            return
        queued_to = self.dispatcher.max_physic_offset
        self.end = recover_log(self.segments, checkpoint, self.dispatcher, self.settings, is_abnormal=self.is_abnormal)
        # 5.5.0 asks the queues again, behind what recovery has dispatched.
        cut_queues(
            self.dispatcher, self.dispatcher.max_physic_offset if self.settings.is_v5 else queued_to, self.end.offset
        )
        self.removed += [Path(segment.file.path) for segment in cut_log(self.segments, self.end.offset)]

    def run(self) -> None:
        """Replay, as far as the release does so before it is up."""
        if self.settings.replays_from_queues:
            self.replays_from = replay_from(self.segments, self.dispatcher)
            replay(self.segments, self.replays_from, self.dispatcher, self.settings)
        else:
            self.replays_from = self.log_end

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Ranges of the log that no segment holds."""
        return tuple(
            (file.end, after.file_from_offset)
            for file, after in zip(self.files, self.files[1:], strict=False)
            if file.end != after.file_from_offset
        )

    @property
    def log_end(self) -> int:
        """Where the log ends; 0 without segments."""
        return self.segments[-1].end if self.segments else 0

    def prediction(self) -> Prediction:
        """What is known so far."""
        recovery = Recovery.ABNORMAL if self.is_abnormal else Recovery.NORMAL
        removed_queue_files = [path for queue in self.dispatcher.queues.values() for path in queue.removed]
        return Prediction(
            release=self.settings.release,
            recovery=recovery,
            recovers_from=self.end.begins_in.file.path if self.end else None,
            holes=self.holes,
            missing_entries=self.missing_entries,
            last_is_missing=self.last_is_missing,
            reach=self.reach,
            log_end=self.log_end if self.end or not self.files else None,
            cut=self._cut(),
            dispatched=self.dispatcher.count,
            dispatches_from=self.dispatcher.first,
            replays_from=self.replays_from,
            removed_queue_files=tuple(sorted(map(str, removed_queue_files))),
            removed_index_files=tuple(map(str, self.index.removed)),
            index_end=self.index.end,
            not_seen=self.settings.not_seen,
        )

    def _cut(self) -> LogCut | None:
        if self.end is None:
            return None
        file = self.end.segment.file
        lost = lost_records(self.files, self.end.offset, self.end.last_store_timestamp, self.settings)
        return LogCut(
            offset=self.end.offset,
            file=file.path,
            position=self.end.offset - file.file_from_offset,
            why=self.end.why,
            lost=lost,
            removed=tuple(sorted(map(str, self.removed))),
        )

    def with_what_is_kept(self, found: Prediction) -> Prediction:
        """The prediction with queues and index as they end up beside the log."""
        start = self.log_end if self.dispatcher.first is None else max(self.dispatcher.first, self.index.end)
        indexed = Indexed(self.index.ranges, start)
        kept = belonging([segment.file for segment in self.segments], self.log_end, indexed, self.settings)
        begin = self.segments[0].file.file_from_offset if self.segments else 0
        queues = self.dispatcher.queues
        states = []
        for topic, queue_id in sorted({*queues, *kept.queues}):
            queue, records = queues.get((topic, queue_id)), kept.queues.get((topic, queue_id))
            wanted = list(records.expected()) if records is not None else [Expected(begin, 0)]
            entries = queue.entries_from(begin) if queue else 0
            # A queue that started over may have the entries of one life or of both: what lacks least is what it is.
            missing, expected = min(
                (
                    each.entries - (queue.entries_from(each.start) if queue and each.start > begin else entries),
                    each.entries,
                )
                for each in wanted
            )
            max_offset = queue.max_offset if queue else 0
            states.append(QueueState(topic, queue_id, max_offset, entries, expected, max(0, missing)))
        return replace(
            found, queues=tuple(states), damaged_ranges=kept.damaged_ranges, index_missing=kept.index_missing
        )


def no_start(store: Path, settings: StartSettings, why: str) -> Prediction:
    """The prediction for a broker whose settings are not those of the store's files."""
    recovery = Recovery.ABNORMAL if (store / ABORT).exists() else Recovery.NORMAL
    return Prediction(settings.release, recovery, Obstacle(Part.SETTINGS, why))


def predict(
    store: Path, commit_log: Sequence[Path], settings: StartSettings, *, is_abnormal: bool | None = None
) -> Prediction:
    """What a broker with these settings does; `is_abnormal` says so in place of the store's ``abort`` file.

    Raises
    ------
    ReputError
        A file cannot be read.
    """
    if is_abnormal is None:
        is_abnormal = (store / ABORT).exists()
    start = _Start(store, settings, is_abnormal)
    try:
        start.load(commit_log)
        start.run()
    except NoStartError as stopped:
        return replace(start.prediction(), obstacle=stopped.obstacle)
    return start.with_what_is_kept(start.prediction())
