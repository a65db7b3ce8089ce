"""`make docs`: README, CHANGELOG and docs/ as the pages of a site, and also the files below conf/ that they link to.

The copies have the same places relative to each other as the originals, so that relative links stay right. A code host
shows a configuration file or a directory; the site has a page instead: one for conf/reput.toml, and one for each
directory of conf/deploy, with a heading for each file. Only links to these are changed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from support.pages import AT_THE_TOP, LINK, anchor_of
from support.paths import ROOT

OPTIONS = Path("conf/reput.toml")
DEPLOY = Path("conf/deploy")
# The highlighter's word for a file, by the end of its name.
LANGUAGES = {".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".sh": "sh", ".service": "ini"}


def gather(work: Path) -> None:
    """Write the pages into a directory, which is emptied first."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "docs", work / "docs")
    for name in AT_THE_TOP:
        shutil.copy(ROOT / name, work)
    for page in work.rglob("*.md"):
        page.write_text(_with_links(page.read_text(encoding="utf-8"), page.relative_to(work)), encoding="utf-8")
    _write(work, OPTIONS, f"# Options\n\n{_fence(ROOT / OPTIONS)}")
    for directory in sorted(path for path in (ROOT / DEPLOY).iterdir() if path.is_dir()):
        files = (file for file in sorted(directory.rglob("*")) if file.is_file())
        shown = (f"## {file.relative_to(directory)}\n\n{_fence(file)}" for file in files)
        _write(work, directory.relative_to(ROOT), "\n".join([f"# {directory.relative_to(ROOT)}\n", *shown]))


def _write(work: Path, original: Path, text: str) -> None:
    page = work / f"{original}.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")


def _fence(file: Path) -> str:
    return f"````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8').rstrip()}\n````\n"


def _with_links(text: str, page: Path) -> str:
    """A page's text, whose links to what is below conf/ lead to the page that shows it."""

    def written_anew(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(page.parent / link["path"]))
        if not link["path"] or target.parts[0] != "conf":
            return link[0]
        shown_on, anchor = target, ""
        if target.is_relative_to(DEPLOY):
            shown_on = DEPLOY / target.relative_to(DEPLOY).parts[0]
            anchor = "" if target == shown_on else f"#{anchor_of(str(target.relative_to(shown_on)))}"
        return f"]({os.path.relpath(shown_on, page.parent)}.md{anchor})"

    return LINK.sub(written_anew, text)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="where the pages go")
    gather(parser.parse_args(words).work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
