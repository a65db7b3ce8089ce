"""Real brokers take the benchmarks' made logs for their own: what they dispatch of each shape equals reput's files.

The short form is the standard shape on both releases; every shape::

    python -m pytest tests/test_benchmark_logs.py -m "slow or not slow"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.digests import differing_files, store_digests
from benchmarks.shapes import SHAPES, made_log
from benchmarks.subjects import BrokerCase
from broker.rocketmq import RocketMQ
from support.sink_runner import dispatch_store

from reput.streaming.config.pipeline import load_config

pytestmark = pytest.mark.broker

MESSAGES = 3000
# Files that roll. The names of index files are clocks: few enough of them that no two are made in a millisecond.
SETTINGS = {"mappedFileSizeConsumeQueue": "600", "maxHashSlotNum": "100", "maxIndexNum": "4000"}
CASES = [
    pytest.param(name, version, marks=[] if name == "standard" else pytest.mark.slow)
    for name in SHAPES
    for version in ("4.9.3", "5.5.0")
]


@pytest.mark.parametrize(("name", "version"), CASES)
def test_a_broker_dispatches_a_made_log(
    name: str, version: str, tmp_path: Path, release: Callable[[str], RocketMQ]
) -> None:
    """Every message, into the same queue and index files; the figures are complete, and the log is unchanged."""
    release(version)  # skips, or fails, where there is no Java or Maven
    log = made_log(tmp_path, name, replace(SHAPES[name], messages=MESSAGES, mapped_file_size=4 << 20))
    settings = {**SETTINGS, "mappedFileSizeCommitLog": str(4 << 20)}
    result = BrokerCase(name, name, version, tuple(settings.items())).measure(log, tmp_path)
    assert result.run.messages == MESSAGES
    assert 0 < result.run.seconds < result.run.seconds_in_all
    assert result.run.usage.own_mb["broker JVM"] > 20
    overrides = ["tailGuardMs=0", f"brokerVersion={version}", *(f"{key}={value}" for key, value in SETTINGS.items())]
    dispatch_store(load_config(log.store, overrides=overrides), tmp_path / "output")
    expected = store_digests(result.output)
    assert len([file for file in expected if file.startswith("index/")]) >= (name != "keys-0")
    assert differing_files(expected, store_digests(tmp_path / "output")) == []
