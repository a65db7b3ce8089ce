"""Queues that messages name for multi dispatch: a broker makes a directory of any text between two commas."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.broker_stores import unpack
from support.sink_runner import dispatch_store, files_below

from reput.streaming.config.pipeline import PipelineConfig, load_config
from reput.streaming.tasks.tasks import SerialTasks
from reput.streaming.verify.store_verification import StoreSection, StoreVerification


def config_of(home: Path) -> PipelineConfig:
    return load_config(home / "store", broker_conf=home / "broker.conf", overrides=["tailGuardMs=0"])


def verified(config: PipelineConfig, output: Path) -> StoreSection:
    return StoreVerification(config, output).run(SerialTasks())[1]


def test_a_blank_before_the_name(tmp_path: Path) -> None:
    """4.9.3 made `consumequeue/ %LMQ%b/0`: nothing differs, and reput makes the same files."""
    home = unpack("v4-light-queue-blank", tmp_path)
    found = verified(config_of(home), home / "store")
    assert not found.findings.differences
    assert found.compared == {"queues": 3, "entries": 8}
    dispatch_store(config_of(home), tmp_path / "out")
    queues = {name: data for name, data in files_below(home / "store").items() if name.startswith("consumequeue/")}
    made = {name: data for name, data in files_below(tmp_path / "out").items() if name.startswith("consumequeue/")}
    assert made == queues
    assert f"consumequeue/ %LMQ%b/0/{0:020d}" in queues


@pytest.mark.parametrize("name", ["a\tb", "a\u2028b", "%LMQ%\x1b[2J"])
def test_a_queue_of_another_name_costs_itself_alone(name: str, tmp_path: Path) -> None:
    """The store is verified and its log dispatched; the queue that reput would not make is named."""
    home = unpack("v4-light-queue-blank", tmp_path)
    (home / "store" / "consumequeue" / "M").rename(home / "store" / "consumequeue" / name)
    found = verified(config_of(home), home / "store").findings
    assert found.counts == {"entry_missing": 3, "file_missing": 1}
    assert found.notes["queues_not_checked"] == 1
    assert found.remarks == [
        f"{home / 'store' / 'consumequeue' / name} is not checked: reput makes no queue of this name"
    ]
