"""`make pythons` judges by what a Python prints and makes; here by programs that print it on purpose."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pythons import find_python, main, version_of
from support.trial import Trial

THIS = "{}.{}".format(*sys.version_info[:2])


def trial(tmp_path: Path, program: str) -> Trial:
    """A trial whose one step is a program, with every warning shown."""
    found = Trial(THIS, Path(sys.executable), tmp_path)
    script = tmp_path / "program.py"
    script.write_text(program)
    found.step("step", [sys.executable, str(script)], 60, {**os.environ, "PYTHONWARNINGS": "default"})
    return found


def test_a_warning_is_a_failure(tmp_path: Path) -> None:
    """So is one that Python hides by default."""
    said = trial(tmp_path, "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=1)\n").failures["step"]
    assert said == [f"DeprecationWarning in {tmp_path / 'program.py'}: old"]
    assert trial(tmp_path, "print('all is well')").failures == {"step": []}


def test_a_warning_of_others_is_a_note(tmp_path: Path) -> None:
    """A package's own warning cannot be mended here; but a fork in a process with threads counts in any code."""
    of_package = "import sys\nprint('/lib/site-packages/x.py:1: DeprecationWarning: {}', file=sys.stderr)\n"
    noted = trial(tmp_path, of_package.format("old"))
    assert noted.failures == {"step": []}
    assert sum(noted.others.values()) == 1
    forked = trial(tmp_path, of_package.format("multi-threaded, use of fork() may lead to deadlocks"))
    assert len(forked.failures["step"]) == 1


def test_an_exit_code_is_a_failure(tmp_path: Path) -> None:
    """With the last words."""
    assert trial(tmp_path, "import sys\nsys.exit('no good')").failures["step"] == ["ended with 1: no good"]


def test_interpreters_are_found_by_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not there is named, and a run without any fails."""
    assert version_of(Path(sys.executable)) == THIS
    assert version_of(tmp_path / "python") is None
    assert find_python("3.1") is None
    assert main(["3.1", "--work", str(tmp_path / "work")]) == 1
    said = capsys.readouterr().out
    assert "3.1" in said
    assert "not found" in said
