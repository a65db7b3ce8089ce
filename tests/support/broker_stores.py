"""The stores of tests/data that real brokers left."""

from __future__ import annotations

import tarfile
from pathlib import Path

from support.paths import DATA


def unpack(name: str, directory: Path) -> Path:
    """Unpack a store below `directory`; returns its home, which has `store` and `broker.conf`."""
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        # The first releases of Python 3.10 and 3.11, which Debian 12 and Ubuntu 22.04 have, know no filter.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    return directory / name
