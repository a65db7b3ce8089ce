"""Actions beside the driver."""

from __future__ import annotations

import threading

from reput.streaming.spark.job import Beside


def test_actions_run_at_the_same_time_and_their_errors_are_nobodys() -> None:
    """Each waits for the other; the failure of one does not appear anywhere."""
    barrier, ended = threading.Barrier(2, timeout=30), threading.Event()

    def fail() -> None:
        barrier.wait()
        message = "no core"
        raise RuntimeError(message)

    def go_on() -> None:
        barrier.wait()
        ended.set()

    beside = Beside(fail, go_on)
    beside.join()
    assert ended.is_set()
