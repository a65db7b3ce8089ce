"""`reput backup --follow` as a process beside a growing log: killed, stopped, on a full disk, without its place."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker.java_process import free_port
from support.backups import OPTIONS, GrowingStore
from support.command_line import invoke, run_reput
from support.promql import documented
from support.sink_runner import files_below
from support.small_disk import mounted

WITHIN_S = 60.0
OTHER_OPTIONS = [word for option in (*OPTIONS, "progressEveryMs=0") for word in ("-o", option)]


@contextmanager
def following(growing: GrowingStore, *more: str) -> Iterator[subprocess.Popen[str]]:
    """The process; it is killed at the end, if it still runs."""
    command = [sys.executable, "-m", "reput.streaming.cli.main", "backup", "--follow", "--every", "0.2"]
    place = ["--store", str(growing.store), "--to", str(growing.backup.location)]
    log = (growing.root / "follow.log").open("a")
    process = subprocess.Popen([*command, *place, *OTHER_OPTIONS, *more], stderr=log, stdout=log, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


def wait_for(what: Callable[[], object], growing: GrowingStore) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not what():
        assert time.monotonic() < deadline, (growing.root / "follow.log").read_text()
        time.sleep(0.05)


def has_all(growing: GrowingStore) -> bool:
    numbers = growing.backup.numbers()
    return bool(numbers) and growing.backup.point(numbers[-1]).end == growing.log.max_offset


def test_kills(tmp_path: Path) -> None:
    """Killed again and again: every restore point is whole, and the log is in the backup as soon as it runs."""
    growing, rng = GrowingStore(tmp_path), random.Random(2)
    for _ in range(4):
        with following(growing) as process:
            for _ in range(rng.randint(1, 4)):
                growing.append(rng.randint(1, 30))
                time.sleep(rng.random())
            process.kill()
        assert growing.backup.verify().faults == []
    with following(growing) as process:
        growing.append(3)
        wait_for(lambda: has_all(growing), growing)
        before = files_below(growing.store)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
    assert files_below(growing.store) == before
    found = growing.backup.verify()
    assert found.faults == []
    for number in growing.backup.numbers():
        point = growing.backup.point(number)
        assert growing.backup.read_log(point, 0, point.end) == growing.bytes_of_log(0, point.end)


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    """How much is unprotected, as metrics and in a status, beside what `reput backup status` finds; retention."""
    growing, port = GrowingStore(tmp_path), free_port()
    growing.append(5)
    status = ["backup", "status", "--store", str(growing.store), "--from", str(growing.backup.location)]
    assert "are not in the backup" in run_reput(status, code=10).output
    url = f"http://localhost:{port}"
    with following(growing, "-o", f"metricsPort={port}", "--keep-points", "2") as process:

        def answer() -> bool:
            with urllib.request.urlopen(f"{url}/readyz") as ready:
                return bool(ready.status == 200)

        def is_ready() -> bool:
            try:
                return answer()
            except OSError:
                return False

        wait_for(lambda: is_ready() and has_all(growing), growing)
        with urllib.request.urlopen(f"{url}/status") as found:
            document = json.loads(found.read())
        assert (document["state"], document["unprotectedBytes"]) == ("running", 0)
        with urllib.request.urlopen(f"{url}/metrics") as found:
            lines = found.read().decode().splitlines()
        assert f'rocketmq_reput_backup_offset{{broker="DEFAULT_BROKER"}} {float(growing.log.max_offset)}' in lines
        assert 'rocketmq_reput_backup_unprotected_seconds{broker="DEFAULT_BROKER"} 0.0' in lines
        names = {re.split("[{ ]", line)[0] for line in lines if line.startswith("rocketmq_reput_")}
        of_a_backup = {name for name in documented() if name.startswith("rocketmq_reput_backup_")}
        assert {name for name in names if not name.endswith("_created")} == of_a_backup
        assert "all is in the backup" in run_reput(status).output
        second = invoke(["backup", "--store", str(growing.store), "--to", str(growing.backup.location)])
        assert (second.exit_code, second.stderr.count("\n")) == (1, 1)
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0


@pytest.mark.parametrize("kind", ["full", "away"])
def test_what_passes(kind: str, tmp_path: Path) -> None:
    """It waits for a full disk, and for a place that cannot be reached, with one line; nothing is made in its place."""
    growing = GrowingStore(tmp_path)
    (tmp_path / "backup" / "points").rmdir()
    (tmp_path / "backup").rmdir()
    said = tmp_path / "follow.log"
    with mounted(tmp_path / "backup", size="64k") as place, following(growing):
        growing.append(5)
        wait_for(lambda: place.joinpath("points").exists() and has_all(growing), growing)
        if kind == "full":
            growing.append(600)
            wait_for(lambda: "waiting: " in said.read_text(), growing)
            subprocess.run(["mount", "-o", "remount,size=20m", str(place)], check=True)
        else:
            (place / "lock").rename(place / "lock.away")
            growing.append(20)
            wait_for(lambda: "waiting: " in said.read_text(), growing)
            (place / "lock.away").rename(place / "lock")
        wait_for(lambda: has_all(growing), growing)
        assert said.read_text().count("waiting: ") == 1
        assert "the failure has passed" in said.read_text()
        assert growing.backup.verify().faults == []


def test_another_store_ends_it(tmp_path: Path) -> None:
    """A failure that does not pass is one line, and exit code 1."""
    growing = GrowingStore(tmp_path)
    growing.grow(1)
    (tmp_path / "other").mkdir()
    other = GrowingStore(tmp_path / "other", seed=7)
    other.append(30)
    other.backup = growing.backup
    with following(other) as process:
        assert process.wait(WITHIN_S) == 1
    assert "it is another store; give another --to" in (tmp_path / "other" / "follow.log").read_text()
