"""What is in a directory of an output."""

from __future__ import annotations

from pathlib import Path


def names_in(directory: Path) -> list[str]:
    """The names in a directory; none if the directory is missing."""
    return [path.name for path in directory.iterdir()] if directory.is_dir() else []


def has_files(directory: Path) -> bool:
    """Whether there is a file in a directory or below it."""
    return directory.is_dir() and any(path.is_file() for path in directory.rglob("*"))
