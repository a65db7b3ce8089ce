"""Run `reput rebuild` without Spark: its tasks one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.rebuild.report import RebuildProgress, RebuildReport
from reput.streaming.rebuild.request import RebuildRequest
from reput.streaming.tasks.tasks import Results, Tasks


class LocalTasks(Tasks):
    """Runs pieces of work here, in a random order, when they are waited for."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = Random(seed)
        #: How many pieces were run.
        self.count = 0

    @property
    def parallelism(self) -> int:
        return 3

    def start(self, work: Callable[[int], str], count: int) -> Results:
        return lambda: self._run(work, count)

    def _run(self, work: Callable[[int], str], count: int) -> list[str]:
        order = list(range(count))
        self._rng.shuffle(order)
        self.count += count
        results = {number: work(number) for number in order}
        return [results[number] for number in range(count)]


def rebuild(config: PipelineConfig, output: Path, **request: object) -> RebuildReport:
    """Rebuild an output, `request` as in `RebuildRequest`."""
    with Rebuild(config, RebuildRequest(output, **request), RebuildProgress()) as job:  # type: ignore[arg-type]
        return job.run(LocalTasks())
