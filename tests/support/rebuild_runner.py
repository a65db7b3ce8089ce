"""Run `reput rebuild` without Spark: its tasks one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random

import pytest

from reput.streaming.config.pipeline import PipelineConfig
from reput.streaming.effects import effects
from reput.streaming.rebuild.pipeline import RebuildProgress, RebuildReport
from reput.streaming.rebuild.plan import RebuildRequest
from reput.streaming.rebuild.rebuild import Rebuild
from reput.streaming.tasks.tasks import OnResult, Results, Tasks


class LocalTasks(Tasks):
    """Runs pieces of work here, in a random order, when they are waited for."""

    def __init__(self, seed: int = 0, *, is_on_cluster: bool = False) -> None:
        self._rng = Random(seed)
        self.is_on_cluster = is_on_cluster
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


def rebuild(config: PipelineConfig, output: Path, *, is_on_cluster: bool = False, **request: object) -> RebuildReport:
    """Rebuild an output, `request` as in `RebuildRequest`; with `is_on_cluster`, all files are written by tasks."""
    with (
        Rebuild(config, RebuildRequest(output, **request), RebuildProgress()) as job,  # type: ignore[arg-type]
        tasks_write_all() if is_on_cluster else nullcontext(),
    ):
        return job.run(LocalTasks(is_on_cluster=is_on_cluster))


@contextmanager
def tasks_write_all() -> Iterator[None]:
    """Within the block, tasks of a cluster write queues and index however few entries and keys there are."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_ENTRIES_A_JOB", "_KEYS_A_JOB"):
            patch.setattr(effects, name, 0)
        yield
