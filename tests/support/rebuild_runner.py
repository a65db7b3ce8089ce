"""Run `reput rebuild` without Spark: its tasks one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.rebuild.report import RebuildProgress, RebuildReport
from reput.streaming.rebuild.request import RebuildRequest
from reput.streaming.tasks.tasks import OnResult, Results, Tasks


class LocalTasks(Tasks):
    """Runs pieces of work here, in a random order, when they are waited for."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = Random(seed)
        #: How many pieces were run.
        self.count = 0

    @property
    def parallelism(self) -> int:
        return 3

    def start(self, work: Callable[[int], str], count: int, on_result: OnResult[str] | None = None) -> Results:
        return lambda: self._run(work, count, on_result)

    def _run(self, work: Callable[[int], str], count: int, on_result: OnResult[str] | None) -> list[str]:
        order = list(range(count))
        self._rng.shuffle(order)
        self.count += count
        results = {}
        for number in order:
            results[number] = work(number)
            if on_result is not None and self._rng.random() < 0.5:  # nothing is certain to reach it
                on_result(number, results[number])
        return [results[number] for number in range(count)]


def rebuild(config: PipelineConfig, output: Path, **request: object) -> RebuildReport:
    """Rebuild an output, `request` as in `RebuildRequest`."""
    with Rebuild(config, RebuildRequest(output, **request), RebuildProgress()) as job:  # type: ignore[arg-type]
        return job.run(LocalTasks())
