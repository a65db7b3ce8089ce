"""What a broker makes of the records that it dispatches at its start: entries of queues, and whether there are keys."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from reput.sinks.formats.consume_queue import ENTRY, is_queued
from reput.sinks.recover.broker_queue import BrokerQueue
from reput.source.kernels import record_kernels as rk
from reput.source.log.offset_range import OffsetRange
from reput.source.record.java_string import decode_utf8
from reput.source.segments.broker_check import BrokerRecord, GoodRecords, OddRecord
from reput.source.segments.mapped_file_queue import MappedFile
from reput.source.segments.range_reader import DecodeOptions, scan_windows
from reput.streaming.doctor.dispatch_errors import DispatchError, error_of, first_error
from reput.streaming.doctor.prediction import Part
from reput.streaming.doctor.start_settings import StartSettings
from reput.streaming.doctor.stored_files import NoStartError
from reput.streaming.effects.range_task import RangeTask

WAITS = "the broker waits for its replay for ever, and does not come up"


@dataclass
class Dispatcher:
    """Dispatches to queues in memory, and notes what goes to the index.

    `first` is the physical offset of the first record, `count` how many there were.
    """

    settings: StartSettings
    queues: dict[tuple[str, int], BrokerQueue]
    first: int | None = None
    count: int = 0
    _task: RangeTask = field(init=False)

    def __post_init__(self) -> None:
        options = DecodeOptions(delays_ms=self.settings.rules.delays_ms)
        self._task = RangeTask(options, replace(self.settings.needs, index=False))

    @property
    def max_physic_offset(self) -> int:
        """Where the last record that is in any queue ends; -1 without one."""
        return max((queue.max_physic_offset for queue in self.queues.values()), default=-1)

    def dispatch(
        self,
        file: MappedFile,
        found: GoodRecords | OddRecord,
        behind: int | None = None,
        *,
        in_replay: bool = False,
    ) -> None:
        """Dispatch records of a segment; of those that begin at or before `behind`, none.

        Raises
        ------
        NoStartError
            The broker's dispatch of a record fails; those before it are dispatched.
        """
        if isinstance(found, OddRecord):
            record = found.check.record
            assert record is not None
            if behind is None or record.physical_offset > behind:
                _stop_at(error_of(record, self.settings, in_replay=in_replay), file, in_replay=in_replay)
                self._dispatch_record(record)
            return
        if behind is not None and found.end - 1 <= behind:
            return
        count, first = found.count, found.start
        if behind is not None and found.start <= behind:
            count, first = self._behind(file, found, behind)
        error = first_error(file, found, first, self.settings, in_replay=in_replay)
        end = found.end
        if error is not None:
            end, count = error.offset, error.before
        if first < end:
            batch = self._task.read(OffsetRange(first, end, file)).batch()
            assert batch is not None
            self._note(first, count)
            for queue in batch.entries.all_queues():
                self._queue(decode_utf8(queue.topic), queue.queue_id).put(queue.entries, queue.queue_offsets)
        _stop_at(error, file, in_replay=in_replay)

    def _behind(self, file: MappedFile, found: GoodRecords, behind: int) -> tuple[int, int]:
        """How many of the records begin behind an offset, and where the first of them does."""
        count, first = 0, found.end
        for window in scan_windows(file, found.start, found.end, DecodeOptions()):
            starts = window.start + window.parts[:, rk.AT]
            later = starts[starts > behind]
            count += len(later)
            first = min(first, int(later[0])) if len(later) else first
        return count, first

    def _dispatch_record(self, record: BrokerRecord) -> None:
        self._note(record.physical_offset, 1)
        if not is_queued(record.sys_flag):
            return
        entry = np.array([(record.physical_offset, record.msg_size, record.tags_code)], ENTRY)
        entries = entry.view(np.uint8).reshape(1, -1)
        self._queue(record.topic, record.queue_id).put(entries, np.array([record.queue_offset], np.int64))

    def _note(self, first: int, count: int) -> None:
        if count and self.first is None:
            self.first = first
        self.count += count

    def _queue(self, topic: str, queue_id: int) -> BrokerQueue:
        key = topic, queue_id
        if key not in self.queues:
            self.queues[key] = BrokerQueue(topic, queue_id, self.settings.queue_file_size)
        return self.queues[key]


def _stop_at(error: DispatchError | None, file: MappedFile, *, in_replay: bool) -> None:
    if error is None:
        return
    then = f"the replay tries it again for ever, and {WAITS}" if in_replay else "its recovery ends there"
    why = f"the broker's own dispatch of the record at offset {error.offset} fails ({error.why}): {then}"
    raise NoStartError(Part.DISPATCH if error.is_queued else Part.NOTIFY, why, file.path)
