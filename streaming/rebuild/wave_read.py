"""One wave of a rebuild: its ranges of the log are read side by side, and their ends are proven.

A range is first read as if nothing were damaged. A range that fails is read again as ``onDamage`` says, once its ends
are proven: a walk follows the records and passes over damage, so that no range begins or ends inside of damage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reput.source.log.offset_range import OffsetRange, limit, split
from reput.source.log.range_cut import RangeCut
from reput.source.segments.mapped_file_queue import MappedFileQueue
from reput.streaming.effects.range_task import RangeEffects, RangeTask
from reput.streaming.tasks.tasks import Tasks


class WaveRead:
    """A wave that is being read: consecutive ranges of the log, of which the first one's start is proven.

    The last one ends where a record ends; if that end is not proven beforehand, only `result` gives it.
    """

    def __init__(
        self, tasks: Tasks, queue: MappedFileQueue, cuts: Sequence[RangeCut], task: RangeTask, bytes_a_range: int
    ) -> None:
        self._tasks = tasks
        self._queue = queue
        self._cuts = list(cuts)
        self._task = task
        self._bytes_a_range = bytes_a_range
        self._results = _begin(tasks, task, cuts)

    @property
    def end(self) -> int | None:
        """Where the wave ends; None if only its result can say."""
        return self._cuts[-1].end if self._cuts[-1].is_end_proven else None

    def result(self) -> RangeEffects:
        """Wait for the wave, and return what was read; called once.

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
        return RangeEffects.join(results)


def _proven(span: OffsetRange) -> RangeCut:
    return RangeCut(span.file, span.start, span.end, span.end, is_start_proven=True, is_end_proven=True)


def _begin(tasks: Tasks, task: RangeTask, cuts: Sequence[RangeCut]) -> Callable[[], list[RangeEffects]]:
    return tasks.start(lambda number: task(cuts[number]), len(cuts))
