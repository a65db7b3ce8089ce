"""`reput tail` beside a real broker that is being written to."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.rocketmq import RocketMQ
from support.live_run import live_run

pytestmark = pytest.mark.broker


def test_a_live_store_is_followed_to_equal_files(rocketmq: RocketMQ, tmp_path: Path) -> None:
    """500 messages/s for 25 s, a stop and a start in the middle: no torn, missing or doubled message, equal bytes."""
    result = live_run(rocketmq, tmp_path, rate=500, seconds=25)
    assert {} == result.differences
    assert (0, 0, 0) == (result.missing, result.extra, result.doubled)
    assert result.acknowledged > 9_000, result.first_failure
    assert result.acknowledged <= result.rows <= result.acknowledged + result.unanswered, result.first_failure
