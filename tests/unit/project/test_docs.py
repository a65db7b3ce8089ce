"""What the pages point to exists."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.anomaly_logs import CASES
from support.paths import ROOT
from typer.main import get_command

from reput.sinks.anomalies import AnomalyCounts
from reput.source.record.message_decoder import Verdict
from reput.streaming.cli.main import app

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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Each file is there, and each heading in it."""
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_a_page_names_are_there(page: Path) -> None:
    """Modules by their path from the project's root."""
    named = re.findall(r"`(?:reput/)?((?:source|sinks|streaming|conf)/[\w/]+\.\w+)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_can_be_given(page: Path) -> None:
    """Each command is there, with each of its options."""
    application = get_command(app)
    for line in re.findall(r"^\$ reput (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        command: Any = application
        words = shlex.split(re.sub(r"[\[\]]", " ", line))
        while hasattr(command, "commands") and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        command.make_parser(command.context_class(command)).parse_args(words)


def names_in(module: Path) -> set[str]:
    """Every function, class, method, variable and attribute that a module defines."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_names_that_a_page_gives_with_a_module_are_in_it(page: Path) -> None:
    """Those behind the module's path, and those said to be `of` it."""
    text = page.read_text(encoding="utf-8")
    module = r"`(?:reput/)?((?:source|sinks|streaming)/[\w/]+\.py)`"
    given = [(path, re.findall(r"\w+", words)) for path, words in re.findall(module + r"((?:,? `\w+`)+)", text)]
    given += [(path, [word]) for word, path in re.findall(r"`(\w+)` of " + module, text)]
    assert [
        (path, set(words) - names_in(ROOT / path)) for path, words in given if set(words) - names_in(ROOT / path)
    ] == []
