"""The line that a terminal shows while the modules of a command are loaded, which takes a second or more."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from reput.streaming.process.working import has_cursor


@contextmanager
def first_words(words: str) -> Iterator[None]:
    """Show a line during a ``with`` block; show nothing where standard error is not a terminal.

    This module loads no module that takes time.
    """
    is_shown = has_cursor()
    try:
        _write(words[: shutil.get_terminal_size().columns - 1] if is_shown else "")
        yield
    finally:
        _write("\r\x1b[K" if is_shown else "")


def _write(text: str) -> None:
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()
