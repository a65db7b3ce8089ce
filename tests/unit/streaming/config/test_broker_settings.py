"""Which broker wrote a store, and what follows from that for what tasks compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.streaming.config.broker import broker_version, logic_needs
from reput.streaming.config.pipeline import load_config


@pytest.mark.parametrize(
    ("left", "option", "expected"),
    [
        ((), "auto", (4, 9, 3)),
        (("abort",), "auto", (4, 9, 3)),
        (("abort.bak",), "auto", (5, 3, 3)),
        (("abort.bak", "rocksdbstore"), "auto", (5, 5, 0)),
        (("abort.bak", "rocksdbstore"), "4.9.8", (4, 9, 8)),
        ((), "5.10.0", (5, 10, 0)),
    ],
)
def test_version_of_a_store(tmp_path: Path, left: tuple[str, ...], option: str, expected: tuple[int, int, int]) -> None:
    """A release's own files in a store show the version; the option beats them."""
    for name in left:
        (tmp_path / name).touch()
    assert broker_version(option, tmp_path) == expected


@pytest.mark.parametrize(
    ("version", "index_tags", "stays_alone"),
    [("4.9.3", False, False), ("5.1.3", False, False), ("5.2.0", False, True), ("5.4.0", True, True)],
)
def test_what_a_version_does(tmp_path: Path, version: str, index_tags: bool, stays_alone: bool) -> None:
    """Tags are keys since 5.4.0; system topics go to no further queue since 5.2.0."""
    config = load_config(tmp_path, overrides=[f"brokerVersion={version}", "enableMultiDispatch=true"])
    needs = logic_needs(config, tmp_path)
    assert needs.multi_dispatch is not None
    assert (needs.index_tags, not needs.multi_dispatch.takes("rmq_sys_X")) == (index_tags, stays_alone)
