"""Users of a command do not see warnings of other packages or of Python."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CATEGORIES = ("UserWarning", "RuntimeWarning", "FutureWarning", "DeprecationWarning", "ResourceWarning")
WARNS = f"""
import warnings
for category in ({", ".join(CATEGORIES)}):
    warnings.warn("told", category)
"""
#: A command that warns at its end, as does a process that it starts.
COMMAND = f"""
import atexit, subprocess, sys
from reput.streaming.cli.main import main
atexit.register(lambda: exec({WARNS!r}, {{}}))
atexit.register(subprocess.run, [sys.executable, "-c", {WARNS!r}])
main()
"""


@pytest.mark.parametrize("asked", [{}, {"PYTHONWARNINGS": "default"}])
def test_a_command_and_its_processes_print_warnings_only_if_asked(asked: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"} | asked
    command = [sys.executable, "-c", COMMAND, "--version"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("reput ")
    told = [done.stderr.count(f"{category}: told") for category in CATEGORIES]
    assert told == [2 if asked else 0] * len(CATEGORIES), done.stderr
    assert asked or done.stderr == ""
