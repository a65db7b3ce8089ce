"""The `reput` command. Exit codes: 0 done, 1 failed, 2 wrong usage."""

from __future__ import annotations

# Each registers its commands, in the order of `reput --help`.
from reput.streaming import (  # noqa: F401  isort: skip
    cli_tail,
    cli_rebuild,
    cli_sql,
    cli_query,
    cli_maintenance,
    cli_verify,
    cli_quarantine,
)
from reput.streaming.cli_app import app


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
