"""`make pythons`: the fast tests and one run of each main command under every supported Python.

Each Python has a virtual environment of its own below ``--work``, made once and again when pyproject.toml changes.
The commands run on a store that a real broker left; their results are compared with the broker's files and with the
log. Nothing may be printed on standard error that looks like a warning, not even one that Python hides by default,
unless it comes from a package of somebody else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.log_contents import read_records
from support.broker_stores import unpack
from support.paths import ROOT
from support.store_compare import differing_bytes

STORE = "v4-plain"
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
COMMANDS = ("tail", "rebuild", "verify", "query", "sql")
COMMAND_SECONDS = 600
TESTS_SECONDS = 3600
ANSWER_MAX = 32  # more messages than one query returns
# A warning as Python prints it: file, line, category, text.
WARNING = re.compile(r"^(?P<file>\S+):\d+: (?P<category>\w*Warning): (?P<text>.*)$", re.MULTILINE)
# A package of others, or no place at all: what pyspark's workers leave open when they end.
_OTHERS = re.compile(r"/site-packages/|\.zip/|^<?sys>?$")


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


@dataclass(frozen=True)
class Sample:
    """The broker's store that the commands run on, and what they have to find there."""

    store: Path
    broker_conf: Path
    messages: int
    topic: str
    key: str
    offsets: frozenset[int]

    @classmethod
    def unpack(cls, directory: Path) -> Sample:
        """Unpack it and choose a key that only a few messages have."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        store = unpack(STORE, directory) / "store"
        records = list(read_records(store, {}))
        counts = Counter((record.topic, key) for record in records for key in record.keys)
        topic, key = next(
            pair for pair, count in sorted(counts.items()) if 1 < count < ANSWER_MAX and pair[1].isascii()
        )
        offsets = frozenset(r.offset for r in records if r.topic == topic and key in r.keys)
        return cls(store, directory / STORE / "broker.conf", len(records), topic, key, offsets)


@dataclass
class Trial:
    """One Python: seconds by step, and every failure in words."""

    version: str
    python: Path
    work: Path
    seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)

    def step(self, name: str, command: Sequence[str], limit: float, environment: dict[str, str]) -> str | None:
        """Run a command and note its seconds, its exit code and its warnings; its standard output if it succeeded."""
        began = time.monotonic()
        self.failures[name] = []
        cwd = self.work / "cwd"
        cwd.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(
                [*command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            self.failures[name].append(f"still ran after {limit:g} s")
            return None
        finally:
            self.seconds[name] = time.monotonic() - began
        (self.work / f"{name}.stdout").write_text(done.stdout)
        (self.work / f"{name}.stderr").write_text(done.stderr)
        self.look_for_warnings(name, done.stderr)
        if done.returncode != 0:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()][-3:]
            self.failures[name].append(f"ended with {done.returncode}: {' | '.join(said)}")
            return None
        return done.stdout

    def look_for_warnings(self, name: str, text: str) -> None:
        """Note the warnings in a text; those that packages of others have for themselves are only counted."""
        for found in WARNING.finditer(text):
            line = f"{found['category']} in {found['file']}: {found['text']}"
            if _OTHERS.search(found["file"]) and "fork" not in found["text"]:
                self.others[line] += 1
            else:
                self.failures[name].append(line)

    def tests(self, more: Sequence[str]) -> None:
        """The tests that need neither Spark nor a broker."""
        command = [str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "unit")]
        command += ["-c", str(ROOT / "pyproject.toml"), "-m", "not slow and not broker and not spark", *more]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.step("tests", command, TESTS_SECONDS, environment)

    def commands(self, sample: Sample) -> None:
        """One `tail`, `rebuild`, `verify`, `query` and `sql`, each compared with what the broker made."""
        of_store = ["--store", str(sample.store), "--broker-conf", str(sample.broker_conf)]
        table = ["--table", str(self.work / "messages")]
        output = ["--output", str(self.work / "tail-output")]
        self.reput("tail", *of_store, *output, *table, "--available-now")
        self.compare("tail", sample)
        self.look_for_warnings("tail", _text(self.work / "tail-output" / "reput" / "spark.log"))
        self.reput("rebuild", *of_store, "--output", str(self.work / "rebuild-output"))
        self.compare("rebuild", sample)
        self.reput("verify", *of_store, *output, *table)
        found = self.reput("query", *of_store, "--topic", sample.topic, "--key", sample.key, "--format", "json")
        if found is not None:
            offsets = [int(json.loads(line)["physical_offset"]) for line in found.splitlines()]
            self.expect("query", sorted(sample.offsets), sorted(offsets))
        count = "SELECT count(*), count(DISTINCT physical_offset) FROM messages"
        rows = self.reput("sql", *table, "--format", "csv", count)
        if rows is not None:
            self.expect("sql", [str(sample.messages)] * 2, rows.split()[-1].split(","))

    def reput(self, command: str, *words: str) -> str | None:
        """Run the command line of this Python's environment, with every warning shown."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment["PYTHONWARNINGS"] = "default"
        said = self.step(command, [str(self.python.with_name("reput")), command, *words], COMMAND_SECONDS, environment)
        for path in (self.work / "cwd").iterdir():
            self.failures[command].append(f"left in the current directory: {path.name}")
            path.rename(self.work / f"{command}-{path.name}")
        return said

    def compare(self, command: str, sample: Sample) -> None:
        """Queues and index of an output with the broker's, byte for byte."""
        for name, count in differing_bytes(sample.store, self.work / f"{command}-output").items():
            self.failures[command].append(f"{name}: {count} bytes differ from the broker's")

    def expect(self, command: str, expected: object, found: object) -> None:
        """Note a result that is wrong."""
        if expected != found:
            self.failures[command].append(f"expected {expected}, found {found}")


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def try_python(python: Path, version: str, work: Path, sample: Sample, tests: Sequence[str] | None) -> Trial:
    """Everything under one Python; `tests` are more words for pytest, None leaves the tests out."""
    directory = work / f"run-{version}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    trial = Trial(version, environment_for(python, version, work), directory)
    trial.commands(sample)
    if tests is not None:
        trial.tests(tests)
    return trial


def print_table(trials: Sequence[Trial], missing: Sequence[str]) -> None:
    """Seconds and outcome of each step for each Python, then every failure in full."""
    names = (*COMMANDS, "tests")
    print(f"{'Python':8}" + "".join(f"{name:>14}" for name in names))
    for trial in trials:
        cells = []
        for name in names:
            word = "-" if name not in trial.seconds else "failed" if trial.failures[name] else "good"
            cells.append(f"{word} {trial.seconds[name]:.0f} s" if name in trial.seconds else word)
        print(f"{trial.version:8}" + "".join(f"{cell:>14}" for cell in cells))
    for version in missing:
        print(f"{version:8}{'not found':>14}")
    for trial in trials:
        for name, lines in trial.failures.items():
            for line in lines:
                print(f"{trial.version} {name}: {line}")
        for line, count in trial.others.most_common():
            print(f"{trial.version} note, {count} times: {line}")


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
    print_table(trials, missing)
    if not trials:
        print("no Python was found to try; give a path, or install one of " + ", ".join(SUPPORTED))
    return 0 if trials and not any(any(trial.failures.values()) for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())
