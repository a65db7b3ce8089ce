"""Java's classes and their static members by name, each looked up once.

py4j asks the JVM for each part of ``jvm.java.util.ArrayList`` whenever it is met. A commit has twenty such names:
without these questions it is made in half the time.
"""

from __future__ import annotations

from typing import Any


class JavaNames:
    """What names below a package mean; any thread may ask."""

    def __init__(self, jvm: Any, package: str) -> None:
        """`package` is of the session's ``_jvm``."""
        self._jvm = jvm
        self._package = package
        self._found: dict[str, Any] = {}

    def __call__(self, name: str) -> Any:
        """Return the class or static member, as py4j's proxy, that `name` below the package stands for."""
        found = self._found.get(name)
        if found is None:
            found = self._jvm
            for part in f"{self._package}.{name}".split("."):
                found = getattr(found, part)
            self._found[name] = found
        return found
