"""`make canary`: reput with the newest releases of its dependencies and of RocketMQ, also above those allowed.

Each package is tried alone, in a layer over the project's environment: a virtual environment that has the newest
release and those of its own dependencies that the project lacks. If another package's metadata forbids the combination,
the report says so, and the trial is made all the same. The last layer has all packages at the newest releases that pip
finds together. ``support/trial.py`` says how each trial is judged; the first one is of the project's environment as it
is.

The newest release of RocketMQ writes a store with real clients, whose bytes are compared, and boots on reput's files.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.artifacts import HarnessError, missing_tools, newest_release
from broker.release import Release
from support.paths import ROOT, TESTS
from support.trial import COMMANDS, Sample, Trial, clean_environment, print_table

# pandas and typer are held below a release, see pyproject.toml.
PACKAGES = ("pyspark", "delta-spark", "pyarrow", "deltalake", "numba", "numpy", "pandas", "typer")
#: The newest release of RocketMQ that `make test` starts.
KNOWN_RELEASE = "5.5.0"
# Spark's source API, Delta's commits, Arrow and Parquet, what is compiled, the command line.
CHOSEN = (
    "spark/test_source.py",
    "spark/test_delta_table.py",
    "spark/test_message_file.py",
    "unit/source/rows",
    "unit/sinks/dispatch",
    "unit/streaming/cli",
)
AS_INSTALLED, TOGETHER, ROCKETMQ = "as installed", "all together", "RocketMQ"
INSTALL_SECONDS = 1200
BOOT_SECONDS = 600
SOURCE_SECONDS = 300
STEPS = ("source", *COMMANDS, "tests", "boot")
# The source alone, in batches and as a stream: a new Spark comes before a Delta that goes with it.
SOURCE = """
import sys
from pyspark.sql import SparkSession
from reput.source.data_source import CommitLogDataSource

log, work = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(CommitLogDataSource)
print(spark.read.format("rocketmq-commitlog").load(log).select("physical_offset").distinct().count())
stream = spark.readStream.format("rocketmq-commitlog").load(log).writeStream.format("memory").queryName("seen")
stream.option("checkpointLocation", f"{work}/checkpoint").trigger(availableNow=True).start().awaitTermination()
print(spark.table("seen").select("physical_offset").distinct().count())
"""


@dataclass(frozen=True)
class Layer:
    """A virtual environment over the project's: its interpreter, the releases it changed, and who forbids them."""

    python: Path
    changed: dict[str, str]
    forbidden: list[str]

    @classmethod
    def make(cls, home: Path, packages: Sequence[str]) -> Layer:
        """Make it again with the newest releases of these packages.

        Raises
        ------
        CannotInstallError
            pip found no combination.
        """
        python = over_project(home)
        before = _installed(Path(sys.executable))
        try:
            done = _pip(python, "install", "--quiet", "--upgrade", *packages)
        except subprocess.TimeoutExpired as error:
            raise CannotInstallError(f"pip still ran after {INSTALL_SECONDS} s") from error
        if done.returncode != 0:
            raise CannotInstallError(next(iter(done.stderr.strip().splitlines()), "pip said nothing"))
        after = _installed(python)
        changed = {name: version for name, version in after.items() if before.get(name) != version}
        check = _pip(python, "check").stdout.splitlines()
        return cls(python, changed, [line for line in check if not line.startswith("rocketmq-reput ")])


class CannotInstallError(Exception):
    """Why not, in pip's first line."""


def over_project(home: Path) -> Path:
    """Make a virtual environment that has all of the project's, pip and `reput` among it, and nothing of its own."""
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    python = home / "bin" / "python"
    _site_packages(python).joinpath("project.pth").write_text(
        f"import site; site.addsitedir({str(_site_packages(Path(sys.executable)))!r})\n"
    )
    script = python.with_name("reput")
    script.write_text(f"#!{python}\n" + Path(sys.executable).with_name("reput").read_text().split("\n", 1)[1])
    script.chmod(0o755)
    return python


def _site_packages(python: Path) -> Path:
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def _pip(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)


def _installed(python: Path) -> dict[str, str]:
    """The release of each of the packages in an environment."""
    listed = json.loads(_pip(python, "list", "--format", "json").stdout)
    return {each["name"].replace("_", "-"): each["version"] for each in listed if _is_one(each["name"])}


def _is_one(name: str) -> bool:
    return name.replace("_", "-") in PACKAGES


def _why(said: str) -> str:
    """Return Maven's error in a line without colours: the first artifact that it lacks, or else its first lines."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", said)
    missing = re.search(r"\S+ was not found in \S+", plain)
    return missing[0] if missing else " ".join(plain.split("\n")[:2])


class Canary:
    """The trials so far, and what could not be tried."""

    def __init__(self, work: Path, *, with_tests: bool = True) -> None:
        self.work = work
        self.with_tests = with_tests
        self.sample = Sample.unpack(work / "store")
        self.trials: list[Trial] = []
        self.untried: dict[str, str] = {}
        self.notes: list[str] = []

    def begin(self, name: str, python: Path) -> Trial:
        """Begin a trial in a directory of its own."""
        directory = self.work / re.sub(r"[^\w.-]+", "-", f"run {name}")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.trials.append(Trial(name, python, directory))
        print(f"tries {name}", flush=True)
        return self.trials[-1]

    def packages(self, name: str, python: Path) -> None:
        """Try the commands and the chosen tests in an environment."""
        trial = self.begin(name, python)
        program = [str(python), "-c", SOURCE, str(self.sample.store / "commitlog"), str(trial.work)]
        environment = clean_environment() | {"PYSPARK_PYTHON": str(python)}
        counts = trial.step("source", program, SOURCE_SECONDS, environment)
        if counts is not None:
            trial.expect("source", [str(self.sample.messages)] * 2, counts.split())
        trial.commands(self.sample)
        if self.with_tests:
            trial.tests([*(str(TESTS / path) for path in CHOSEN), "-m", "not slow and not broker", "--maxfail=5"])
        print(f"has tried {trial.name}: {trial.outcome}", flush=True)

    def newest(self, packages: Sequence[str]) -> None:
        """Try a layer with the newest releases of these packages."""
        name = packages[0] if len(packages) == 1 else TOGETHER
        print(f"installs {name}", flush=True)
        home = self.work / f"layer-{name.replace(' ', '-')}"
        try:
            layer = Layer.make(home, packages)
        except CannotInstallError as error:
            self.untried[name] = f"could not be installed: {error}"
            return
        if not layer.changed:
            self.untried[name] = "nothing newer than what is installed"
            return
        changed = " ".join(f"{package} {version}" for package, version in layer.changed.items())
        self.notes += [f"{changed}: {line}" for line in layer.forbidden]
        self.packages(changed if len(packages) == 1 else f"{TOGETHER}: {changed}", layer.python)

    def rocketmq(self, version: str | None) -> None:
        """Try a release of RocketMQ with the project's environment; the newest one unless told."""
        reason = missing_tools()
        if reason is not None:
            self.untried[ROCKETMQ] = reason
            return
        name = ROCKETMQ
        try:
            version = version or newest_release()
            name = f"{ROCKETMQ} {version}"
            if version == KNOWN_RELEASE:
                self.untried[name] = "nothing newer than what is known"
                return
            Release(version)
        except HarnessError as error:
            self.untried[name] = f"could not be installed: {_why(str(error))}"
            return
        trial = self.begin(name, Path(sys.executable))
        trial.reput(
            "tail",
            *("--store", str(self.sample.store), "--broker-conf", str(self.sample.broker_conf)),
            *("--output", str(trial.work / "tail-output"), "--available-now"),
        )
        boot = [sys.executable, "-m", "broker", "boot", version, str(self.sample.store.parent)]
        environment = clean_environment() | {"PYTHONPATH": str(TESTS)}
        trial.step("boot", [*boot, str(trial.work / "tail-output"), "queriesMax=200"], BOOT_SECONDS, environment)
        if self.with_tests:
            tests = [str(TESTS / "test_workloads.py"), "-m", "not slow"]
            trial.tests(tests, {"ROCKETMQ_VERSION": version, "CI": "true"})
        print(f"has tried {trial.name}: {trial.outcome}", flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when nothing that was tried failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages", nargs="*", help=f"{', '.join(PACKAGES)}, {ROCKETMQ} [default: all, alone and together]"
    )
    parser.add_argument("--work", type=Path, default=ROOT / ".work" / "canary", help="environments and results")
    parser.add_argument("--rocketmq", metavar="VERSION", help="this release of RocketMQ instead of the newest")
    parser.add_argument("--no-tests", action="store_true", help="the commands alone: some minutes a package")
    given = parser.parse_args(words)
    canary = Canary(given.work.resolve(), with_tests=not given.no_tests)
    if not given.packages:
        canary.packages(AS_INSTALLED, Path(sys.executable))
    for package in given.packages or PACKAGES:
        if package != ROCKETMQ:
            canary.newest([package])
    if not given.packages:
        canary.newest(PACKAGES)
    if not given.packages or ROCKETMQ in given.packages:
        canary.rocketmq(given.rocketmq)
    print_table("newest", STEPS, canary.trials, canary.untried)
    for note in canary.notes:
        print(f"note, not allowed: {note}")
    return 1 if any(any(trial.failures.values()) for trial in canary.trials) else 0


if __name__ == "__main__":
    sys.exit(main())
