"""Files that halve Spark's start time: a list of Delta's jars, the JVM's archive of classes, a home for Spark.

Without them each start asks Ivy where Delta's jars are, the JVM reads its classes out of jars, parses and checks them,
and each Python process compiles pyspark. ``prepare`` makes them once for an environment. They are optional: if jars or
Java have changed, they are ignored or the JVM refuses the archive (CDS: it compares its own version and the paths,
sizes and times of all jars), and Spark starts as it does without them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pyspark

from reput.streaming.process.jvm import spark_home

_JARS, _S3_JARS = "jars.json", "s3-jars.json"
_ARCHIVE = "classes.jsa"
_HOME = "home"
# The parts of Spark's home that a JVM needs. The zip of pyspark is left out: Spark would put it in front of the module
# path of its Python processes, and each of them would compile what it imports, as the zip has no compiled modules.
_IN_HOME = ("bin", "conf", "jars")
# Characters that a path must not contain to pass unchanged through Spark's launcher and a class path.
_UNSAFE = re.compile(r"[\"'\\:;,$\s]")
_MODULE = "module-info"  # nearly every jar has one of its own


@dataclass(frozen=True)
class SparkClasses:
    """The files that ``prepare`` made for one Java, Spark and Delta.

    Attributes
    ----------
    directory
        The directory for them; it need not exist.
    """

    directory: Path

    @classmethod
    def of(cls, java: str) -> SparkClasses:
        """Return those for this environment and `java` (``check_java``), whether they exist or not."""
        facts = [java, pyspark.__version__, str(spark_home()), version("delta-spark")]
        name = "spark-" + hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        found = [root / name for root in _roots() if (root / name).is_dir()]
        writable = [root / name for root in _roots() if _can_be_made(root)]
        return cls([*found, *writable, user_cache() / name][0])

    @property
    def archive(self) -> Path:
        """The JVM's archive; it need not exist."""
        return self.directory / _ARCHIVE

    def jars(self) -> list[Path] | None:
        """The jars that Delta needs in addition to Spark's own; None if they are unknown, or have changed."""
        return self._listed(_JARS)

    def s3_jars(self) -> list[Path] | None:
        """The jars that a table on S3 needs in addition to these; None if they are unknown, or have changed."""
        jars = self._listed(_S3_JARS)
        return None if jars is None or any(_UNSAFE.search(str(path)) for path in jars) else jars

    def _listed(self, name: str) -> list[Path] | None:
        try:
            jars = [(Path(path), size) for path, size in json.loads((self.directory / name).read_text())]
            return [path for path, _ in jars] if all(path.stat().st_size == size for path, size in jars) else None
        except (OSError, ValueError):
            return None

    def keep_jars(self, resolved: Iterable[Path]) -> None:
        """Store in `directory` the list of jars that Ivy found for Delta, except those with a class that Spark has.

        Spark's own class takes precedence, as it does over packages.
        """
        self._keep(_JARS, resolved)

    def keep_s3_jars(self, resolved: Iterable[Path]) -> None:
        """Store the list of jars that Ivy found for S3, and perhaps for Delta; if that fails, Ivy is asked again."""
        with suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            self._keep(_S3_JARS, [path for path in resolved if not path.name.startswith("io.delta_")])

    def _keep(self, name: str, resolved: Iterable[Path]) -> None:
        own = {name for path in (spark_home() / "jars").glob("*.jar") for name in _class_files(path)}
        listed = [(str(path), path.stat().st_size) for path in resolved if own.isdisjoint(_class_files(path))]
        scratch = self.directory / f"{name}.{os.getpid()}"
        scratch.write_text(json.dumps(listed))
        scratch.replace(self.directory / name)

    def keep_home(self) -> None:
        """Make `home`, of links, if it is missing; not if Spark's zip may be the only pyspark of its workers."""
        if (self.directory / _HOME).exists() or spark_home() != Path(pyspark.__path__[0]).absolute():
            return
        scratch = self.directory / f"{_HOME}.{os.getpid()}"
        scratch.mkdir()
        for name in _IN_HOME:
            if (spark_home() / name).exists():
                (scratch / name).symlink_to(spark_home() / name)
        try:
            scratch.rename(self.directory / _HOME)
        except OSError:
            shutil.rmtree(scratch)  # its links, not their targets
            if not (self.directory / _HOME).exists():  # otherwise another run has made it meanwhile
                raise

    @property
    def home(self) -> Path:
        """The ``SPARK_HOME`` for a JVM of this machine: that of ``keep_home``, or Spark's own."""
        made = self.directory / _HOME
        return made if (made / "jars").is_dir() else spark_home()

    def refusal(self) -> str | None:
        """The reason why Spark cannot use them, whether they exist or not; None if it can."""
        if defaults := _defaults():
            return f"{defaults} exists, and may say otherwise: Spark starts by that file alone"
        if unsafe := [path for path in [*(self.jars() or ()), self.archive] if _UNSAFE.search(str(path))]:
            return f"{unsafe[0]} has a character that Spark's options cannot hold; see XDG_CACHE_HOME"
        return None

    def settings(self) -> dict[str, str]:
        """Spark's settings for a JVM of this machine with Delta's classes; empty if there is a `refusal`.

        The caller must join ``spark.driver.extraJavaOptions`` with its own.
        """
        jars = self.jars()
        if jars is None or self.refusal():
            return {}
        settings = {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}
        if self.archive.exists():
            # Without -Xlog, a JVM that refuses an archive reports it on standard output. ArchiveRelocationMode has it
            # map the archive at the archive's own addresses. Elsewhere, as Java 17.0.15 does by default, it changes
            # each address first: that takes 90 MB, which two JVMs then do not share.
            quiet, mapped = "-Xlog:disable -Xlog:all=warning:stderr", "-XX:ArchiveRelocationMode=0"
            options = f"-XX:SharedArchiveFile={self.archive} {quiet} -XX:+UnlockDiagnosticVMOptions {mapped}"
            settings["spark.driver.extraJavaOptions"] = options
        return settings


def user_cache() -> Path:
    """Return the directory for things that reput can make again for this user."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "reput"


def _roots() -> Iterator[Path]:
    if sys.prefix != sys.base_prefix:  # it is removed together with the virtual environment
        yield Path(sys.prefix) / "cache" / "reput"
    yield user_cache()


def _can_be_made(path: Path) -> bool:
    if not path.exists():
        return _can_be_made(path.parent)
    return path.is_dir() and os.access(path, os.W_OK)


def _defaults() -> Path | None:
    path = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf") / "spark-defaults.conf"
    return path if path.exists() else None


def _class_files(jar: Path) -> list[str]:
    with ZipFile(jar) as archive:
        return [name for name in archive.namelist() if name.endswith(".class") and _MODULE not in name]
