"""The settings of a session in the JVM of ``spark-submit``, from two sides, and how that JVM is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reput.streaming.cli import application
from reput.streaming.process import environment
from reput.streaming.spark.session import _beside

DELTA = "io.delta.sql.DeltaSparkSessionExtension"
OWN = {
    "spark.app.name": "reput tail",
    "spark.master": "spark://host:7077",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": DELTA,
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.jars.packages": "io.delta:delta",
}


@pytest.fixture(autouse=True)
def hidden_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a command."""
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")


def test_what_rows_depend_on_is_reputs_own_and_the_rest_is_the_users() -> None:
    """Nothing is set that a running JVM is past."""
    given = {
        "spark.app.name": "application.py",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.extensions": f"com.example.Extension, {DELTA}",
        "spark.ui.enabled": "true",
        "spark.driver.memory": "5g",
        "spark.executor.memory": "3g",
    }
    assert _beside(OWN, given) == {
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.executorEnv.PYTHONWARNINGS": "ignore",
        "spark.app.name": "reput tail",
        "spark.master": "spark://host:7077",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": f"com.example.Extension,{DELTA}",
    }


def test_without_settings_reputs_own_are_taken() -> None:
    settings = _beside(OWN, {})
    assert settings["spark.ui.enabled"] == "false"
    assert settings["spark.sql.extensions"] == DELTA
    assert not {"spark.driver.memory", "spark.jars.packages"} & settings.keys()


def test_workers_print_the_warnings_that_are_asked_for() -> None:
    """Those of a JVM that reput did not start do not have its environment."""
    name = "spark.executorEnv.PYTHONWARNINGS"
    assert _beside(OWN, {})[name] == "ignore"
    assert name not in _beside(OWN, {name: "default"})


def test_the_gateway_is_taken_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once; a value that is not a gateway's counts as none."""
    monkeypatch.setattr(environment, "end_with_parent", lambda number: None)
    monkeypatch.setattr(environment, "_taken", [])
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "secret")
    assert environment.take_up()
    assert environment.submit_gateway() == (4711, "secret")
    assert not {"PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"} & os.environ.keys()
    assert not environment.take_up()


def test_the_application_says_how_it_is_run(tmp_path: Path) -> None:
    """Where no spark-submit started it; no module beside it is loaded for one of Python's own names."""
    for command in ([application.__file__], ["-m", application.__name__]):
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
        )
        assert done.returncode == 2
        assert f"spark-submit --master URL {Path(application.__file__)} tail" in done.stderr
        assert len(done.stderr.splitlines()) == 1
