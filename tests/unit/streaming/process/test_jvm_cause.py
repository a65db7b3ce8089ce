"""Why a JVM ended while it started: the line of what it printed that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from reput.source.errors import TransientError
from reput.streaming.process.jvm import Jvm, cause_in

IVY = """WARNING: Using incubator modules: jdk.incubator.vector
:: loading settings :: url = jar:file:/spark/jars/ivy.jar!/org/apache/ivy/core/settings/ivysettings.xml
\t\t::::::::::::::::::::::::::::::::::::::::::::::
\t\t:: io.delta#delta-spark_2.13;4.4.0: not found
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: io.delta#delta-spark;4.4.0: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:528)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
26/11/27 05:56:24 INFO ShutdownHookManager: Shutdown hook called
"""
OPTION = """Unrecognized VM option 'UseNothing'
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (IVY, "RuntimeException: [unresolved dependency: io.delta#delta-spark;4.4.0: not found]"),
        (OPTION, "Unrecognized VM option 'UseNothing'"),
        (
            'Exception in thread "main" a.B: c\n\tat x\nCaused by: java.net.UnknownHostException: host\n',
            "UnknownHostException: host",
        ),
        ('Exception in thread "main" java.lang.StackOverflowError\n', "StackOverflowError"),
        ("spark-submit: line 3: java: not found\n", "spark-submit: line 3: java: not found"),
        ("WARNING: nothing\n\n", None),
        ("", None),
    ],
)
def test_the_line_that_says_why(said: str, cause: str | None) -> None:
    assert cause_in(said.splitlines()) == cause


def test_a_jvm_that_ends_at_its_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is in the log; the error has the one line that counts."""
    # Later tests of this process ask whether the last JVM died.
    monkeypatch.setattr("reput.streaming.process.jvm._known", [])
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\ncat >&2 <<'EOF'\n{IVY}EOF\nexit 1\n")
    submit.chmod(0o755)
    jvm = Jvm({}, tmp_path, tmp_path / "spark.log", home=tmp_path)
    with pytest.raises(
        TransientError,
        match=r"ended with code 1 while it started: RuntimeException: \[unresolved dependency: io\.delta#",
    ):
        jvm.connect()
    jvm.end()
    assert "USE VERBOSE" in (tmp_path / "spark.log").read_text()
