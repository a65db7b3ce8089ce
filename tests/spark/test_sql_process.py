"""`reput sql --engine spark` as a process: a reader that has enough, a disk that is full, a stop that is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.test_sql import make_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENDS_WITHIN_S = 300
# Rows for hours, a thousand of them in each of Spark's partitions, which it hands over one by one.
ENDLESS = "SELECT id, repeat('x', 1000) FROM range(0, 100000000, 1, 100000)"


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_table(spark, tmp_path_factory.mktemp("process"))


def command(table: Path, *words: str) -> list[str]:
    return [
        f"{Path(sys.executable).parent / 'reput'}",
        "sql",
        "--engine",
        "spark",
        "--table",
        str(table),
        "--format",
        "csv",
        *words,
    ]


def test_a_reader_that_has_enough(table: Path, tmp_path: Path) -> None:
    """It is done: no word, no file left, exit code 0."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        command(table, ENDLESS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'id,"repeat(x, 1000)"')
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(ENDS_WITHIN_S) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert not list(temporary.glob("reput-*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_it_runs(table: Path, tmp_path: Path, number: signal.Signals) -> None:
    """One line and the exit code say that the answer is not whole."""
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(command(table, ENDLESS), stdout=out, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not (tmp_path / "out").stat().st_size:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, number)
    error = process.communicate(timeout=ENDS_WITHIN_S)[1].decode()
    assert (error, process.returncode) == ("reput: stopped\n", 128 + number)


def test_an_output_that_is_full(table: Path) -> None:
    """The error names the failure, and standard output."""
    with Path("/dev/full").open("wb") as out:
        done = subprocess.run(command(table, ENDLESS), stdout=out, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == "reput: cannot write the result to standard output: No space left on device\n"
