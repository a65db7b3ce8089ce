"""The pytest fixtures ``rocketmq`` and ``release``; import them in a conftest.py to offer them to the tests there."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest

from broker.rocketmq import RocketMQ, available


@pytest.fixture(scope="session")
def release() -> Callable[[str], RocketMQ]:
    """Give any release by its version, prepared once a run.

    Without Java and Maven the test is skipped with the reason, or fails where CI is "true".
    """
    reason = available()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return functools.cache(RocketMQ)


@pytest.fixture(scope="session")
def rocketmq(release: Callable[[str], RocketMQ]) -> RocketMQ:
    """RocketMQ 4.9.3, or the release that ROCKETMQ_VERSION names; skipped or failed as ``release``."""
    return release(os.environ.get("ROCKETMQ_VERSION", "4.9.3"))
