"""`reput` whose syncs of an output fail with EIO while the file exists that ``REPUT_TEST_EIO`` names."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from reput.sinks.files import durable_file
from reput.streaming.cli.main import main

_TRIGGER = "REPUT_TEST_EIO"


class FailingOs:
    """The module ``os``, but for the syncs."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def fsync(descriptor: int) -> None:
        """Fail while the file exists."""
        if Path(os.environ[_TRIGGER]).exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(descriptor)


if __name__ == "__main__":
    durable_file.os = FailingOs()  # type: ignore[assignment]
    main()
