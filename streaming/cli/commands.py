"""All commands of `reput`, in the order of its help."""

from __future__ import annotations

# Each module registers its commands when it is loaded.
from reput.streaming.cli import (  # noqa: F401  isort: skip
    tail,
    rebuild,
    sql,
    query,
    maintenance,
    verify,
    quarantine,
    table,
    prepare,
)
from reput.streaming.cli.app import app

__all__ = ["app"]
