"""Reading a stretch of the log for a rebuild: its ranges are read side by side, and their ends are proven.

A range is first read as if nothing were damaged. A range that fails is read again as ``onDamage`` says, once its ends
are proven: a walk follows the records and passes over damage, so that no range begins or ends inside of damage.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from reput.source.log.boundaries import limit, split
from reput.source.log.offset_range import OffsetRange
from reput.source.log.range_cut import RangeCut
from reput.source.segments.mapped_file_queue import MappedFileQueue
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.effects.waves import OnRange
from reput.streaming.tasks.tasks import OnResult, Tasks


class StretchRead:
    """A stretch that is being read: consecutive ranges of the log, of which the first one's start is proven.

    The last one ends where a record ends; if that end is not proven beforehand, only `results` tell it.
    """

    def __init__(
        self,
        tasks: Tasks,
        queue: MappedFileQueue,
        cuts: Sequence[RangeCut],
        task: RangeTask,
        bytes_a_range: int,
        on_range: OnRange,
    ) -> None:
        """Begin to read; `on_range` gets each range that is not empty as soon as its start is proven, in log order.

        It is called from any thread, the last time before `results` returns.
        """
        self._tasks = tasks
        self._queue = queue
        self._cuts = list(cuts)
        self._task = task
        self._bytes_a_range = bytes_a_range
        self._in_order = _InOrder(on_range)
        self._results = _begin(tasks, task, cuts, self._in_order.put)

    @property
    def end(self) -> int | None:
        """Where the stretch ends; None if only its results can say."""
        return self._cuts[-1].end if self._cuts[-1].is_end_proven else None

    def results(self) -> list[RangeEffects]:
        """Wait for the tasks, and return its ranges as they were read, in log order; called once.

        Raises
        ------
        CorruptRecordError
            A record in the middle of the log fails its checks, and ``onDamage`` is ``stop`` (as the text of Spark's
            exception).
        """
        cuts, results, on_damage = self._cuts, self._results(), self._task.decode.on_damage
        while (bad := next((number for number, result in enumerate(results) if not result.is_whole), None)) is not None:
            # Each range before it was read to where the next begins, so this one's start is proven. From there the
            # records are followed to the last cut of its segment.
            begin = results[bad].start
            last = max(number for number, cut in enumerate(cuts) if cut.file == cuts[bad].file)
            stop = cuts[last].end
            if not cuts[last].is_end_proven:
                stop = limit(self._queue, begin, cuts[last].stop, max(1, stop - begin), None, on_damage)
            walked = [_proven(each) for each in split(self._queue, begin, stop, self._bytes_a_range, on_damage)]
            results[bad : last + 1] = _begin(self._tasks, self._task, walked)()
            cuts[bad : last + 1] = walked
        self._in_order.end(results)
        return results


class _InOrder:
    """Hands on ranges in the order of their numbers, each once, unless it is empty."""

    def __init__(self, on_range: OnRange) -> None:
        self._on_range = on_range
        self._lock = threading.Lock()
        self._waiting: dict[int, RangeEffects] = {}
        self._next = 0
        self._is_ended = False

    def put(self, number: int, read: RangeEffects) -> None:
        """Hand on a range when those before it have been: what was read up to its start makes that proven.

        None is handed on behind one that is not whole.
        """
        with self._lock:
            if self._is_ended:
                return
            self._waiting[number] = read
            while (each := self._waiting.pop(self._next, None)) is not None and each.is_whole:
                self._hand_on(each)

    def end(self, results: Sequence[RangeEffects]) -> None:
        """Hand on the rest of what was read; later results of tasks are ignored."""
        with self._lock:
            self._is_ended = True
            for each in results[self._next :]:
                self._hand_on(each)

    def _hand_on(self, read: RangeEffects) -> None:
        self._next += 1
        if read.start < read.end:
            self._on_range(read)


def _proven(span: OffsetRange) -> RangeCut:
    return RangeCut(span.file, span.start, span.end, span.end, is_start_proven=True, is_end_proven=True)


def _begin(
    tasks: Tasks, task: RangeTask, cuts: Sequence[RangeCut], on_result: OnResult[RangeEffects] | None = None
) -> Callable[[], list[RangeEffects]]:
    return tasks.start(lambda number: task(cuts[number]), len(cuts), on_result)
