"""The targets of the pages' links exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from support.anomaly_logs import CASES
from support.pages import LINK, OTHER_LINK, PAGES, anchors, blocks, name_of, prose
from support.paths import ROOT

from reput.sinks.anomalies import AnomalyCounts
from reput.source.record.message_decoder import Verdict

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


each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@each_page
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Each file exists, and so does each heading in it."""
    for target, anchor in LINK.findall(prose(page)):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), f"{target}#{anchor}"


@each_page
def test_a_link_to_another_place_is_an_address(page: Path) -> None:
    """Of the web, encrypted, with a host and without blanks; the test does not fetch it."""
    for bare, in_brackets in OTHER_LINK.findall(prose(page)):
        address = urlsplit(bare or in_brackets)
        assert address.scheme == "https", bare or in_brackets
        assert re.fullmatch(r"[\w-]+(\.[\w-]+)+", address.netloc), bare or in_brackets
        assert not re.search(r"\s", bare or in_brackets)


def test_every_page_has_its_place_in_the_site() -> None:
    """Once; the builder does not report a page that it leaves out. The site also has the pages of `make docs`."""
    nav = yaml.safe_load((ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    listed = list(leaves(nav))
    assert len(listed) == len(set(listed))
    assert {name for name in listed if not name.startswith("conf/")} == {name_of(page) for page in PAGES}
    shown = {f"{path.relative_to(ROOT)}.md" for path in (ROOT / "conf" / "deploy").iterdir() if path.is_dir()}
    assert {name for name in listed if name.startswith("conf/")} == {"conf/reput.toml.md", *shown}


def leaves(nav: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(part)


@each_page
def test_the_files_a_page_names_are_there(page: Path) -> None:
    """Modules by their path from the project's root."""
    named = re.findall(r"`(?:reput/)?((?:source|sinks|streaming|conf)/[\w/]+\.\w+)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def names_in(module: Path) -> set[str]:
    """Every function, class, method, variable and attribute that a module defines."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


@each_page
def test_the_names_that_a_page_gives_with_a_module_are_in_it(page: Path) -> None:
    """Those behind the module's path, and those said to be `of` it."""
    text = page.read_text(encoding="utf-8")
    module = r"`(?:reput/)?((?:source|sinks|streaming)/[\w/]+\.py)`"
    given = [(path, re.findall(r"\w+", words)) for path, words in re.findall(module + r"((?:,? `\w+`)+)", text)]
    given += [(path, [word]) for word, path in re.findall(r"`(\w+)` of " + module, text)]
    assert [
        (path, set(words) - names_in(ROOT / path)) for path, words in given if set(words) - names_in(ROOT / path)
    ] == []


def test_the_chinese_readme_has_what_the_english_one_has() -> None:
    """The same code and the same links to other pages, in the same order; one heading for each."""
    english, chinese = ROOT / "README.md", ROOT / "README.zh.md"
    for language in ("", "console", "python"):
        assert list(blocks(chinese, language)) == list(blocks(english, language))
    links = [[link for link in LINK.findall(prose(page)) if link[0].startswith("docs/")] for page in (english, chinese)]
    assert links[0] == links[1]
    headings = [re.findall(r"^(#+) ", prose(page), re.MULTILINE) for page in (english, chinese)]
    assert headings[0] == headings[1]


def test_the_messages_that_troubleshooting_quotes_are_in_the_sources() -> None:
    """Each part of a quoted message between two ``...`` is in the text of some literal of the program."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    symptoms = re.findall(r"^\| (.*?) \| ", page, re.MULTILINE)
    parts = [
        part.strip()
        for row in symptoms
        for code in re.findall(r"`([^`]*\.\.\.[^`]*)`", row)
        for part in code.split("...")
    ]
    said = "\n".join(literals())
    assert len(parts) > 50
    missing = [part for part in parts if part not in said]
    assert missing == [], missing


def literals() -> Iterator[str]:
    """Each text that the sources have as a literal, docstrings apart; of a formatted one, the parts between values."""
    for folder in ("source", "sinks", "streaming"):
        for path in (ROOT / folder).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                    yield node.value
