"""A trial of reput in an environment: its main commands on a real broker's store, and tests.

The commands' results are compared with the broker's files and with the log. Nothing on standard error may look like a
warning, not even one that Python hides by default, unless it comes from a package of another project.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker.log_contents import read_records
from support.broker_stores import unpack
from support.notebook import messages_by_topic, program_for
from support.paths import ROOT
from support.store_compare import differing_bytes

STORE = "v4-plain"
COMMANDS = ("tail", "rebuild", "verify", "query", "dump", "sql", "notebook")
COMMAND_SECONDS = 600
TESTS_SECONDS = 3600
ANSWER_MAX = 32  # more messages than one query returns
# A warning as Python prints it: file, line, category, text.
WARNING = re.compile(r"^(?P<file>\S+):\d+: (?P<category>\w*Warning): (?P<text>.*)$", re.MULTILINE)
# The failures, as pytest prints them in the first place.
PYTEST_ERROR = re.compile(r"E\s+\w*(Error|Exception|Warning|Failed)\b")
# Why Spark did not start or went down, as it prints it in the first place.
SPARK_ERROR = re.compile(r"^\s*((?:module not found: |\S+(?:Exception|Error): ).*)$", re.MULTILINE)
# A package of others, or no place at all: what pyspark's workers leave open when they end.
_OTHERS = re.compile(r"/site-packages/|\.zip/|^<?sys>?$")


@dataclass(frozen=True)
class Sample:
    """The broker's store that the commands run on, and what they have to find there."""

    store: Path
    broker_conf: Path
    topics: dict[str, int]
    topic: str
    key: str
    offsets: frozenset[int]

    @property
    def messages(self) -> int:
        """How many messages it has in all."""
        return sum(self.topics.values())

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
        topics = dict(Counter(record.topic for record in records))
        return cls(store, directory / STORE / "broker.conf", topics, topic, key, offsets)


@dataclass
class Trial:
    """One environment: seconds by step, and every failure in words.

    ``python`` is its interpreter, in the same directory as ``reput``.
    """

    name: str
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
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            first = [line for line in said[:-3] if PYTEST_ERROR.match(line)][:1]
            self.failures[name].append(f"ended with {done.returncode}: {' | '.join([*first, *said[-3:]])}")
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

    @property
    def outcome(self) -> str:
        """In a few words: the steps that failed, if any did."""
        failed = [step for step, lines in self.failures.items() if lines]
        return f"{', '.join(failed)} failed" if failed else "good"

    def tests(self, words: Sequence[str], environment: dict[str, str] | None = None) -> None:
        """Run pytest with these words."""
        command = [str(self.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
        self.step("tests", [*command, *words], TESTS_SECONDS, clean_environment() | (environment or {}))

    def commands(self, sample: Sample) -> None:
        """One run of each of `COMMANDS`, compared with what the broker made."""
        of_store = ["--store", str(sample.store), "--broker-conf", str(sample.broker_conf)]
        table = ["--table", str(self.work / "messages")]
        output = ["--output", str(self.work / "tail-output")]
        tail = self.reput("tail", *of_store, *output, *table, "--available-now")
        spark_log = _text(self.work / "tail-output" / "reput" / "spark.log")
        self.look_for_warnings("tail", spark_log)
        if tail is None:
            self.failures["tail"] += [f"Spark said: {said}" for said in SPARK_ERROR.findall(spark_log)[:1]]
        self.compare("tail", sample)
        self.reput("rebuild", *of_store, "--output", str(self.work / "rebuild-output"))
        self.compare("rebuild", sample)
        self.reput("verify", *of_store, *output, *table)
        found = self.reput("query", *of_store, "--topic", sample.topic, "--key", sample.key, "--format", "json")
        if found is not None:
            offsets = [int(json.loads(line)["physical_offset"]) for line in found.splitlines()]
            self.expect("query", sorted(sample.offsets), sorted(offsets))
        dumped = self.reput("dump", *of_store, "--json")
        if dumped is not None:
            totals = json.loads(dumped.splitlines()[-1])["totals"]["verdicts"]
            self.expect("dump", sample.messages, totals["MESSAGE"]["count"])
        count = "SELECT count(*), count(DISTINCT physical_offset) FROM messages"
        rows = self.reput("sql", *table, "--format", "csv", count)
        if rows is not None:
            self.expect("sql", [str(sample.messages)] * 2, rows.split()[-1].split(","))
        self.notebook(sample)

    def notebook(self, sample: Sample) -> None:
        """The notebook of docs/examples: Spark finds the data source by itself."""
        program = self.work / "notebook.py"
        program.write_text(program_for(sample.store))
        environment = clean_environment() | {"PYTHONWARNINGS": "default"}
        said = self.step("notebook", [str(self.python), str(program)], COMMAND_SECONDS, environment)
        if said is not None:
            self.expect("notebook", sample.topics, messages_by_topic(said))

    def reput(self, command: str, *words: str) -> str | None:
        """Run the command line of the environment, with every warning shown."""
        environment = clean_environment() | {"PYTHONWARNINGS": "default"}
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


def clean_environment() -> dict[str, str]:
    """The variables of this process without those that change what a Python finds."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def print_table(of: str, steps: Sequence[str], trials: Sequence[Trial], untried: Mapping[str, str]) -> None:
    """Seconds and outcome of each step for each trial, why others were not tried, then every failure in full."""
    wide = max(len(name) for name in (of, *(trial.name for trial in trials), *untried)) + 2
    print(f"{of:{wide}}" + "".join(f"{step:>14}" for step in steps))
    for trial in trials:
        cells = []
        for step in steps:
            word = "-" if step not in trial.seconds else "failed" if trial.failures[step] else "good"
            cells.append(f"{word} {trial.seconds[step]:.0f} s" if step in trial.seconds else word)
        print(f"{trial.name:{wide}}" + "".join(f"{cell:>14}" for cell in cells))
    for name, why in untried.items():
        print(f"{name:{wide}}{why:>14}")
    for trial in trials:
        for step, lines in trial.failures.items():
            for line in lines:
                print(f"{trial.name} {step}: {line}")
        for line, count in trial.others.most_common():
            print(f"{trial.name} note, {count} times: {line}")
