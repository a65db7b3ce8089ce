"""Where a data file of a table is, by its name in the table's log."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


def file_path(root: Path, name: str) -> Path:
    """The path of a file that the log names: below the table's root, or anywhere by a URI; both are URL-encoded."""
    return Path(unquote(urlsplit(name).path)) if name.startswith("file:") else root / unquote(name)
