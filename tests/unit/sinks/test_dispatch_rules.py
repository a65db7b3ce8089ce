"""The additions of broker.conf and of the store's version to plain dispatch: whole stores by their own settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.sink_runner import dispatch_store, no_fsync
from support.store_compare import differing_bytes, store_files

from reput.streaming.config.pipeline import load_config

if TYPE_CHECKING:
    from conftest import BrokerStore


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("v4-plain", []),
        ("v4-lmq", []),
        ("v5-plain", []),
        ("v4-sql92-rebuilt", []),
        ("v5-batchcq", []),
        ("v5-propcrc", []),
        ("v5-plain", ["brokerVersion=5.4.0"]),
    ],
)
def test_a_store_by_its_own_settings(
    name: str, overrides: list[str], broker_store: Callable[[str], BrokerStore], tmp_path: Path
) -> None:
    """Every derived file is the broker's."""
    store = broker_store(name)
    with no_fsync():
        dispatch_store(load_config(store.root, broker_conf=store.broker_conf, overrides=overrides), tmp_path)
    assert len(store_files(tmp_path)) > 10
    assert differing_bytes(tmp_path, store.root) == {}
