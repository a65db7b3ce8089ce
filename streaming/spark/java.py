"""The Java that Spark needs: found and recent enough, or an error in one clear sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from reput.source.errors import EnvironmentSetupError

JAVA_MAJOR_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_INSTALL = (
    "install it with 'apt-get install openjdk-17-jre-headless' (Debian, Ubuntu), "
    "'dnf install java-17-openjdk-headless' (RHEL, Fedora) or 'brew install openjdk@17' (macOS), "
    "or set JAVA_HOME"
)


def check_java() -> str:
    """Make sure that the Java that Spark will start exists and is version 17 or later.

    Returns
    -------
    str
        Its path and the output of ``java -version``, which identify it.

    Raises
    ------
    EnvironmentSetupError
        It is missing, too old, or does not run.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, and {java} does not exist" if home else "no java on the PATH"
        raise _needed(where, java)
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise _needed(f"{java} does not run ({error})", java) from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None or int(match[1]) < JAVA_MAJOR_MIN:
        found = match[1] if match else f"no version in {answer.stderr.strip()[:80]!r}"
        raise _needed(f"{java} is {found}", java)
    return f"{java}\n{answer.stderr}{answer.stdout}"


def _needed(found: str, java: str | None) -> EnvironmentSetupError:
    return EnvironmentSetupError(f"Spark needs Java {JAVA_MAJOR_MIN} or later: {found}", advice=_INSTALL, file=java)
