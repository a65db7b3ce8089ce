"""The `reput` command. Exit codes: 0 done, 1 failed, 2 wrong usage."""

from __future__ import annotations

import gc

# Each registers its commands, in the order of `reput --help`.
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

# Modules and kernels are half a million objects, none of them garbage. With Python's threshold of 700 the collector
# goes through them again and again while they are loaded: a quarter of a command's start-up.
_GARBAGE_LOOKED_FOR_AFTER = 100_000


def main() -> None:
    """Run the command line."""
    gc.set_threshold(_GARBAGE_LOOKED_FOR_AFTER)
    app()


if __name__ == "__main__":
    main()
