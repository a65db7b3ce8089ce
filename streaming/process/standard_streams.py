"""Standard output and its siblings: those that the caller closed are opened, and one that takes no more is let go."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def open_closed_streams() -> None:
    """Open those that the caller has closed: the next file would get the number of one, and with it what is printed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or open(STANDARD_OUTPUT, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(STANDARD_ERROR, "w", closefd=False)  # noqa: SIM115


def terminal_width(out: TextIO) -> int | None:
    """Return how many columns the terminal has that `out` writes to; None if it is not a terminal."""
    return shutil.get_terminal_size().columns if out.isatty() else None


def drop_output() -> None:
    """Drop what Python still holds for a standard output that failed; Python would fail again with it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
