"""Outputs that earlier releases of reput left, see tests/data/PROVENANCE.md."""

from __future__ import annotations

import tarfile
from pathlib import Path

from support.paths import DATA

#: The commits that left an output each, oldest first.
COMMITS = ("46d5b19", "f7861a2", "343721d")


def unpack_earlier_outputs(root: Path) -> Path:
    """Unpack them below `root`, named by commit. They were left for `log/half`; `log/whole` is longer."""
    with tarfile.open(DATA / "earlier-outputs.tar.gz") as archive:
        archive.extractall(root, filter="data")
    return root
