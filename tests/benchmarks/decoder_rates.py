"""Microseconds a message of the decoder's steps alone, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from reput.sinks.dispatch.logic_needs import LogicNeeds
from reput.sinks.dispatch.piece import QueueFilter, make_pieces
from reput.source.log.mapped_file_queue import MappedFileQueue
from reput.source.log.range_reader import DecodeOptions, read_windows, scan_windows
from reput.source.log.reput_end_offset import ReputEndFinder
from reput.source.log.segment_scan import Window
from reput.source.rows.message_rows import message_batch
from reput.streaming.spark.warm_up import compile_kernels

SAMPLED_BYTES = 400_000_000
ROUNDS = 3


def decoder_rates(store: Path) -> list[tuple[str, float]]:
    """Microseconds a message by step, warm cache, over the first 400 MB of the log."""
    compile_kernels()
    file = MappedFileQueue.load([store / "commitlog"]).files[0]
    end = min(
        ReputEndFinder(check_crc=False, tail_guard_ms=0).find(MappedFileQueue((file,), ()), 0).offset, SAMPLED_BYTES
    )
    options = DecodeOptions()
    stop = [window.end for window in scan_windows(file, 0, end, options)][-1]

    def windows(work: Callable[[Window], object]) -> Callable[[], int]:
        def run() -> int:
            count = 0
            for window in read_windows(file, 0, stop, options):
                work(window)
                count += len(window.columns)
            return count

        return run

    def scan(check_crc: bool) -> Callable[[], int]:
        return lambda: sum(map(len, scan_windows(file, 0, stop, DecodeOptions(check_crc=check_crc))))

    def pieces() -> int:
        made = make_pieces(
            scan_windows(file, 0, stop, options), file, LogicNeeds(), options.delays_ms, QueueFilter(), None
        )
        return sum(piece["messages"] for piece in made)

    steps: list[tuple[str, Callable[[], int]]] = [
        ("walk the records", scan(check_crc=False)),
        ("walk, body CRC checked", scan(check_crc=True)),
        ("decode for dispatch", windows(lambda _: None)),
        ("queue entries, key hashes", pieces),
        ("decode to Arrow, all columns", windows(lambda window: message_batch(window.columns))),
    ]
    return [(name, best_of(step)) for name, step in steps]


def best_of(step: Callable[[], int]) -> float:
    """Microseconds a message, the best of some rounds: what the machine can do undisturbed."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        count = step()
        best = min(best, (time.perf_counter() - began) / count * 1e6)
    return best
