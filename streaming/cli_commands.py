"""All commands of `reput`, in the order of its help."""

from __future__ import annotations

# Each registers its commands when it is loaded.
from reput.streaming import (  # noqa: F401  isort: skip
    cli_tail,
    cli_rebuild,
    cli_sql,
    cli_query,
    cli_maintenance,
    cli_verify,
    cli_quarantine,
    cli_prepare,
)
from reput.streaming.cli_app import app

__all__ = ["app"]
