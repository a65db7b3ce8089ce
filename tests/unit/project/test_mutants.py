"""The catalogue of mistakes fits the sources and the tests as they are; `tests/mutants/run.py` makes them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from mutants.catalogue import MUTANTS, Mutant
from support.paths import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mistake_can_be_made(mutant: Mutant) -> None:
    """Its old text is in its file exactly once, and its tests exist."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    for old, new in mutant.changes:
        assert text.count(old) == 1, old
        assert old != new
    for word in mutant.tests:
        file, _, test = word.partition("::")
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert not test or re.search(rf"^def {re.escape(test.partition('[')[0])}\(", source, re.MULTILINE), word


@pytest.mark.parametrize("marks", sorted({mutant.marks for mutant in MUTANTS}))
def test_its_tests_run(marks: str) -> None:
    """A test that moves into the slow form would leave its mistakes without a test."""
    mutants = [mutant for mutant in MUTANTS if mutant.marks == marks]
    files = {word.partition("::")[0] for mutant in mutants for word in mutant.tests if not word.startswith("-")}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", marks]
    listed = subprocess.run([*command, *sorted(files)], cwd=ROOT / "tests", check=True, capture_output=True, text=True)
    found = {line.removeprefix("tests/") for line in listed.stdout.splitlines() if "::" in line}
    for mutant in mutants:
        words = [word for word in mutant.tests if not word.startswith("-")]
        assert any(test.startswith(word) for test in found for word in words), mutant.name


def test_names_are_unique() -> None:
    """A name asks for one mistake."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
