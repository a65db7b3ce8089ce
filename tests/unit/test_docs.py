"""What the pages point to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from anomaly_logs import CASES

from reput.sinks.anomalies import AnomalyCounts
from reput.source.record.message_decoder import Verdict

ROOT = Path(__file__).parents[2]
TESTS = {
    f"{path.relative_to(ROOT / 'tests')}": set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    for path in (ROOT / "tests").rglob("test_*.py")
}


@pytest.mark.parametrize("page", ["anomalies.md", "articles.md", "promises.md", "security.md"])
def test_the_tests_a_page_names_are_there(page: str) -> None:
    """Each `file::test` is in that file, each lone test name in one of them, each file in the tree."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"([\w/]*test_\w+\.py)(?:::(test_\w+))?", text)
    lone = set(re.findall(r"`(test_\w+)`", text))
    assert named
    for file, test in ((name.removeprefix("tests/"), test) for name, test in named):
        paths = [path for path in TESTS if path == file or path.endswith(f"/{file}")]
        assert len(paths) == 1, file
        assert not test or test in TESTS[paths[0]], f"{file}::{test}"
    assert lone <= set().union(*TESTS.values())


def test_the_table_of_anomalies_is_whole() -> None:
    """Every case of the broker's test, every count and every bad verdict has its place in the table."""
    text = (ROOT / "docs" / "anomalies.md").read_text(encoding="utf-8")
    words = set(re.findall(r"`([^`\s]+)`", text))
    good = {Verdict.MESSAGE, Verdict.BLANK}
    assert CASES.keys() - {"Sound"} <= words
    assert set(vars(AnomalyCounts())) <= words
    assert {verdict.name for verdict in Verdict if verdict not in good} <= words
