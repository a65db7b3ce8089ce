"""`make pythons`: the fast tests and one run of each main command under every supported Python.

Each Python has a virtual environment of its own below ``--work``, made once and again when pyproject.toml changes.
How each is judged is in ``support/trial.py``.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.paths import ROOT
from support.trial import COMMANDS, Sample, Trial, print_table

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
TESTS = (str(ROOT / "tests" / "unit"), "-m", "not slow and not broker and not spark")


def find_python(version: str) -> Path | None:
    """A working interpreter of this version, from pyenv or from PATH; None without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = sorted(pyenv.glob(f"{version}.*/bin/python{version}"), key=lambda path: _numbers(path.parts[-3]))
    on_path = shutil.which(f"python{version}")
    for path in [*reversed(kept), *([Path(on_path)] if on_path else [])]:
        if version_of(path) == version:
            return path
    return None


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def version_of(python: Path) -> str | None:
    """Major and minor number that an interpreter tells of itself; None when it does not run."""
    ask = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment_for(python: Path, version: str, work: Path) -> Path:
    """The interpreter of a virtual environment that has the project and its tests' packages."""
    home = work / version
    ready, project = home / ".ready", ROOT / "pyproject.toml"
    if not (ready.exists() and ready.stat().st_mtime >= project.stat().st_mtime):
        subprocess.run([str(python), "-m", "venv", str(home)], check=True)
        install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--editable", f"{ROOT}[dev]"]
        subprocess.run(install, check=True)
        ready.touch()
    return home / "bin" / "python"


def try_python(python: Path, version: str, work: Path, sample: Sample, tests: Sequence[str] | None) -> Trial:
    """Everything under one Python; `tests` are more words for pytest, None leaves the tests out."""
    directory = work / f"run-{version}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    trial = Trial(version, environment_for(python, version, work), directory)
    trial.commands(sample)
    if tests is not None:
        trial.tests([*TESTS, *tests])
    return trial


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when at least one Python was tried and nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", help="interpreters, or versions such as 3.12 [default: all supported]")
    parser.add_argument("--work", type=Path, default=ROOT / ".work" / "pythons", help="environments and results")
    parser.add_argument("--no-tests", action="store_true", help="the commands only")
    parser.add_argument("--pytest", default="-n 2 --dist loadfile", help="more words for pytest")
    given = parser.parse_args(words)
    work = given.work.resolve()
    chosen: dict[str, Path] = {}
    missing = []
    for word in given.pythons or SUPPORTED:
        path = find_python(word) if re.fullmatch(r"\d+\.\d+", word) else Path(word)
        version = version_of(path) if path is not None else None
        if path is None or version is None:
            missing.append(word)
        else:
            chosen[version] = path
    sample = Sample.unpack(work / "store")
    trials = []
    for version, path in chosen.items():
        print(f"{version}: {path}", flush=True)
        trials.append(try_python(path, version, work, sample, None if given.no_tests else given.pytest.split()))
    print_table("Python", (*COMMANDS, "tests"), trials, dict.fromkeys(missing, "not found"))
    if not trials:
        print("no Python was found to try; give a path, or install one of " + ", ".join(SUPPORTED))
    return 0 if trials and not any(any(trial.failures.values()) for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
