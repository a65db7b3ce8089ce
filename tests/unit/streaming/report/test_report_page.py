"""The page of `reput report`: what producers wrote is text, nothing is asked for, colours can be read."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from pathlib import Path

import pytest
from support.report_page import ReportPage
from support.report_tables import HOSTILE, hostile_table, row_of, write_rows

from reput.sinks.table.columns import PROGRESS
from reput.sinks.table.consumption import ConsumptionTable, Move
from reput.streaming.report import charts
from reput.streaming.report import page as page_module
from reput.streaming.report.charts import Bar
from reput.streaming.report.figures import Selection, figures_of
from reput.streaming.report.markup import compact, harmless, milliseconds, name_text, share
from reput.streaming.report.page import page_of

PAGE_BYTES_MAX = 1_000_000


def words(text: str) -> set[str]:
    return set(text.split())


# The elements of a page. None of these runs, loads or sends anything.
TAGS = words(
    """html head meta title style body main header h1 h2 p strong b dl div dt dd section ul li span time figure
    figcaption svg path text details summary table caption thead tbody tr th td bdi footer"""
)
ATTRIBUTES = words(
    """lang charset http-equiv content name class tabindex role aria-label scope viewbox d x y transform text-anchor
    stroke-width fill"""
)


@pytest.fixture(scope="module", params=[10, 10_000])
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a hostile table, with a hostile heading."""
    table = hostile_table(tmp_path_factory.mktemp("hostile") / "table", request.param)
    names = [name for name in HOSTILE if "\ud800" not in name]
    moves = [Move(name, names[0], 0, 0, 5, 1, 2 + number, PROGRESS) for number, name in enumerate(names)]
    ConsumptionTable(table, "b", 1000).append(moves, 1)
    return page_of(figures_of(table, Selection()), HOSTILE[0] + HOSTILE[3])


def test_hostile_texts_stay_texts(text: str) -> None:
    """No tag and no attribute but the page's own, no character that acts; each name is in a table and in a chart."""
    page = ReportPage(text)
    assert {tag for tag, _ in page.tags} <= TAGS
    assert {name for _, attributes in page.tags for name in attributes} <= ATTRIBUTES
    for _, attributes in page.tags:
        assert "url(" not in "".join(filter(None, attributes.values()))
    for character in set(text) - {"\n"}:
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}, hex(ord(character))
        assert ord(character) & 0xFFFE != 0xFFFE
        assert not 0xFDD0 <= ord(character) <= 0xFDEF
    shown = [row[0] for row in page.tables["Topics by bytes"][1:]]
    topics = HOSTILE if "10,000 topics" not in page.text else HOSTILE[:5]
    for name in topics[:9]:
        assert name_text(name, 72) in shown
        assert name_text(name, 115) in page.chart_texts
    assert harmless(HOSTILE[0])[:40] in page.text


def test_it_is_small_and_says_what_is_not_shown(text: str) -> None:
    """The numbers of the others together make the sum whole."""
    assert len(text.encode()) < PAGE_BYTES_MAX / 3
    page = ReportPage(text)
    rows = page.rows("Topics by bytes")
    assert f"{sum(row['bytes'] for row in rows):,} bytes" == page.tiles["Size in the log"][1]
    assert f"{sum(row['messages'] for row in rows):,}" == page.tiles["Messages"][0]
    if page.tiles["Topics"][0] == "10,000":
        assert len(rows) == 21
        assert rows[-1]["topic"] == "the other 9,980 together"
        assert page.chart_texts.count("the other 9,990 together") == 2
    else:
        assert len(rows) == 10


def test_no_script_no_network_no_style_but_its_own(text: str) -> None:
    """The policy allows this very style sheet, and nothing else, and the page has no style in an attribute."""
    page = ReportPage(text)
    (policy,) = (each["content"] for tag, each in page.tags if each.get("http-equiv") == "Content-Security-Policy")
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert not re.findall(r"url\(|@import|https?:", style)
    assert not [each for _, each in page.tags if {"style", "id", "href", "src"} & set(each)]


def test_a_screen_reader_finds_its_way(text: str) -> None:
    """One heading, sections under it, a language, a caption for each table, words for each chart."""
    page = ReportPage(text)
    tags = [tag for tag, _ in page.tags]
    assert (tags.count("h1"), tags.count("main")) == (1, 1)
    assert len([data for around, data in page.texts if around == ("html", "head", "title")]) == 1
    assert tags.index("h1") < tags.index("h2")
    assert ("html", {"lang": "en"}) in page.tags
    assert tags.count("table") == tags.count("caption") == len(page.tables)
    charts = [each for tag, each in page.tags if tag == "svg"]
    assert len(charts) >= 10
    for each in charts:
        assert each["role"] == "img"
        assert len(str(each["aria-label"])) > 30
    assert all(each["scope"] == "col" for tag, each in page.tags if tag == "th")


@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_page_of_nothing_says_so(is_filtered: bool, tmp_path: Path) -> None:
    """Of a table without rows, and of a selection of none of them."""
    table = write_rows(tmp_path / "table", [row_of()] if is_filtered else [])
    page = ReportPage(page_of(figures_of(table, Selection("*", since_ms=1 << 42) if is_filtered else Selection())))
    why = "No message of the table is in this selection" if is_filtered else "The table is empty"
    assert f"{why}: there is nothing to show." in page.text
    assert page.tiles["Messages"][0] == "0"
    assert "How this page was made" in page.text
    assert not page.tables


def test_one_message(tmp_path: Path) -> None:
    """The smallest page that has everything."""
    page = ReportPage(page_of(figures_of(write_rows(tmp_path / "table", [row_of()]), Selection()), "One"))
    assert "1 message (100 B) in 1 topic was stored by a RocketMQ broker" in page.text
    assert "Nothing needs to be looked into." in page.text
    assert page.rows("Sizes in bytes")[0]["median"] == 100


def luminance(colour: str) -> float:
    """As WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_told_apart() -> None:
    """By WCAG 2: texts 4.5 to 1, bars 3 to 1, on either ground, in light, in dark and on paper."""
    css = Path(page_module.__file__).with_name("page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    schemes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in blocks]
    contrasts = {"text": 7, "series": 3, "second": 3, **dict.fromkeys(("soft", "grave", "note", "good"), 4.5)}
    assert len(schemes) == 3
    for scheme in schemes:
        assert scheme.keys() == schemes[0].keys()
        for ground in ("ground", "card"):
            for name, least in contrasts.items():
                pair = sorted((luminance(scheme[name]), luminance(scheme[ground])), reverse=True)
                assert (pair[0] + 0.05) / (pair[1] + 0.05) >= least, (name, ground)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (compact(999_999), "999,999"),
        (compact(1_000_000), "1 million"),
        (compact(12_345_678), "12.3 million"),
        (compact(7 * 10**15), "7,000 trillion"),
        (share(1, 3), "33 %"),
        (share(1, 10**6), "< 0.1 %"),
        (share(999_999, 10**6), "99.9 %"),
        (share(5, 5), "100 %"),
        (share(0, 0), "0 %"),
        (milliseconds(-3), "-3 ms"),
        (milliseconds(90_061_000), "25.0 h"),
        (milliseconds(400_000_000_000), "4,630 days"),
        (name_text(None, 9), "(none)"),
        (name_text("", 9), "(empty)"),
        (name_text("abcdefghij", 9), "abcdefgh\N{HORIZONTAL ELLIPSIS}"),
        (name_text("\N{HANGUL SYLLABLE GAG}" * 5, 9), "\N{HANGUL SYLLABLE GAG}" * 4 + "\N{HORIZONTAL ELLIPSIS}"),
    ],
)
def test_words_for_people(shown: str, expected: str) -> None:
    """Short, and never more exact or more round than the number is."""
    assert shown == expected


@pytest.mark.parametrize("most", [1, 999, 500_000, 12_500_000, 1_250_000_000, 10**15])
def test_labels_of_large_numbers_are_inside_their_chart(most: int) -> None:
    """Each ends at the scale and begins behind the picture's edge, at 6 pixels a letter at least."""
    for chart in charts.by_step("sizes", [Bar(most, "")], ["1 B", "2 B"], lambda value: compact(round(value))):
        labels = [each for each in chart.iter("text") if each.get("text-anchor") == "end"]
        assert len(labels) > 1
        for label in labels:
            assert label.text is not None
            assert float(label.attrib["x"]) >= 6 * len(label.text)
