"""A Spark with Hive support in a process of its own: which catalog Spark has is fixed when its JVM starts.

The process, ``python -m support.hive_session DIRECTORY SETTINGS``, reads a statement a line from standard input, as
JSON, and answers each with a line: its rows, or its error. The metastore is Derby's, below the directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ERROR_LENGTH = 500


class HiveSession:
    """The test's side of the process; only one at a time can be open on a directory."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        directory.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.hive_session", str(directory), json.dumps(dict(settings))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def __enter__(self) -> HiveSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
        assert error is not None or self._process.returncode == 0

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """The rows; numbers and texts as they are, anything else as text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        rows: list[dict[str, Any]] = answer["rows"]
        return rows


def main(directory: Path, given: Mapping[str, str]) -> None:
    """Answer until standard input ends."""
    from reput.streaming.spark.session import JAVA_OPTIONS, NO_OPTIMIZER, end_session, start_session

    settings = {
        **given,
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/metastore;create=true",
        "spark.hadoop.hive.exec.scratchdir": f"{directory}/scratch",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        JAVA_OPTIONS: f"{NO_OPTIMIZER} -Dderby.system.home={directory}",
    }
    session = start_session(
        "hive", master="local[1]", driver_memory="1g", log_file=directory / "spark.log", settings=settings
    )
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"rows": [row.asDict() for row in session.sql(json.loads(line)).collect()]}
        except Exception as error:  # noqa: BLE001  the test judges it
            answer = {"error": str(error)[:ERROR_LENGTH]}
        print(json.dumps(answer, default=str), flush=True)
    end_session(session)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
