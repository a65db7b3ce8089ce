"""The pytest fixture ``rocketmq``; import it in a conftest.py to offer it to the tests there."""

from __future__ import annotations

import os

import pytest

from broker.rocketmq import RocketMQ, available


@pytest.fixture(scope="session")
def rocketmq() -> RocketMQ:
    """RocketMQ 4.9.3, or the release that ROCKETMQ_VERSION names.

    Without Java and Maven the test is skipped with the reason, or fails where CI is "true".
    """
    reason = available()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return RocketMQ(os.environ.get("ROCKETMQ_VERSION", "4.9.3"))
