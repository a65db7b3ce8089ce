"""Where things lie in the project's tree."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
#: Stores that real brokers left.
DATA = TESTS / "data"
