"""The contents of a page of `reput report`: its tables by caption, its tiles, and every tag and text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

VOID = {"meta"}


class ReportPage(HTMLParser):
    """A page taken apart; its tags must be balanced.

    Attributes
    ----------
    tables
        By caption: rows of texts, the head first.
    tiles
        By what they tell: the large text and the small one.
    texts
        Each text of the page with the tags around it, the innermost last; those of the style sheet are left out.
    tags
        Each start tag with its attributes.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tiles: dict[str, list[str]] = {}
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self._tile: list[str] = []
        assert text.startswith("<!DOCTYPE html>\n")
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not data.strip() or "style" in self._open:
            return
        self.texts.append((tuple(self._open), data))
        if "caption" in self._open:
            assert data not in self.tables
            self.tables[data] = self._rows
        elif "td" in self._open or "th" in self._open:
            self._rows[-1][-1] += data
        elif "dt" in self._open and "main" in self._open and "footer" not in self._open:
            self._tile = self.tiles.setdefault(data, [])
        elif "dd" in self._open and "footer" not in self._open:
            self._tile.append(data)

    @property
    def text(self) -> str:
        """All that is read, without the charts."""
        words = "".join(data if "svg" not in tags else "" for tags, data in self.texts)
        return words.replace("\N{NO-BREAK SPACE}", " ")

    @property
    def chart_texts(self) -> list[str]:
        """The texts of the charts for a desk and a phone, and those that the mouse shows."""
        return [data for tags, data in self.texts if "svg" in tags]

    def rows(self, caption: str) -> list[dict[str, Any]]:
        """The rows of a table by its head; a number is one."""
        head, *rows = self.tables[caption]
        return [dict(zip(head, map(_value, row), strict=True)) for row in rows]


def _value(text: str) -> str | int:
    digits = text.replace(",", "")
    return int(digits) if digits.isascii() and digits.isdecimal() else text
