"""The end of a session waits for the JVM alone."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace

from pyspark.accumulators import _start_update_server

from reput.streaming.spark.session import _end_accumulators


def test_nobody_waits_for_the_accumulators_threads() -> None:
    """Pyspark's own end of a context does: for a second, whatever else it ends."""
    may_end, has_ended = threading.Event(), threading.Event()

    def shutdown() -> None:
        may_end.wait(20)
        has_ended.set()

    server = SimpleNamespace(server_shutdown=False, server_address=("localhost", 1), shutdown=shutdown)
    context = SimpleNamespace(_accumulatorServer=server)
    _end_accumulators(context)
    assert not has_ended.is_set()
    assert context._accumulatorServer is None
    may_end.set()
    assert has_ended.wait(60)
    _end_accumulators(context)


def test_they_end_and_their_socket_is_gone(tmp_path: Path) -> None:
    """Beside a JVM that is connected still."""
    path = tmp_path / "accumulators.sock"
    before = set(threading.enumerate())
    context = SimpleNamespace(
        _accumulatorServer=_start_update_server("", is_unix_domain_sock=True, socket_path=str(path))
    )
    with socket.socket(socket.AF_UNIX) as jvm:
        jvm.connect(str(path))
        _end_accumulators(context)
        assert not path.exists()
        for thread in set(threading.enumerate()) - before:
            thread.join(60)
            assert not thread.is_alive()
