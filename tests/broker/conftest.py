"""Offers the harness's fixtures to the tests in this directory."""

from broker.fixtures import rocketmq

__all__ = ["rocketmq"]
