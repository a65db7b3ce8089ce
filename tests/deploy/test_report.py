"""`reput report` in a real browser: as wide as a phone and a desk, light and dark, with 10 and 10,000 topics."""

from __future__ import annotations

import html
import json
import re
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import ask
from support.command_line import run_reput
from support.report_page import ReportPage
from support.report_tables import hostile_table

from reput.streaming.report import page as page_module

pytestmark = pytest.mark.deploy

PHONE, DESK = 390, 1280
WIDTHS = (PHONE, 768, 861, DESK)
TOPICS = (10, 10_000)
#: A page beside the reports, which opens each in frames of several widths and writes down what it sees.
LOOKS = """<!doctype html><link rel="icon" href="data:,"><pre></pre><script>
const seen = {pages: {}, loaded: []};
async function look(path, width, opened) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900; frame.style.border = 0;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = path; document.body.append(frame); await loaded;
  const page = frame.contentWindow, root = page.document;
  root.querySelectorAll("details").forEach(each => each.open = opened);
  const scrolls = e => e && (page.getComputedStyle(e).overflowX == "auto" || scrolls(e.parentElement));
  const hidden = e => e.closest(".hidden") || !e.getClientRects().length;
  const wide = [...root.querySelectorAll("body *")]
    .filter(e => !hidden(e) && !scrolls(e.parentElement) && !e.closest("svg"))
    .filter(e => e.getBoundingClientRect().right > page.innerWidth + 1)
    .map(e => e.tagName + ": " + e.textContent.slice(0, 60));
  const crossing = [], outside = [];
  let charts = 0;
  for (const svg of root.querySelectorAll("svg")) {
    if (hidden(svg)) continue;
    charts++;
    const edge = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(e => [e.textContent, e.getBoundingClientRect()]);
    for (const [text, box] of texts)
      if (box.left < edge.left - 1 || box.right > edge.right + 1 || box.bottom > edge.bottom + 1) outside.push(text);
    texts.forEach(([text, a], i) => texts.slice(i + 1).forEach(([other, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
        crossing.push(text + " | " + other);
    }));
  }
  seen.pages[path + " " + width + " " + opened] = {
    width: page.innerWidth, scrolls: root.documentElement.scrollWidth > page.innerWidth,
    wide, outside, crossing, charts, title: root.title,
    small: [...root.querySelectorAll("svg text")].filter(e => !hidden(e))
      .filter(e => e.getBoundingClientRect().height < 9).map(e => e.textContent)};
  seen.loaded.push(...page.performance.getEntriesByType("resource").map(e => e.name));
  frame.remove();
}
(async () => {
  for (const path of PAGES) for (const width of WIDTHS) for (const opened of [false, true])
    await look(path, width, opened);
})().catch(error => seen.error = String(error)).finally(() =>
  document.querySelector("pre").textContent = JSON.stringify(seen));
</script>"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The pages of tables with these numbers of topics, made by the command."""
    root, made = tmp_path_factory.mktemp("reports"), {}
    for topics in TOPICS:
        table, page = hostile_table(root / f"table-{topics}", topics), root / "pages" / f"report-{topics}.html"
        page.parent.mkdir(exist_ok=True)
        run_reput(["report", "--table", str(table), "--html", str(page)])
        made[topics] = page
    return made


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, *words: object) -> None:
        """No line a request."""


@pytest.fixture(scope="module")
def seen(reports: dict[int, Path]) -> dict[str, Any]:
    """The browser's observations."""
    root = reports[TOPICS[0]].parent
    names = json.dumps([page.name for page in reports.values()])
    (root / "looks.html").write_text(LOOKS.replace("PAGES", names).replace("WIDTHS", json.dumps(WIDTHS)))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        document = ask("--dump-dom", f"http://127.0.0.1:{server.server_port}/looks.html").stdout
        server.shutdown()
    found = re.search(r"<pre>(.+?)</pre>", document, re.DOTALL)
    assert found, "the page that looks did not come to its end"
    saw: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert "error" not in saw, saw["error"]
    assert len(saw["pages"]) == len(TOPICS) * len(WIDTHS) * 2
    return saw


def test_nothing_is_wider_than_the_screen(seen: dict[str, Any]) -> None:
    """On no width, whether the numbers of the charts are open or not; wide tables scroll by themselves."""
    for name, page in seen["pages"].items():
        assert page["width"] == int(name.split()[1])
        assert (page["scrolls"], page["wide"]) == (False, []), name


def test_the_texts_of_charts_can_be_read(seen: dict[str, Any]) -> None:
    """None is outside its chart, across another one, or too small; each chart appears once."""
    for name, page in seen["pages"].items():
        assert (page["outside"], page["crossing"], page["small"]) == ([], [], []), name
        assert page["charts"] == 6, name


def test_it_loads_nothing_and_runs_nothing(seen: dict[str, Any], reports: dict[int, Path]) -> None:
    """Nothing but itself, no text of a producer became code, and the browser has nothing to complain of."""
    assert seen["loaded"] == []
    assert {page["title"] for page in seen["pages"].values()} == {"Contents of this message table"}
    for page in reports.values():
        done = ask("--enable-logging=stderr", "--dump-dom", page.as_uri())
        assert "owned" not in re.findall(r"<title>(.*?)</title>", done.stdout)[0]
        assert not re.findall(r"<(?:script|img|iframe|link)\b", done.stdout)
        assert "CONSOLE" not in done.stderr


def test_the_browser_would_complain(reports: dict[int, Path], tmp_path: Path) -> None:
    """Of a script, which the page's policy forbids."""
    page = tmp_path / "page.html"
    page.write_text(reports[10].read_text().replace("<main>", "<main><script>document.title='owned'</script>"))
    done = ask("--enable-logging=stderr", "--dump-dom", page.as_uri())
    assert "CONSOLE" in done.stderr
    assert "<title>owned" not in done.stdout


@pytest.mark.parametrize("topics", TOPICS)
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("is_dark", [False, True])
def test_it_can_be_seen_in_light_and_dark(
    topics: int, width: int, is_dark: bool, reports: dict[int, Path], tmp_path: Path
) -> None:
    """The ground, the texts and the bars have the colours of the scheme."""
    shot, picture = tmp_path / "page.png", tmp_path / "page.ppm"
    ask(
        *("--hide-scrollbars", f"--window-size={width},3000", f"--screenshot={shot}"),
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        reports[topics].as_uri(),
    )
    subprocess.run(["convert", str(shot), str(picture)], check=True)
    header, pixels = picture.read_bytes().split(b"255\n", 1)
    assert header.split()[1:3] == [str(width).encode(), b"3000"]
    css = Path(page_module.__file__).with_name("page.css").read_text()
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[1 if is_dark else 0]
    colours = {name: bytes.fromhex(value) for name, value in re.findall(r"--(\w+): #([0-9a-f]{6})", block)}
    assert pixels[:3] == colours["ground"]
    dots = [pixels[at : at + 3] for at in range(0, len(pixels), 3)]
    for name, least in {
        "card": 100_000,
        "series": 1_500,
        "second": 300,
        "text": 500,
        "soft": 300,
        "line": 1_000,
    }.items():
        assert dots.count(colours[name]) > least, name


@pytest.mark.parametrize("topics", TOPICS)
def test_it_can_be_printed(topics: int, reports: dict[int, Path], tmp_path: Path) -> None:
    """Black on white also where the screen is dark, nothing cut off at a sheet's edge, charts as wide as the sheet."""
    import pypdfium2

    printed = tmp_path / "page.pdf"
    paper = ("--no-pdf-header-footer", f"--print-to-pdf={printed}", "--blink-settings=preferredColorScheme=0")
    ask(*paper, reports[topics].as_uri())
    sheets = [page.render(scale=2).to_numpy()[:, :, :3] for page in pypdfium2.PdfDocument(printed)]
    assert 3 <= len(sheets) <= 8
    first = sheets[0]
    assert (first == 255).all(axis=2).mean() > 0.8
    wide = first.shape[1]
    inked = [np.flatnonzero((sheet < 250).any(axis=(0, 2))) for sheet in sheets]
    left, right = min(columns[0] for columns in inked), max(columns[-1] for columns in inked)
    assert left > 0.04 * wide
    assert abs(left - (wide - 1 - right)) <= 3, "what frames a section is cut off on one side"
    red, _, blue = np.moveaxis(first.astype(int)[:, :, ::-1], 2, 0)
    bars = np.flatnonzero((blue - red > 120).any(axis=0))
    assert bars[-1] - bars[0] > 0.7 * wide


def test_what_the_browser_reads_is_what_was_written(reports: dict[int, Path]) -> None:
    """Its parser repairs nothing: the same tags, attributes and texts."""
    page = reports[10].read_text()
    written, read = ReportPage(page), ReportPage(as_written(ask("--dump-dom", reports[10].as_uri()).stdout))
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in written.tags]
    assert [data for _, data in read.texts] == [data for _, data in written.texts]
    assert read.tables == written.tables


def as_written(dumped: str) -> str:
    """The browser's text of a document, which begins without the line end."""
    return dumped.replace("<!DOCTYPE html>", "<!DOCTYPE html>\n", 1)
