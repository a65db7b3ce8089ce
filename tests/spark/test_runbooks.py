"""The runbooks of docs/operating/runbooks.md, each unchanged, on a real broker's store after its fault."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import BrokerStore
from spark.test_readme import prepared
from support.paths import ROOT

PAGE = ROOT / "docs" / "operating" / "runbooks.md"
TAIL = "reput tail --store /data/store --broker-conf /data/broker.conf --output /data/reput --available-now"
# A minute or two each, most of it Spark's starts.
pytestmark = [pytest.mark.spark, pytest.mark.slow]


class Place:
    """A copy of a real broker's store, and what a tail kept of it."""

    def __init__(self, store: BrokerStore, work: Path) -> None:
        shutil.copytree(store.root.parent, work / "broker")
        self.store = replace(store, root=work / "broker" / "store", broker_conf=work / "broker" / "broker.conf")
        self.work = work
        self.output = work / "reput"
        (work / "bin").mkdir()
        program = work / "bin" / "reput"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m reput.streaming.cli.main "$@"\n')
        program.chmod(0o755)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run one line of the page, with this place's paths."""
        line = prepared(line, self.store, self.work)
        environment = {**os.environ, "PATH": f"{self.work / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run(
            ["/bin/bash", "-c", line], capture_output=True, text=True, check=False, timeout=400, env=environment
        )

    def keep(self) -> None:
        """Let a tail keep queues, index and table."""
        done = self.run(f"{TAIL} --table /data/messages")
        assert done.returncode == 0, done.stderr


def steps(heading: str) -> Iterator[str]:
    """The commands of one runbook."""
    part = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    for block in re.findall(r"^```console\n(.*?)^```$", part, re.DOTALL | re.MULTILINE):
        yield from (line.removeprefix("$ ") for line in block.splitlines())


def a_broken_queue(place: Place) -> None:
    entries = next(path for path in sorted(place.store.root.rglob("consumequeue/*/*/*")) if path.is_file())
    with entries.open("r+b") as file:
        file.write(b"\xff" * 20)
    next((place.store.root / "index").iterdir()).unlink()
    assert place.run("reput verify --store /data/store --broker-conf /data/broker.conf").returncode == 1


def a_lost_queue(place: Place) -> None:
    place.keep()
    shutil.rmtree(place.output / "consumequeue" / "TopicA" / "0")
    done = place.run(TAIL)
    assert done.returncode == 1, done.stderr


def a_full_disk(place: Place) -> None:
    place.keep()


def a_cut_log(place: Place) -> None:
    """The records of the last segment are gone, as after a loss of power."""
    place.keep()
    last = max((place.store.root / "commitlog").iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    done = place.run(TAIL)
    assert done.returncode == 1
    assert "recover" in done.stderr


RUNBOOKS: dict[str, Callable[[Place], None]] = {
    "My broker will not start": a_broken_queue,
    "A queue is lost": a_lost_queue,
    "The disk is full": a_full_disk,
    "The log was cut": a_cut_log,
    "Move to another machine": Place.keep,
    "Upgrade": Place.keep,
}


@pytest.mark.parametrize("heading", RUNBOOKS)
def test_a_runbook(heading: str, broker_store: Callable[[str], BrokerStore], tmp_path: Path) -> None:
    """Every command ends with 0 and says nothing of a defect; what it leaves agrees with the log."""
    place = Place(broker_store("v4-plain"), tmp_path)
    RUNBOOKS[heading](place)
    lines = list(steps(heading))
    assert lines
    for line in lines:
        done = place.run(line)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), f"{line}\n{done.stdout}\n{done.stderr}"


def test_every_runbook_is_tried() -> None:
    """None is on the page alone."""
    assert re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == list(RUNBOOKS)
