"""The pages of the site: every link of a copy leads to a page or a file that exists."""

from __future__ import annotations

from pathlib import Path

from documentation import gather
from support.pages import LINK, PAGES, anchors, name_of, prose
from support.paths import ROOT


def test_the_links_of_the_copies_lead_somewhere(tmp_path: Path) -> None:
    """To pages as to headings; what is below conf/ is a page."""
    gather(tmp_path)
    pages = sorted(tmp_path.rglob("*.md"))
    assert len(pages) > len(PAGES)
    for page in pages:
        for target, anchor in LINK.findall(prose(page)):
            path = (page.parent / target).resolve() if target else page
            assert path.is_file(), f"{page}: {target}"
            assert not anchor or anchor in anchors(path), f"{page}: {target}#{anchor}"
            assert path.suffix == ".md" or not path.is_relative_to(tmp_path / "conf")


def test_a_copy_differs_in_such_links_only(tmp_path: Path) -> None:
    """And the page of a configuration file has its unchanged text."""
    gather(tmp_path)
    for page in PAGES:
        original = page.read_text(encoding="utf-8")
        if "conf/" not in "".join(path for path, _ in LINK.findall(original)):
            assert (tmp_path / name_of(page)).read_text(encoding="utf-8") == original
    shown = (tmp_path / "conf" / "deploy" / "prometheus.md").read_text(encoding="utf-8")
    assert (ROOT / "conf/deploy/prometheus/prometheus.yml").read_text(encoding="utf-8").rstrip() in shown
