"""A disk that is soon full, for tests of what happens then."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(directory: Path, *options: str, size: str = "512k") -> Iterator[Path]:
    """A memory file system of `size`, where this user may mount one."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)
