"""An engine for Kernel that never overwrites another writer's commit, and makes commits durable.

Delta looks whether a version's file exists and then writes or renames over it, so two writers can overwrite each
other's commit. Here the commit's text is taken from Kernel, and `TableStorage.put_if_absent` puts it in place.

A version's checksum, the file ``.crc``, is written in the same way. Hadoop starts eight processes (``readlink``,
``chmod``) to write one, and they take twice as long as the commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

from reput.sinks.table.java_names import JavaNames
from reput.sinks.table.kernel_json import KernelJson
from reput.sinks.table.storage import LOG, TableStorage


class _JsonHandler:
    """Writes commits as the module's docstring says, and leaves the rest to `default`."""

    def __init__(self, default: Any, json_of: KernelJson, storage: TableStorage) -> None:
        self._default = default
        self._json = json_of
        self._storage = storage
        self.commit_info: dict[str, Any] = {}
        self.table_comment = ""
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
        name = path.rpartition("/")[2]
        try:
            lines = self._lines_of_checksum(rows) if name.endswith(".crc") else self._lines_of_commit(rows)
            self.is_first = self._storage.put_if_absent(f"{LOG}/{name}", "".join(lines).encode())
        except BaseException as error:  # noqa: BLE001  Java waits for an answer; `take_outcome` raises it
            self.error = error

    def _lines_of_checksum(self, rows: Any) -> Iterator[str]:
        try:
            while rows.hasNext():
                yield f"{self._json.of_long(rows.next())}\n"
        finally:
            rows.close()

    def _lines_of_commit(self, rows: Any) -> Iterator[str]:
        """The commit's actions, the first with what Kernel has no words for: the commit's own description."""
        try:
            described = json.loads(self._json.of(rows.next()))
            described["commitInfo"] |= self.commit_info
            yield f"{json.dumps(described)}\n"
            while rows.hasNext():
                line = self._json.of(rows.next())
                if self.table_comment:
                    line = _with_comment(line, self.table_comment)
                yield f"{_without_statistics(line) if self.hides_removed else line}\n"
        finally:
            rows.close()

    class Java:
        """The Java interfaces that py4j is to implement."""

        implements = ("io.delta.kernel.engine.JsonHandler",)


class ExclusiveCommit:
    """An engine for ``Transaction.commit`` and for the hook that writes a checksum; `take_outcome` tells the outcome.

    It writes one file at a time.
    """

    def __init__(self, engine: Any, java: JavaNames, kernel: JavaNames, storage: TableStorage) -> None:
        """`java` and `kernel` are the packages ``java`` and ``io.delta.kernel``."""
        context = SparkContext._active_spark_context  # noqa: SLF001
        assert context is not None
        gateway = context._gateway  # noqa: SLF001
        assert gateway is not None
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._engine = engine
        self._no_reporters = java("util.ArrayList")()
        self._json = _JsonHandler(engine.getJsonHandler(), KernelJson(java, kernel, engine), storage)
        storage.remove_left_over()

    def describe(self, commit_info: dict[str, Any], *, table_comment: str = "", hides_removed: bool = False) -> None:
        """Say what the next commit's ``commitInfo`` has beside Kernel's own fields.

        `table_comment` describes the table that the commit creates, which Kernel has no word for. With `hides_removed`
        it has no statistics of removed files, whose bounds are texts of rows that go.
        """
        self._json.commit_info = commit_info
        self._json.table_comment = table_comment
        self._json.hides_removed = hides_removed

    def run(self, hook: Any) -> None:
        """Have a hook of Kernel's write a checksum, unless it is there; raises what writing it raised."""
        try:
            hook.threadSafeInvoke(self)
        finally:
            self.take_outcome()

    def take_outcome(self) -> bool:
        """Whether the last file was written; False if another writer's commit, or checksum, of the version was first.

        Raises
        ------
        BaseException
            What writing it raised.
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
        return self._no_reporters

    class Java:
        """The Java interfaces that py4j is to implement."""

        implements = ("io.delta.kernel.engine.Engine",)


def _with_comment(line: str, comment: str) -> str:
    """The action with a new table's metadata with the table's comment; any other action as it is."""
    action = json.loads(line)
    if "metaData" not in action:
        return line
    action["metaData"]["description"] = comment
    return json.dumps(action)


def _without_statistics(line: str) -> str:
    """An action of a commit without the statistics of a file that it removes."""
    action = json.loads(line)
    if "remove" not in action:
        return line
    action["remove"].pop("stats", None)
    return json.dumps(action)
