"""The status page in a real browser: what it shows, in light and dark, and that no text becomes code."""

from __future__ import annotations

import html
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import ask
from support.seen_log import SeenLog

from reput.streaming.status.batch_report import BatchReport, LogEnd
from reput.streaming.status.publisher import StatusPublisher
from reput.streaming.status.run_state import RunState

pytestmark = pytest.mark.deploy

HOSTILE = "</td><img src=x onerror=document.title='owned'><script>document.title='owned'</script>"


def run_of(broker: str) -> RunState:
    """Twenty minutes of a run that has left something out."""
    now = [1_000_000.0]
    state = RunState(broker, {"store": HOSTILE, "options": {"onDamage": HOSTILE}}, clock=lambda: now[0])
    for query in ("logic", "table"):
        state.on_running(query, 0)
    for number in range(240):
        now[0] += 5.0
        phases = {"read": 0.01, "write": 0.003, "sync": 0.002}
        state.on_batch(BatchReport("logic", 1_000 * number, 1_000 * number + 1_000, 40, 0.015, phases=phases))
        if number % 2:
            state.on_batch(BatchReport("table", 1_000 * number - 1_000, 1_000 * number + 1_000, 80, 0.2))
        log_end = LogEnd(1_000 * number + 1_700)
        state.look(SeenLog(log_end, dict.fromkeys(range(0, log_end.offset, 1_000), round(1_000 * now[0] - 1_700))))
    state.on_batch(BatchReport("logic", 240_000, 240_100, 1, 0.1, quarantined=Counter(HOSTILE_TOPIC=1)))
    state.on_finding("logic", f"[240000, 240100), quarantined: 1 HOSTILE_TOPIC of {HOSTILE}")
    return state


@pytest.fixture
def page() -> Iterator[str]:
    runs = [(run_of("broker-a"), Path("nowhere")), (run_of(HOSTILE), Path("nowhere"))]
    with StatusPublisher(runs, {"versions": {"reput": "1.2.3"}}, host="127.0.0.1", port=0) as publisher:
        yield f"http://127.0.0.1:{publisher.port}/"


def text_of(document: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", document)))


def test_it_says_the_state_the_lags_and_what_was_found(page: str) -> None:
    """In words, of all brokers and of the one that the address names; every text of a producer as text."""
    document = ask("--dump-dom", f"{page}#broker-a").stdout
    assert "owned" not in re.findall(r"<title>(.*?)</title>", document)[0]
    assert "<img" not in document
    assert len(re.findall(r"<script", document)) == 1
    text = text_of(document)
    for words in (
        "2 degraded broker state queues: oldest missing table: oldest missing msg/s why",
        "broker-a degraded 1.7 s 1.7 s 8 0.0 s ago, logic: [240000, 240100), quarantined: 1 HOSTILE_TOPIC",
        "degraded broker-a 0.0 s ago, logic: [240000, 240100), quarantined: 1 HOSTILE_TOPIC",
        "queues and index running",
        "message table running",
        "behind 700 B oldest missing 1.7 s",
        "per s, last minute 8 ",
        "bytes behind, last 19.9 min most 1.7 kB",
        "reput 1.2.3",
        "read 0.010, write 0.003, sync 0.002",
        HOSTILE,
    ):
        assert words in text, words
    paths = re.findall(r'<path d="M([^"]*)"', document)
    assert len(paths) == 4  # the card of the other one is closed
    assert all(len(path.split("L")) > 100 for path in paths)


@pytest.mark.parametrize("is_dark", [False, True])
def test_it_can_be_read_in_light_and_dark(page: str, is_dark: bool, tmp_path: Path) -> None:
    """The ground is light or dark, and the picture has much on it."""
    picture = tmp_path / "page.ppm"
    shot = tmp_path / "page.png"
    ask(
        *("--hide-scrollbars", "--window-size=1100,900", f"--screenshot={shot}"),
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        page,
    )
    subprocess.run(["convert", str(shot), str(picture)], check=True)
    header, pixels = picture.read_bytes().split(b"255\n", 1)
    assert header.split()[1:3] == [b"1100", b"900"]
    ground = sum(pixels[:3]) / 3
    assert ground < 64 if is_dark else ground > 192
    colours = {pixels[at : at + 3] for at in range(0, len(pixels), 3)}
    assert len(colours) > 200
