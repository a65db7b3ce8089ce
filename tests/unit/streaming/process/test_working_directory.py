"""No command takes code or settings from the current directory, or leaves anything there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BrokerStore

from reput.streaming.process import environment

GetStore = Callable[[str], BrokerStore]
REPUT = str(Path(sys.executable).with_name("reput"))
_MODULES = ("sitecustomize", "usercustomize", "numba", "numpy", "pyspark", "pandas", "pyarrow", "py4j", "typer", "json")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A current directory full of what Python, numba, Spark, Java and shells look for; what runs leaves a trace."""
    place = tmp_path / "up" / "here"
    trace = f"open({str(tmp_path / 'ran')!r}, 'a').write(__file__ + chr(10))\n"
    (place / "reput" / "streaming").mkdir(parents=True)
    (place / "conf").mkdir()
    for name in (*(f"{name}.py" for name in _MODULES), "reput/__init__.py", "reput/streaming/__init__.py"):
        (place / name).write_text(trace)
    (place / ".numba_config.yaml").write_text("disable_jit: 1\n")
    shell = f"#!/bin/sh\necho spark >> {tmp_path / 'ran'}\nexit 7\n"
    for name in ("spark-env.sh", "conf/spark-env.sh", "java", "ps"):
        (place / name).write_text(shell)
        (place / name).chmod(0o755)
    for name in ("spark-defaults.conf", "conf/spark-defaults.conf"):
        (place / name).write_text("spark.master nonsense\n")
    for name in ("log4j2.properties", "conf/log4j2.properties", "core-site.xml", ".hotspotrc", ".ivysettings"):
        (place / name).write_text("nonsense\n")
    # pyspark looks for Spark in the directory above the current one, first of all.
    (tmp_path / "up" / "bin").mkdir()
    (tmp_path / "up" / "jars").mkdir()
    (tmp_path / "up" / "bin" / "spark-submit").write_text(shell)
    (tmp_path / "up" / "bin" / "spark-submit").chmod(0o755)
    return place


def run_in(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command there, and see that nothing of that place was run, and nothing was put there."""
    before = listing(place)
    known = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    temporary = place.parent.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    done = subprocess.run(
        [REPUT, *words],
        cwd=place,
        env=known | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert not (place.parent.parent / "ran").exists(), (place.parent.parent / "ran").read_text()
    assert listing(place) == before
    assert list(temporary.iterdir()) == []
    assert "Traceback" not in done.stdout + done.stderr
    return done


def listing(place: Path) -> list[str]:
    return sorted(str(path) for path in place.parent.rglob("*"))


def test_commands_without_spark(hostile: Path, broker_store: GetStore, tmp_path: Path) -> None:
    """With their paths relative to that directory, as the user gave them."""
    store = broker_store("v4-plain")
    at = ["--store", os.path.relpath(store.root, hostile), "--broker-conf", os.path.relpath(store.broker_conf, hostile)]
    out = ["--output", "../../out"]
    for words in (
        ["rebuild", *at, *out, "--master", "local[2]"],
        ["verify", *at, *out],
        ["recover", *at, *out, "--dry-run"],
        ["expire", *at, *out, "--dry-run"],
        ["quarantine", "list", *out],
        ["query", *at, *out, "--topic", "TopicA", "--queue-id", "0", "--queue-offset", "0"],
        ["--version"],
    ):
        done = run_in(hostile, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    assert (tmp_path / "out" / "consumequeue").is_dir()


@pytest.mark.spark
@pytest.mark.slow
def test_commands_with_spark(hostile: Path, broker_store: GetStore) -> None:
    """Their JVM, the workers' daemon and the workers are in a directory of reput."""
    store = broker_store("v4-plain")
    at = ["--store", os.path.relpath(store.root, hostile), "--broker-conf", os.path.relpath(store.broker_conf, hostile)]
    both = ["--output", "../../out", "--table", "../../table"]
    for words in (
        ["tail", *at, *both, "--available-now"],
        ["rebuild", *at, *both],
        ["verify", *at, *both],
        ["sql", "--table", "../../table", "SELECT count(*) FROM messages"],
        ["prepare"],
    ):
        done = run_in(hostile, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


def test_paths_of_the_environment_are_those_of_the_user(tmp_path: Path) -> None:
    """PYTHONPATH too; and an empty part of it, which means the current directory, is not handed on."""
    code = (
        "import os\nfrom pathlib import Path\n"
        "from reput.streaming.process.environment import leave, made_absolute\n"
        "leave()\nprint(os.getcwd(), os.environ['PYTHONPATH'], os.environ['JAVA_HOME'], made_absolute(Path('a/b')),"
        " made_absolute(Path('/c')), made_absolute('a'), made_absolute(None))"
    )
    known = os.environ | {"PYTHONPATH": ":mine:/theirs:", "JAVA_HOME": "jdk"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=known, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [
        *("/", f"{tmp_path}/mine:/theirs", f"{tmp_path}/jdk", f"{tmp_path}/a/b", "/c", "a", "None")
    ], done.stderr


def test_a_current_directory_that_was_removed(tmp_path: Path) -> None:
    """Absolute paths are as good as ever."""
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); os.execv({REPUT!r}, sys.argv[1:])"
    words = ["reput", "quarantine", "list", "--output", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "reput: 0 ranges left out\n")


def test_called_from_python_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the command itself leaves the directory; a path is then relative to the one of now."""
    monkeypatch.setattr(environment, "_started_in", [])
    monkeypatch.chdir(tmp_path)
    assert environment.made_absolute(Path("x")) == tmp_path / "x"
