"""The current directory is the user's: paths are relative to it, but code and settings are never read from it.

Python, numba, Spark and the JVM look for modules and settings in the directory that they are started in, and Spark
would write there. So a command leaves it as soon as it is started.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# Only the administrator can put anything there.
_NEUTRAL = "/"
# Variables that hold one or more paths and are read later or by another process.
_PATH_VARIABLES = (
    *("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
    *("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR", "TMP", "TEMP", "PYTHONPATH", "PYTHONPYCACHEPREFIX"),
)
_started_in: list[Path] = []


def leave() -> None:
    """Go to a neutral directory; make relative paths in the environment absolute for processes started later."""
    try:
        start = Path.cwd()
    except OSError:  # it was removed; absolute paths are as good as ever
        start = Path(_NEUTRAL)
    _started_in[:] = [start]
    for name in _PATH_VARIABLES:
        if value := os.environ.get(name):
            separator = "," if name == "SPARK_LOCAL_DIRS" else os.pathsep
            os.environ[name] = separator.join(str(start / path) for path in value.split(separator) if path)
    os.chdir(_NEUTRAL)


def made_absolute(value: Any) -> Any:
    """A path of the command line, relative to where the command was started; any other value as it is."""
    if isinstance(value, Path) and not value.is_absolute():
        return (_started_in[0] if _started_in else Path.cwd()) / value
    return value
