"""What a terminal shows of a command while its modules are loaded, which takes a second or more."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_WITHOUT_CURSOR = ("dumb", "unknown")


@contextmanager
def first_words(words: str) -> Iterator[None]:
    """Show a line for the length of a ``with`` block; nothing where standard error is no terminal.

    This module loads none that takes time itself.
    """
    is_shown = sys.stderr.isatty() and os.environ.get("TERM") not in _WITHOUT_CURSOR
    try:
        _write(words[: shutil.get_terminal_size().columns - 1] if is_shown else "")
        yield
    finally:
        _write("\r\x1b[K" if is_shown else "")


def _write(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
