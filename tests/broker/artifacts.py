"""The jars of one RocketMQ release and the compiled Java client, made once and kept in a cache directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent
MAVEN_TIMEOUT_S = 900
# Profiles of pom.xml. Not every release has all parts of a broker on Maven Central.
BROKER, STORE = "broker", "store"
_OF_A_STORE = ("Arguments", "Guard", "Json", "MessageStores", "Recovery", "Timers")
JAVAC_TIMEOUT_S = 120


class HarnessError(Exception):
    """A process of the harness did not do what it was asked; the message holds the end of its output."""


def missing_tools() -> str | None:
    """Say in one sentence which of java, javac and mvn are not on PATH; None when all are."""
    missing = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    if not missing:
        return None
    return f"a real RocketMQ broker cannot be started: {', '.join(missing)} not found on PATH"


def newest_release() -> str:
    """Ask Maven for the newest release of the broker, whether all its parts can be had or not.

    Raises
    ------
    HarnessError
        Maven could not tell.
    """
    with tempfile.TemporaryDirectory() as scratch:
        pom, output = Path(scratch, "pom.xml"), Path(scratch, "class-path.txt")
        alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        text = (SOURCE_DIR / "pom.xml").read_text()
        # Without what it depends on: only its own number is asked for.
        pom.write_text(re.sub(r"</version>(\s*</dependency>)", rf"</version>{alone}\1", text))
        goal = ["-U", "-f", str(pom), "dependency:build-classpath"]
        _run(["mvn", "-q", "-B", *goal, f"-Dmdep.outputFile={output}", "-Drocketmq.version=RELEASE"], MAVEN_TIMEOUT_S)
        class_path = output.read_text()
    found = re.search(r"rocketmq-broker-([^/]+)\.jar", class_path)
    if found is None:
        raise HarnessError(f"Maven named no release of rocketmq-broker: {class_path}")
    return found[1]


def resolve_class_path(version: str, cache_dir: Path, part: str = BROKER) -> str:
    """Return the class path of one release's broker, name server, tools and client, or of its `STORE` alone.

    Maven runs only once.

    Raises
    ------
    HarnessError
        Maven could not resolve the release.
    """
    pom = SOURCE_DIR / "pom.xml"
    cached = cache_dir / f"class-path-{part}-{version}-{_digest([pom])}.txt"
    if cached.exists():
        class_path = cached.read_text().strip()
        if all(Path(jar).exists() for jar in class_path.split(os.pathsep)):
            return class_path
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir) as scratch:
        # A copy of the pom, so that Maven makes no target directory beside the sources.
        shutil.copy(pom, scratch)
        output = Path(scratch, "class-path.txt")
        settings = [f"-Dmdep.outputFile={output}", f"-Drocketmq.version={version}"]
        goal = ["-f", str(Path(scratch, "pom.xml")), "dependency:build-classpath"]
        _run(["mvn", "-q", "-B", f"-P{part}", *goal, *settings], MAVEN_TIMEOUT_S)
        output.replace(cached)
    return cached.read_text().strip()


def compile_client(version: str, class_path: str, cache_dir: Path, part: str = BROKER) -> Path:
    """Return the jar of the client's classes, compiled against one release; javac runs only once.

    With `STORE`, only the classes that need no more than a store.

    Raises
    ------
    HarnessError
        The sources do not compile against that release.
    """
    names = _OF_A_STORE if part == STORE else ("*",)
    sources = sorted(path for name in names for path in SOURCE_DIR.glob(f"{name}.java"))
    # A jar, because the JVM archives no classes of directories.
    jar = cache_dir / f"classes-{part}-{version}-{_digest(sources)}.jar"
    if jar.exists():
        return jar
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir) as scratch:
        output = Path(scratch, "classes")
        options = ["-nowarn", "-encoding", "UTF-8", "-d", str(output), "-cp", class_path]
        _run(["javac", *options, *map(str, sources)], JAVAC_TIMEOUT_S)
        # Another process may have been first; its classes have the same sources, and archives may be of them.
        with suppress(FileExistsError):
            os.link(shutil.make_archive(str(output), "zip", output), jar)
    return jar


def _digest(files: Sequence[Path]) -> str:
    """Return 12 hexadecimal digits that change with any of the files."""
    sha = hashlib.sha256()
    for file in files:
        sha.update(file.name.encode() + b"\0" + file.read_bytes())
    return sha.hexdigest()[:12]


def _run(command: Sequence[str], timeout_s: float) -> None:
    """Run to the end; a failure carries the end of the output."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-4000:]
        raise HarnessError(f"{command[0]} ended with {done.returncode}:\n{tail}")
