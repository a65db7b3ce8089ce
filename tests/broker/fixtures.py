"""The pytest fixtures ``rocketmq`` and ``release``; import them in a conftest.py to offer them to the tests there."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest

from broker.artifacts import STORE
from broker.release import Release
from broker.rocketmq import RocketMQ, available

_WHOLE = ("4.9.3", "5.5.0")


@pytest.fixture(scope="session")
def release() -> Callable[[str], RocketMQ]:
    """Give any release by its version, prepared once a run.

    Without Java and Maven the test is skipped with the reason, or fails where CI is "true".
    """
    _check_tools()
    return functools.cache(RocketMQ)


def _check_tools() -> None:
    reason = available()
    if reason is not None:
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def judge() -> Callable[[str], Release]:
    """Give the message store of any release by its version, prepared once a run; skipped or failed as `release`.

    Of the releases whose brokers other tests start, these are taken.
    """
    _check_tools()
    return functools.cache(lambda version: RocketMQ(version) if version in _WHOLE else Release(version, part=STORE))


@pytest.fixture(scope="session")
def rocketmq(release: Callable[[str], RocketMQ]) -> RocketMQ:
    """RocketMQ 4.9.3, or the release that ROCKETMQ_VERSION names; skipped or failed as ``release``."""
    return release(os.environ.get("ROCKETMQ_VERSION", "4.9.3"))
