"""README, CHANGELOG and the pages of docs/, and what Markdown means by a link, an anchor and code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from support.paths import ROOT

AT_THE_TOP: Final = ("README.md", "README.zh.md", "CHANGELOG.md")
PAGES: Final = [*(ROOT / name for name in AT_THE_TOP), *sorted((ROOT / "docs").rglob("*.md"))]
# A link or an image of this repository: the path from the page's directory, or none, and the anchor.
LINK: Final = re.compile(r"\]\((?P<path>[^)#:\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
# A link to another place, also one in angle brackets.
OTHER_LINK: Final = re.compile(r"\]\(\s*([^)#]*:[^)]*)\)|<(\w+:[^>]*)>")
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SPAN: Final = re.compile(r"`([^`]+)`")


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> Iterator[str]:
    """The blocks of code of one language; those of none are of the language ``""``."""
    yield from (code for name, code in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def spans(page: Path) -> Iterator[str]:
    """The code within sentences and tables, each on one line."""
    yield from (" ".join(code.split()) for code in _SPAN.findall(prose(page)))


def prompted(page: Path) -> Iterator[str]:
    """Yield the commands after a prompt, of a user or of root, in any block."""
    for _, code in _BLOCK.findall(page.read_text(encoding="utf-8")):
        yield from re.findall(r"^[$#] (.+)$", code, re.MULTILINE)


def anchor_of(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """Every anchor of a page."""
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)}
