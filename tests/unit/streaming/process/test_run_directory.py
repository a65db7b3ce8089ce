"""The directory of a run: gone at its end; after a kill, gone with the next run, and the processes in it too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reput.streaming.process import environment as module
from reput.streaming.process.environment import RunDirectory

_RUN = """
import subprocess, sys
from reput.streaming.process.environment import run_directory
place = run_directory()
(place / "scratch").mkdir()
child = subprocess.Popen(["sleep", "600"], cwd=place / "scratch", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(child.pid, place, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def started(root: Path) -> tuple[subprocess.Popen[str], int, Path]:
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN],
        env=os.environ | {"TMPDIR": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    pid, place = run.stdout.readline().split()
    return run, int(pid), Path(place)


def is_gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_it_goes_with_its_process(root: Path) -> None:
    """And the processes that still work in it."""
    run, child, place = started(root)
    run.communicate("end\n", timeout=30)
    assert run.returncode == 0
    assert is_gone(child)
    assert not place.exists()


def test_what_a_kill_left_goes_with_the_next_run(root: Path) -> None:
    """Its orphans first: they would write on."""
    run, child, place = started(root)
    run.kill()
    run.communicate()
    assert place.exists()
    now = RunDirectory()
    try:
        assert is_gone(child)
        assert list(root.iterdir()) == [now.path]
        assert now.path.stat().st_mode & 0o777 == 0o700
    finally:
        now.remove()
    assert list(root.iterdir()) == []


def test_a_run_that_goes_on_is_left_alone(root: Path) -> None:
    """However many begin and end beside it."""
    run, child, place = started(root)
    for _ in range(2):
        RunDirectory().remove()
    assert (place / "scratch").is_dir()
    assert run.poll() is None
    assert not is_gone(child, within_s=0.1)
    run.communicate("end\n", timeout=30)


def test_only_what_is_ours_is_removed(root: Path) -> None:
    """Neither what a link leads to, nor a directory without a lock."""
    (root / "precious").mkdir()
    (root / "precious" / "lock").touch()
    (root / "reput-run-link").symlink_to(root / "precious")
    (root / "reput-run-other").mkdir()
    RunDirectory().remove()
    assert {path.name for path in root.iterdir()} == {"precious", "reput-run-link", "reput-run-other"}
    assert (root / "precious" / "lock").exists()


def test_it_is_made_anew_when_it_was_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second session of the same process has one, too."""
    monkeypatch.setattr(module, "_runs", [])
    first = module.run_directory()
    assert module.run_directory() == first
    module.remove_run_directory()
    assert not first.exists()
    assert module.run_directory().is_dir()
    module.remove_run_directory()
