"""`reput tail` beside a real broker that is being written to."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.rocketmq import RocketMQ
from support.live_run import live_run

# Its short form is the live break test's, which has stops and starts, too.
pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize(("rate", "seconds"), [(200, 12), (500, 25)])
def test_a_live_store_is_followed_to_equal_files(rate: int, seconds: int, rocketmq: RocketMQ, tmp_path: Path) -> None:
    """A stop and a start in the middle of the load: no torn, missing or doubled message, equal bytes."""
    result = live_run(rocketmq, tmp_path, rate=rate, seconds=seconds)
    assert {} == result.differences
    assert (0, 0, 0) == (result.missing, result.extra, result.doubled)
    assert result.acknowledged > 0.7 * rate * seconds, result.first_failure
    assert result.acknowledged <= result.rows <= result.acknowledged + result.unanswered, result.first_failure
