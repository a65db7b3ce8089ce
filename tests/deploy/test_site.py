"""The documentation's site in a real browser: every page at two widths, what it loads, and the search."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
import time
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

pytestmark = pytest.mark.deploy

WIDTHS = (420, 1400)
#: A page beside the site, which opens each of the site's pages in a frame and writes down what it sees.
LOOKS = """<!doctype html><pre></pre><script>
const seen = {pages: {}, other_hosts: [], found: null};
// The browser's time stands still while it waits for a server, and runs ahead of the search's worker otherwise.
const wait = () => fetch("/wait");
async function open(path, width) {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = path; document.body.append(frame); await loaded;
  return frame;
}
function sticksOut(page) {
  const scrolls = e => e &&
    (["auto", "scroll", "hidden"].includes(page.getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  return [...page.document.querySelectorAll("article *")]
    .filter(e => e.getBoundingClientRect().right > page.innerWidth + 1 && !scrolls(e.parentElement))
    .map(e => e.tagName + ": " + e.textContent.slice(0, 60));
}
(async () => {
  for (const path of PAGES) for (const width of WIDTHS) {
    const frame = await open(path, width), page = frame.contentWindow;
    seen.pages[path + " " + width] = {
      scrolls: page.document.documentElement.scrollWidth > page.innerWidth, sticks_out: sticksOut(page),
      broken: [...page.document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)};
    seen.other_hosts.push(...page.performance.getEntriesByType("resource").map(e => e.name)
      .filter(url => new URL(url).host != location.host));
    frame.remove();
  }
  const page = (await open("index.html", 1400)).contentWindow.document;
  page.querySelector(".md-search__button").click();
  // The search has a root of its own.
  const roots = () => [...page.querySelectorAll("*")].map(e => e.shadowRoot).filter(root => root);
  const asked = selector => roots().flatMap(root => [...root.querySelectorAll(selector)]);
  for (let i = 0; i < 100 && !asked("input").length; i++) await wait();
  const input = asked("input")[0];
  input.value = "retryForMs"; input.dispatchEvent(new Event("input", {bubbles: true}));
  for (let i = 0; i < 100 && !asked("a[href*=runbooks]").length; i++) await wait();
  seen.found = asked("a").map(a => a.getAttribute("href"));
})().catch(error => seen.error = String(error)).finally(() =>
  document.querySelector("pre").textContent = JSON.stringify(seen));
</script>"""


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built as `make docs` builds it."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / ".work" / "site"


@pytest.fixture(scope="module")
def seen(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The browser's observations."""
    browser = shutil.which("chromium")
    assert browser is not None, "no chromium: make deploy-check installs it"
    served = tmp_path_factory.mktemp("served") / "site"
    shutil.copytree(site, served)
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
    looks = LOOKS.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(WIDTHS))
    (served / "looks.html").write_text(looks, encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        command += [f"--user-data-dir={served.parent / 'profile'}", "--virtual-time-budget=120000", "--dump-dom"]
        address = f"http://127.0.0.1:{server.server_port}/looks.html"
        done = subprocess.run([*command, address], check=True, capture_output=True, text=True, timeout=300)
        server.shutdown()
    found = re.search(r"<pre>(.+?)</pre>", done.stdout, re.DOTALL)
    assert found, "the page that looks did not come to its end"
    saw: dict[str, Any] = json.loads(html.unescape(found[1]))
    assert "error" not in saw, saw["error"]
    assert len(saw["pages"]) == len(pages) * len(WIDTHS)
    return saw


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing of it; it takes a moment for ``/wait``."""

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path != "/wait":
            return super().do_GET()
        time.sleep(0.05)
        self.send_response(HTTPStatus.NO_CONTENT)
        return self.end_headers()

    def log_message(self, *words: object) -> None:
        """No line a request."""


def test_nothing_is_wider_than_a_page(seen: dict[str, Any]) -> None:
    """Wide tables and long lines of code scroll inside it; each picture is loaded."""
    sound = {"scrolls": False, "sticks_out": [], "broken": []}
    assert {name: page for name, page in seen["pages"].items() if page != sound} == {}


def test_no_page_asks_another_host(seen: dict[str, Any], site: Path) -> None:
    """For no font, script, style or picture, and by no word in its text that a browser follows by itself."""
    assert seen["other_hosts"] == []
    loads = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"'> ]+)")
    assert {url for page in site.rglob("*.html") for url in loads.findall(page.read_text(encoding="utf-8"))} == set()
    foreign = re.compile(r"url\([\"']?(?:https?:)?//|@import")
    assert [sheet.name for sheet in site.rglob("*.css") if foreign.search(sheet.read_text(encoding="utf-8"))] == []


def test_the_search_finds_an_option(seen: dict[str, Any]) -> None:
    """On the pages that speak of it."""
    assert any("runbooks.html" in found for found in seen["found"]), seen["found"]
