"""The disks of output and table: each can be full, or read-only, for a while.

Root gets a small file system in memory for each. Others get limits that come near it: no file of a process may grow,
or no directory may be written to.
"""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import suppress
from pathlib import Path

from faults.live_break.processes import marked

DISK_BYTES = 512 << 20


def run(*words: str) -> bool:
    """Whether a command of the system succeeded."""
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


class Disk:
    """One disk, mounted at `root` where that is possible."""

    def __init__(self, root: Path, mark: str, size_bytes: int = DISK_BYTES) -> None:
        self.root = root
        self._mark = mark
        self._is_read_only = False
        root.mkdir(parents=True)
        words = ("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(root))
        self.is_mounted = os.geteuid() == 0 and run(*words)
        if self.is_mounted:
            # Later mounts here also appear in processes with mounts of their own.
            assert run("mount", "--make-shared", str(root)), f"{root} cannot be shared"

    @property
    def _filler(self) -> Path:
        return self.root / "filler"

    @property
    def _beside(self) -> Path:
        return self.root.with_name(f"{self.root.name}-read-only")

    def fill(self) -> None:
        """Leave no byte free."""
        if not self.is_mounted:
            self._limit_growth(is_limited=True)
            return
        with self._filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """Give the room back."""
        if self.is_mounted:
            self._filler.unlink()
        else:
            self._limit_growth(is_limited=False)

    def _limit_growth(self, *, is_limited: bool) -> None:
        for process in marked(self._mark):
            with suppress(ProcessLookupError):
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0 if is_limited else hard, hard))

    def make_read_only(self) -> None:
        """Refuse every change to files that are opened from now on."""
        self._is_read_only = True
        if not self.is_mounted:
            self._chmod(0o555)
            return
        # A file system with files open for writing cannot be made read-only, but be covered by itself. It is made
        # read-only beside it first: what processes with mounts of their own get to see is the mount as it is made.
        root, beside = str(self.root), str(self._beside)
        self._beside.mkdir(exist_ok=True)
        for words in (
            ("mount", "--bind", root, beside),
            ("mount", "--make-private", beside),
            ("mount", "-o", "remount,bind,ro", beside),
            ("mount", "--bind", beside, root),
            ("umount", beside),
        ):
            assert run(*words), f"{root} cannot be made read-only: {' '.join(words)} failed"

    def make_writable(self) -> None:
        """Take it back."""
        self._is_read_only = False
        if self.is_mounted:
            assert run("umount", "-l", str(self.root)), f"{self.root} cannot be made writable"
        else:
            self._chmod(0o755)

    def _chmod(self, mode: int) -> None:
        for path in [self.root, *self.root.rglob("*")]:
            if path.is_dir():
                path.chmod(mode)

    def end(self) -> None:
        """Unmount it."""
        if self._is_read_only:
            self.make_writable()
        if self.is_mounted:
            run("umount", "-l", str(self.root))
