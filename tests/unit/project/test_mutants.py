"""The catalogue of mistakes fits the sources and the tests as they are; `tests/mutants/run.py` makes them."""

from __future__ import annotations

import re

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


def test_names_are_unique() -> None:
    """A name asks for one mistake."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
