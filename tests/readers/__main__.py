"""`make readers`: readers of other projects read tables that `reput` made, and each value is compared with the log.

A line for each reader: its name and version, what it reads, the rows, and `equal` or what differs. A reader whose
toolchain is missing is not tried. The exit code is 1 if a reader differs, or cannot be installed with its toolchain.

Each reader has an environment of its own below ``--work``, made once and again when its recipe changes; nothing is
installed elsewhere but the caches of pip, npm, Maven, Cargo and Go. `by_python.py` says what a reader prints.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Timer

from readers.tables import Table, Tables, plain_row
from support.paths import ROOT

HERE = Path(__file__).parent
#: A reader that takes longer is ended, and differs.
SECONDS_MAX = 900
#: `refuses`: as it is known to.
OUTCOMES = ("equal", "differs", "refuses", "not installed", "not tried")
LOG, FILES = "the Delta log", "Parquet files"


@dataclass(frozen=True)
class Recipe:
    """How readers in one language are installed in a directory, and run there.

    Attributes
    ----------
    tool
        Command that must be there.
    get
        Where that command comes from.
    source
        Program in this directory, which is copied.
    files
        Further files, by name; ``{version}`` stands for the reader's.
    steps
        Commands; ``{packages}`` stands for one word each.
    command
        Words before the paths of tables or files.
    """

    tool: str
    get: str
    source: str
    files: dict[str, str]
    steps: tuple[str, ...]
    command: tuple[str, ...]


PYTHON = Recipe(
    sys.executable,
    "Python",
    "by_python.py",
    {},
    (f"{sys.executable} -m venv .", "bin/python -m pip install --quiet --disable-pip-version-check {packages}"),
    ("bin/python", "by_python.py"),
)
JAVA = Recipe(
    "mvn",
    "Java 17 and Maven (apt-get install maven)",
    "Reader.java",
    {
        "pom.xml": """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>readers</groupId><artifactId>readers</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.parquet</groupId><artifactId>parquet-hadoop</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-client-runtime</artifactId><version>3.4.1</version></dependency>
  </dependencies>
</project>
"""
    },
    ("mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars",),
    ("java", "-cp", "jars/*", "Reader.java"),
)
RUST = Recipe(
    "cargo",
    "Rust (https://rustup.rs)",
    "reader.rs",
    {
        "Cargo.toml": """
[package]
name = "reader"
version = "0.0.0"
edition = "2021"
[[bin]]
name = "reader"
path = "reader.rs"
[dependencies]
parquet = { version = "={version}", default-features = false, features = ["zstd"] }
serde_json = "=1.0.154"
[workspace]
"""
    },
    ("cargo build --quiet --release",),
    ("target/release/reader",),
)
GO = Recipe(
    "go",
    "Go (https://go.dev/dl)",
    "reader.go",
    {"go.mod": "module reader\n\ngo 1.24\n"},
    ("go get {packages}", "go build -o reader ."),
    ("./reader",),
)
NODE = Recipe(
    "npm",
    "Node.js 20 (https://nodejs.org)",
    "reader.mjs",
    {},
    ("npm install --silent --prefix . {packages}",),
    ("node", "reader.mjs"),
)


@dataclass(frozen=True)
class Reader:
    """A library that reads tables.

    Attributes
    ----------
    name
        As in docs/readers.md.
    reads
        `LOG`: it is given tables; `FILES`: their Parquet files.
    packages
        Requirements with exact versions, the reader's own first.
    function
        In ``by_python.py``.
    recipe
        None: in the project's own environment.
    refuses
        What its error says, if it is known that it cannot read the files.
    """

    name: str
    reads: str
    packages: tuple[str, ...]
    function: str = ""
    recipe: Recipe | None = PYTHON
    refuses: str = ""

    @property
    def version(self) -> str:
        """The version of its own package."""
        package = self.packages[0]
        return (
            version(package) if self.recipe is None else package.replace("@v", "==").replace("@", "==").split("==")[1]
        )


DELTALAKE, PYARROW, PYTZ = "deltalake==1.6.6", "pyarrow==26.0.1", "pytz==2026.6"
READERS = (
    Reader("pyarrow", FILES, (PYARROW,), "pyarrow"),
    Reader("parquet-hadoop (Java)", FILES, ("parquet-hadoop==1.17.0",), recipe=JAVA),
    Reader("`parquet` (Rust)", FILES, ("parquet==60.1.0",), recipe=RUST),
    Reader("parquet-go (Go)", FILES, ("github.com/parquet-go/parquet-go@v0.32.0",), recipe=GO),
    Reader("hyparquet (JavaScript)", FILES, ("hyparquet@1.33.0", "hyparquet-compressors@1.1.2"), recipe=NODE),
    Reader("DuckDB `read_parquet`", FILES, ("duckdb==2.0.1", PYTZ), "duckdb"),
    Reader("DataFusion", FILES, ("datafusion==55.0.0", PYARROW), "datafusion"),
    Reader("ClickHouse (chdb) `file()`", FILES, ("chdb==4.4.0", PYARROW), "chdb"),
    Reader("pyiceberg `add_files`", FILES, ("pyiceberg[sql-sqlite,pyarrow]==0.12.0", PYARROW), "pyiceberg"),
    Reader("fastparquet", FILES, ("fastparquet==2026.9.0",), "fastparquet", refuses="NotImplementedError: Encoding 7"),
    Reader("deltalake, SQL", LOG, (DELTALAKE, PYARROW), "deltalake"),
    Reader("deltalake, pyarrow's dataset", LOG, (DELTALAKE, PYARROW), "deltalake_dataset"),
    Reader("Polars `scan_delta`", LOG, ("polars==2.1.0", DELTALAKE), "polars"),
    Reader("DuckDB `delta_scan`", LOG, ("duckdb==1.5.5", "duckdb-extension-delta==1.5.5", PYTZ), "duckdb_delta"),
    Reader("ClickHouse (chdb) `deltaLakeLocal()`", LOG, ("chdb==4.4.0", PYARROW), "chdb_delta"),
    Reader("Daft", LOG, ("daft==0.7.26", DELTALAKE, "pyarrow==25.0.1"), "daft"),
    Reader("Sail", LOG, ("pysail==0.7.2", "pyspark-client==4.0.1"), "sail"),
    Reader("Spark, vectorized", LOG, ("pyspark", "delta-spark"), "spark", None),
    Reader("Spark, row by row", LOG, ("pyspark", "delta-spark"), "spark_by_row", None),
)


class NoToolError(Exception):
    """The reader cannot be tried; the text says what it needs."""


class NotInstalledError(Exception):
    """A step of the recipe failed; the text says which, and how."""


def command_of(reader: Reader, work: Path) -> tuple[list[str], Path]:
    """The words before the paths, and the directory to run them in, which is made if it is not as the recipe has it."""
    recipe = reader.recipe
    words = [reader.function] if reader.function else []
    if recipe is None:
        return [sys.executable, str(HERE / PYTHON.source), *words], ROOT
    if shutil.which(recipe.tool) is None:
        raise NoToolError(recipe.get)
    source = (HERE / recipe.source).read_text(encoding="utf-8")
    made_of = hashlib.sha256(f"{recipe}\n{reader.packages}\n{source}".encode()).hexdigest()
    home = work / hashlib.sha256("\n".join(reader.packages).encode()).hexdigest()[:12]
    ready = home / ".ready"
    if not (ready.exists() and ready.read_text() == made_of):
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        for name, text in {recipe.source: source, **recipe.files}.items():
            (home / name).write_text(text.replace("{version}", reader.version), encoding="utf-8")
        for step in recipe.steps:
            done = subprocess.run(
                [word for part in step.split() for word in (reader.packages if part == "{packages}" else [part])],
                cwd=home,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise NotInstalledError(f"{step.partition('{')[0]}: {last_line(done.stderr or done.stdout)}")
        ready.write_text(made_of)
    return [*recipe.command, *words], home


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1][:200]


class Comparison:
    """The lines that a reader prints, compared with the rows of the tables.

    Parameters
    ----------
    tables
        By the path that the reader prints before their rows.
    """

    def __init__(self, tables: dict[str, Table]) -> None:
        self._tables = tables
        self._missing = {table.name: dict(table.rows) for table in tables.values()}
        self.rows = 0
        self.differences: list[str] = []

    def feed(self, lines: Iterable[str]) -> None:
        """Compare each row; a path must come before the first one."""
        table = ""
        for line in lines:
            value = json.loads(line)
            if isinstance(value, str):
                table = self._tables[value].name
                continue
            self.rows += 1
            key = value.get("broker"), value.get("physical_offset")
            expected = self._missing[table].pop(key, None)
            if expected is None:
                self.differences.append(f"{table}: a row that is not in the log, or twice: {key}")
            elif expected != plain_row(value):
                self.differences.append(f"{table}: {key}: {difference(json.loads(expected), value)}")

    def finish(self) -> None:
        """Count the rows that did not come."""
        for table, rows in self._missing.items():
            if rows:
                self.differences.append(f"{table}: rows that are missing: {len(rows)}")


def difference(expected: dict[str, object], row: dict[str, object]) -> str:
    """The first column that differs."""
    names = sorted(
        name for name in {*expected, *row} if plain_row({name: expected.get(name)}) != plain_row({name: row.get(name)})
    )
    return f"{names[0]} is {row.get(names[0])!r} instead of {expected.get(names[0])!r}"


def attempt(reader: Reader, tables: Sequence[Table], work: Path) -> tuple[str, str]:
    """Let a reader read everything; one of `OUTCOMES`, and the words for its line."""
    try:
        command, home = command_of(reader, work / "environments")
    except NoToolError as error:
        return "not tried", f"not tried: needs {error}"
    except NotInstalledError as error:
        return "not installed", f"not installed: {error}"
    by_path = {str(path): table for table in tables for path in ([table.path] if reader.reads == LOG else table.files)}
    comparison = Comparison(by_path)
    failure = run([*command, *by_path], home, comparison, work / "errors.txt")
    rows = f"{comparison.rows:7,} rows "
    if failure is not None:
        known = bool(reader.refuses) and failure.startswith(reader.refuses)
        return ("refuses" if known else "differs"), f"{rows} does not read it: {failure}"
    comparison.finish()
    for found in comparison.differences[:5]:
        print(f"    {found}")
    if comparison.differences:
        return "differs", f"{rows} differences: {len(comparison.differences)}"
    return "equal", f"{rows} equal"


def run(command: Sequence[str], home: Path, comparison: Comparison, errors: Path) -> str | None:
    """Compare what a command prints; the end of its standard error, which `errors` keeps, if it fails."""
    with (
        errors.open("w", encoding="utf-8") as stderr,
        subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=stderr, encoding="utf-8") as running,
    ):
        assert running.stdout is not None
        limit = Timer(SECONDS_MAX, running.kill)
        limit.start()
        try:
            comparison.feed(running.stdout)
        except (ValueError, KeyError) as error:
            running.kill()
            return f"what it prints is not a row: {error}"
        finally:
            limit.cancel()
    return last_line(errors.read_text(encoding="utf-8", errors="replace")) if running.returncode else None


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; 1 when a reader differs or cannot be installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="beginnings of names, such as Spark [default: all]")
    parser.add_argument("--work", type=Path, default=ROOT / ".work" / "readers", help="environments and tables")
    options = parser.parse_args(words)
    wanted = [each for each in READERS if not options.readers or each.name.startswith(tuple(options.readers))]
    if not wanted:
        parser.error(f"no reader begins so; there are {', '.join(each.name for each in READERS)}")
    work = options.work.absolute()
    tables = []
    for table in Tables(work / "tables").make():
        print(table, flush=True)
        tables.append(table)
    outcomes = []
    for reader in wanted:
        outcome, told = attempt(reader, tables, work)
        print(f"{reader.name:38} {reader.version:9} {reader.reads:14} {told}", flush=True)
        outcomes.append(outcome)
    print(", ".join(f"{outcomes.count(each)} {each}" for each in OUTCOMES))
    return 1 if {"differs", "not installed"} & set(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
