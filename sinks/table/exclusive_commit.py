"""An engine for Kernel that never overwrites another writer's commit, and makes commits durable.

On a local disk Delta looks whether a version's file exists and then renames over it, so two writers can overwrite each
other's commit. Here the whole file is written under another name and synced. ``link(2)`` then gives it its own name,
and fails if another writer was first.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

# The next start removes what a dead process left of its commits; a living process finishes its own within this time.
_LEFT_OVER_SECONDS = 3600
_MARK = "reput-"


class _JsonHandler:
    """Writes commits as the module's docstring says, and leaves the rest to `default`."""

    def __init__(self, default: Any, log: Path) -> None:
        self._default = default
        self._log = log
        self.commit_info: dict[str, Any] = {}
        self.hides_removed = False
        self.is_first = False
        self.error: BaseException | None = None

    def parseJson(self, *arguments: Any) -> Any:  # noqa: N802  Java's name
        return self._default.parseJson(*arguments)

    def readJsonFiles(self, *arguments: Any) -> Any:  # noqa: N802
        return self._default.readJsonFiles(*arguments)

    def writeJsonFileAtomically(self, path: str, rows: Any, overwrite: bool) -> None:  # noqa: N802
        if overwrite:
            self._default.writeJsonFileAtomically(path, rows, overwrite)
            return
        directory, _, name = path.rpartition("/")
        temporary = f".{name}.{_MARK}{uuid.uuid4()}.tmp"
        try:
            self._default.writeJsonFileAtomically(f"{directory}/{temporary}", rows, True)
            self._complete(self._log / temporary)
            self.is_first = self._link(self._log / temporary, self._log / name)
        except BaseException as error:  # noqa: BLE001  Java waits for an answer; `take_outcome` raises it
            self.error = error
        finally:
            for left in (temporary, f".{temporary}.crc"):
                with suppress(OSError):
                    os.unlink(self._log / left)

    def _complete(self, path: Path) -> None:
        """Add to the commit's own description, which Kernel writes as its first line, what Kernel has no words for."""
        first, _, actions = path.read_text(encoding="utf-8").partition("\n")
        described = json.loads(first)
        described["commitInfo"] |= self.commit_info
        if self.hides_removed:
            actions = "".join(map(_without_statistics, actions.splitlines(keepends=True)))
        path.write_text(f"{json.dumps(described)}\n{actions}", encoding="utf-8")

    @staticmethod
    def _link(temporary: Path, path: Path) -> bool:
        _sync(temporary)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        # Hadoop compares a file with the checksums beside it, which may be those of a file that was removed.
        with suppress(FileNotFoundError):
            os.unlink(path.with_name(f".{path.name}.crc"))
        _sync(path.parent)
        return True

    class Java:
        """The Java interfaces that py4j is to implement."""

        implements = ("io.delta.kernel.engine.JsonHandler",)


class ExclusiveCommit:
    """An engine for ``Transaction.commit``: it makes one commit at a time; `take_outcome` returns its outcome."""

    def __init__(self, engine: Any, jvm: Any, log: Path) -> None:
        """`log` is the table's directory ``_delta_log``."""
        context = SparkContext._active_spark_context  # noqa: SLF001
        assert context is not None
        gateway = context._gateway  # noqa: SLF001
        assert gateway is not None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._engine = engine
        self._jvm = jvm
        self._json = _JsonHandler(engine.getJsonHandler(), log)
        _remove_left_over(log)

    def describe(self, commit_info: dict[str, Any], *, hides_removed: bool) -> None:
        """Say what the next commit's ``commitInfo`` has beside Kernel's own fields.

        With `hides_removed` it has no statistics of removed files, whose bounds are texts of rows that go.
        """
        self._json.commit_info = commit_info
        self._json.hides_removed = hides_removed

    def take_outcome(self) -> bool:
        """Whether the last commit is in the log; False if another writer's commit has its version.

        Raises
        ------
        BaseException
            What writing the commit raised.
        """
        error, is_first = self._json.error, self._json.is_first
        self._json.error, self._json.is_first = None, False
        if error is not None:
            raise error
        return is_first

    def getExpressionHandler(self) -> Any:  # noqa: N802
        """The wrapped engine's."""
        return self._engine.getExpressionHandler()

    def getJsonHandler(self) -> Any:  # noqa: N802
        """The handler that writes commits without overwriting others."""
        return self._json

    def getFileSystemClient(self) -> Any:  # noqa: N802
        """The wrapped engine's."""
        return self._engine.getFileSystemClient()

    def getParquetHandler(self) -> Any:  # noqa: N802
        """The wrapped engine's."""
        return self._engine.getParquetHandler()

    def getMetricsReporters(self) -> Any:  # noqa: N802
        """No reporters."""
        return self._jvm.java.util.ArrayList()

    class Java:
        """The Java interfaces that py4j is to implement."""

        implements = ("io.delta.kernel.engine.Engine",)


def _without_statistics(line: str) -> str:
    """An action of a commit without the statistics of a file that it removes."""
    action = json.loads(line)
    if "remove" not in action:
        return line
    action["remove"].pop("stats", None)
    return json.dumps(action) + "\n"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_left_over(log: Path) -> None:
    for path in log.glob(f".*.json.{_MARK}*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _LEFT_OVER_SECONDS:
                path.unlink()
