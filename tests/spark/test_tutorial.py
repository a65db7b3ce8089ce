"""docs/tutorial.md, run from its first command to its last; each prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pages import blocks
from support.paths import DATA, ROOT

PAGE = ROOT / "docs" / "tutorial.md"
#: Numbers that another run has otherwise: times, durations, speeds.
_VARIES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z|\d[\d.,]*(?= (?:s|messages/s|MB/s)\b)|in \d+ batch(?:es)?")
#: A command after which the exit code is 1: it found something.
_FINDS = re.compile(r"reput (?:verify --store broken --broker-conf broker.conf|doctor .*)$")

pytestmark = [pytest.mark.spark, pytest.mark.long]


def steps() -> Iterator[tuple[str, list[str]]]:
    """Each command of the page, and the lines shown under it."""
    for block in blocks(PAGE, "console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = step.splitlines()
            yield command, shown


def missing(shown: list[str], printed: str) -> list[str]:
    """Lines of the page that a command did not print, in this order; ``...`` stands for any lines."""
    rest = iter(_VARIES.sub("N", line) for line in printed.splitlines())
    return [line for line in shown if line != "..." and not any(_VARIES.sub("N", line) in each for each in rest)]


def test_the_tutorial(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "reput"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m reput.streaming.cli.main "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    place, ran = ROOT, 0
    for command, shown in steps():
        line = command.replace("/tmp/tutorial", f"{tmp_path}/tutorial").replace("tests/data", str(DATA))
        if line.startswith("cd "):
            place = Path(line.removeprefix("cd "))
            continue
        done = subprocess.run(
            ["/bin/bash", "-c", line],
            cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        said = (done.stdout + done.stderr).replace(f"{tmp_path}/tutorial", "/tmp/tutorial")
        assert done.returncode == (1 if _FINDS.match(command) else 0), f"{command}\n{said}"
        assert missing(shown, said) == [], f"{command}\n{said}"
        ran += command.startswith("reput ")
    assert ran > 10
