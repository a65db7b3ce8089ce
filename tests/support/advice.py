"""Does what `reput doctor` advises, command by command, and judges what is left."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from support.command_line import invoke, run_reput
from support.paths import ROOT

from reput.sinks.formats.consume_queue import ENTRY, is_pre_blank, is_written
from reput.source.log.mapped_file_queue import MappedFile
from reput.source.log.range_reader import DecodeOptions, scan_windows

# More rounds than any advice needs; one that is given twice ends it before.
ROUNDS_MAX = 8
Entry = tuple[str, int, int, int]


def told(home: Path, release: str) -> dict[str, Any]:
    """Return the output of `reput doctor` for `home`'s store and one release."""
    words = ["doctor", "--store", str(home / "store"), "--broker-conf", str(home / "broker.conf"), "--json"]
    done = invoke([*words, "--release", release])
    assert done.exit_code in (0, 1), done.output
    return dict(json.loads(done.stdout)["releases"][release])


def execute_advice(home: Path, release: str, *, in_shell: bool = False) -> list[str]:
    """Ask doctor, do what it advises, and ask again, until the store is harmless or it has no more advice.

    Return all commands that were run. Repeated advice, or a command that fails, is an error. `in_shell` runs every
    command in a shell, unchanged; otherwise those of `reput` run in this process, which is faster.
    """
    return follow_advice(home, release, in_shell=in_shell)[0]


def follow_advice(home: Path, release: str, *, in_shell: bool = False) -> tuple[list[str], int]:
    """Do `execute_advice`; also return how many entries the commands would move, by the advice."""
    given: list[list[str]] = []
    done: list[str] = []
    foretold = 0
    for _ in range(ROUNDS_MAX):
        advice = [step for step in told(home, release)["advice"] if step["command"] is not None]
        advice = [step for step in advice if not step["command"].startswith("reput doctor")]
        steps = [step["command"] for step in advice]
        if not steps:
            return done, foretold
        assert steps not in given, f"the same advice again: {steps}"
        given.append(steps)
        for step in advice:
            _run(step["command"], in_shell=in_shell)
            done.append(step["command"])
            foretold += sum(queue["entries"] for queue in step["moving"])
    raise AssertionError(f"no end of advice: {given}")


def lost_and_moved(before: set[Entry], after: set[Entry]) -> tuple[set[Entry], set[Entry]]:
    """Which entries are gone, and which lead to their record from another queue offset."""
    gone, kept = before - after, {(topic, queue_id, at) for topic, queue_id, _, at in after}
    moved = {entry for entry in gone if (entry[0], entry[1], entry[3]) in kept}
    return gone - moved, moved


def _run(command: str, *, in_shell: bool) -> None:
    if command.startswith("reput ") and not in_shell:
        run_reput(shlex.split(command)[1:])
        return
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.run(
        command, shell=True, capture_output=True, text=True, env={**os.environ, "PATH": path}, check=False
    )
    assert shell.returncode == 0, f"{command}\n{shell.stdout}{shell.stderr}"


def served(stores: Iterable[Path]) -> set[Entry]:
    """The entries of all queues of some stores that lead to good records: topic, queue id, queue offset, log offset."""
    found = set()
    for store in stores:
        good = set(_good_records(store))
        for path in (store / "consumequeue").glob("*/*/*"):
            if not (path.is_file() and path.name.isdecimal() and path.parent.name.isdecimal()):
                continue
            data = path.read_bytes()
            units = np.frombuffer(data[: len(data) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)
            first = int(path.name) // ENTRY.itemsize
            queue = path.parent.parent.name, int(path.parent.name)
            for row in np.flatnonzero(is_written(units) & ~is_pre_blank(units)).tolist():
                offset = int(units["physical_offset"][row])
                if offset in good:
                    found.add((*queue, first + row, offset))
    return found


def _good_records(store: Path) -> Iterable[int]:
    options = DecodeOptions(check_crc=True, on_damage="quarantine")
    for path in sorted((store / "commitlog").glob("0*")):
        if not (path.name.isdecimal() and path.is_file() and path.stat().st_size):
            continue
        file = MappedFile(int(path.name), path.stat().st_size, str(path))
        for window in scan_windows(file, file.file_from_offset, file.end, options):
            yield from (window.offset_of(row) for row in range(len(window)))
