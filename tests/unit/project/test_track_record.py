"""Every test that the track record names exists, and pytest would collect it."""

from __future__ import annotations

import ast
import fnmatch

import pytest
from support.paths import ROOT
from track_record import TRACK_RECORD, Bug


@pytest.mark.parametrize("bug", TRACK_RECORD, ids=lambda bug: bug.upstream)
def test_our_tests_for_it_are_there(bug: Bug, pytestconfig: pytest.Config) -> None:
    """In a file below the paths that pytest looks at, as a function of a module."""
    paths = pytestconfig.getini("testpaths")
    assert bug.tests
    for name in bug.tests:
        file, test = name.split("::")
        assert any(fnmatch.fnmatch(f"tests/{file}", f"{path}*") for path in paths), name
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name
        assert test.startswith("test_"), name


def test_each_bug_is_told_once() -> None:
    """One line for each report of a bug."""
    assert len({bug.upstream for bug in TRACK_RECORD}) == len(TRACK_RECORD) > 20
