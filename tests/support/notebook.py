"""The example of docs/examples: a notebook's cells, run as a program on a store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from support.paths import ROOT

EXAMPLE: Final = ROOT / "docs" / "examples" / "commitlog_notebook.py"
_ROW = re.compile(r"^\|(\S+) *\|(\d+) *\|(\d+) *\|", re.MULTILINE)


def program_for(store: Path) -> str:
    """Return the example unchanged, except for the store."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count('"/data/store"') == 1
    return text.replace('"/data/store"', repr(str(store)))


def messages_by_topic(said: str) -> dict[str, int]:
    """How many messages of each topic the example has printed."""
    return {topic: int(count) for topic, count, _ in _ROW.findall(said)}
