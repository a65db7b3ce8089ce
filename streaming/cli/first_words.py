"""What a terminal shows of a command while its modules are loaded, which takes a second or more."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from types import TracebackType

_WITHOUT_CURSOR = ("dumb", "unknown")


class FirstWords:
    """A line on the terminal for the length of a ``with`` block; nothing where standard error is no terminal.

    This module loads none that takes time itself.
    """

    def __init__(self, words: str) -> None:
        self._words = words
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") not in _WITHOUT_CURSOR

    def __enter__(self) -> None:
        self._write(self._words[: shutil.get_terminal_size().columns - 1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self._is_shown:
            with suppress(OSError):
                sys.stderr.write(text)
                sys.stderr.flush()
