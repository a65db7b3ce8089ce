"""The JVM's archive of the classes that a main class of a release loads (CDS).

Without it each JVM reads these classes out of jars, parses and checks them: half of the time of a start. The first
process of a main class that ends by itself writes the archive; all later ones map it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from contextlib import suppress
from pathlib import Path

# A JVM that refuses an archive says so on standard output otherwise, where answers are read. Without relocation, JVMs
# share the archive's pages.
_MAPPED = (
    *("-Xlog:disable", "-Xlog:all=warning:stderr"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"),
)


class ClassArchive:
    """The archive of one main class, which this process of it uses or, if there is none yet, writes at its end.

    Parameters
    ----------
    directory
        Where archives are kept.
    name
        The main class and its release.
    class_path
        What it is loaded from. A JVM refuses the archive of other jars, or of another Java.
    """

    def __init__(self, directory: Path, name: str, class_path: str) -> None:
        files = [Path(shutil.which("java") or "java").resolve(), *map(Path, class_path.split(os.pathsep))]
        facts = [(str(file), file.stat().st_mtime_ns) for file in files if file.exists()]
        self._kept = directory / f"{name}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.jsa"
        self._written = self._kept.with_name(f"{self._kept.stem}-{os.getpid()}-{id(self):x}.jsa")
        self.is_written = not self._kept.exists()

    def options(self) -> list[str]:
        """Return the options of the JVM that use or write it."""
        if self.is_written:
            return [f"-XX:ArchiveClassesAtExit={self._written}", "-Xlog:disable", "-Xlog:all=error:stderr"]
        return [f"-XX:SharedArchiveFile={self._kept}", *_MAPPED]

    def keep(self) -> None:
        """Let later processes use what this one has written, if it has; it must have ended by itself."""
        if self.is_written:
            with suppress(FileNotFoundError):
                self._written.replace(self._kept)
